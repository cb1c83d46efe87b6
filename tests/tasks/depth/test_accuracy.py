"""Errors of depth on labels in millimetres and metres."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import SampleError
from edgekit.processing.predictions.depth import DepthKind, DepthMap
from edgekit.tasks.depth import accuracy
from edgekit.tensor_spec import Array
from tests.fixtures.cards import card

Image = pytest.importorskip("PIL.Image")
CARD = card({"kind": "depth", "decode": "inverse", "outputs": {"depth": "y"}})
TRUTH = np.array([[0, 1000, 2000], [4000, 5000, 8000]], np.uint16)  # 0 is unknown


def written(folder: Path) -> Path:
    Image.new("RGB", (3, 2)).save(folder / "a.jpg")
    Image.fromarray(TRUTH).save(folder / "a_depth.png")
    (sample,) = accuracy.read_depths(folder, CARD).samples
    path: Path = sample.label
    return path


def test_metres_are_compared_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path)
    measured = accuracy.measure(path, DepthMap((TRUTH * 0.0011).astype(np.float32), "metric"), CARD)
    assert measured == pytest.approx((0.1, 1))
    off = np.array([[9, 1, 2], [4, 5, 12]], np.float32)
    scores = accuracy.score([measured, accuracy.measure(path, DepthMap(off, "metric"), CARD)], CARD)
    assert scores.value(np.array([1, 1])) == pytest.approx((0.1 + 0.1) / 2)
    assert scores.value(np.array([2, 0])) == pytest.approx(0.1)
    assert scores.groups["figure"]["delta1"].value == pytest.approx((1 + 0.8) / 2)
    assert scores.faults[1] == "off by 10.0%, 80.0% within 1.25"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("inverse", np.divide(7.0, TRUTH, out=np.ones(TRUTH.shape), where=TRUTH > 0) + 3),
        ("relative", TRUTH * 0.2 + 5),
    ],
)
def test_a_map_without_a_unit_is_fitted(tmp_path: Path, kind: DepthKind, values: Array) -> None:
    path = written(tmp_path)
    assert accuracy.measure(path, DepthMap(values.astype(np.float32), kind), CARD).error < 1e-3
    assert accuracy.measure(path, DepthMap(values[::-1].astype(np.float32), kind), CARD).error > 0.1
    assert accuracy.measure(path, DepthMap(values.astype(np.float32), "metric"), CARD).error > 0.1


def test_arrays_are_metres(tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "a.jpg")
    (tmp_path / "depth").mkdir()
    np.save(tmp_path / "depth" / "a.npy", (TRUTH / 1000).astype(np.float32))
    labelled = accuracy.read_depths(tmp_path, CARD)
    assert labelled.form == "depth maps"
    prediction = DepthMap((TRUTH / 1000).astype(np.float32), "metric")
    assert accuracy.measure(labelled.samples[0].label, prediction, CARD) == (0, 1)
    np.save(tmp_path / "depth" / "a.npy", np.zeros((2, 3), np.float32))
    with pytest.raises(SampleError, match="has no pixel with a depth above 0; leave it out"):
        accuracy.measure(labelled.samples[0].label, prediction, CARD)
    (tmp_path / "depth" / "a.npy").unlink()
    with pytest.raises(SampleError) as error:
        accuracy.read_depths(tmp_path, CARD)
    assert str(error.value) == (
        f"{tmp_path} has no photographs with depth maps. Put the depth map of images/NAME.jpg into "
        "depth/NAME.png, with millimetres as its values; or into NAME.npy in metres as float32. 0 is unknown"
    )
