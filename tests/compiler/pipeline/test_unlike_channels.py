"""An int8 variant whose output joins numbers of different size keeps all of them, or is rejected.

tests/benchmarks/bench_unlike_channels.py tries 200 networks drawn at run time.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.runtime import Session
from tests.benchmarks.bench_unlike_channels import losses
from tests.fixtures.graphs import Graph

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]


@pytest.mark.parametrize("seed", [3, 8, 12])
def test_no_channel_is_lost_in_silence(seed: int, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    assert losses(tmp_path, seed, ["ort", "tflite"], counts) == []
    assert counts["accurate"] == 2


def selecting_network(folder: Path, cells: int = 64, kept: int = 12) -> Path:
    """A detector that selects its best cells itself: boxes in pixels and a score, by TopK."""
    g = Graph({"x": (1, 3, 32, 32)}, opset=17)
    stem = g("Relu", g("Conv", "x", g.weights(16, 3, 3, 3), g.weights(16), strides=[2, 2], pads=[1] * 4))
    body = g("Relu", g("Conv", stem, g.weights(16, 16, 3, 3), g.weights(16), strides=[2, 2], pads=[1] * 4))
    boxes = g("Mul", g("Sigmoid", g.conv(body, 4, 16)), np.array(320, np.float32))
    boxes = g("Reshape", boxes, np.array([1, 4, cells]))
    scores = g("Reshape", g("Sigmoid", g.conv(body, 1, 16)), np.array([1, cells]))
    best = g("TopK", scores, np.array([kept]), outputs=2)
    where = g("Tile", g("Unsqueeze", f"{best}_1", np.array([1])), np.array([1, 4, 1]))
    chosen = g("GatherElements", boxes, where, axis=2)
    rows = g("Concat", chosen, g("Unsqueeze", best, np.array([1])), axis=1)
    g.model(folder, g("Transpose", rows, perm=[0, 2, 1]))
    return folder / "small.onnx"


def test_rows_that_change_places_do_not_reject_a_variant(tmp_path: Path) -> None:
    path = selecting_network(tmp_path)
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(0, 1, (1, 3, 32, 32)).astype(np.float32)} for _ in range(48)]
    bundle = edgekit.build(path, targets=["tflite"], precision="int8", samples=samples, force=True)
    (int8,) = (variant for variant in bundle.variants if "int8" in variant.name)
    assert " dB;" not in int8.status  # rejected for its time at most
    assert int8.evidence["agreement"]["metric"] == "part SNR"
    reference = Reference(open_model(path))
    with Session(bundle, variant=int8.name, strict=True) as session:
        moved = 0
        for _ in range(10):
            feeds = {"x": rng.normal(0, 1, (1, 3, 32, 32)).astype(np.float32)}
            (expected,), (actual,) = (list(run(feeds).values()) for run in (reference.run, session.run))
            moved += int((np.abs(expected - actual)[..., :4].max(-1) > 16).sum())
    assert moved > 0  # in place, these rows would be wrong
