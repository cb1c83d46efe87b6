"""Samples for training: parts that share nothing, batches that are what went in, pictures changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.compress.picture_augmentation import CHANGES, PictureAugmentation, changes_for
from edgekit.compiler.compress.training_samples import TrainingSamples, hold_out
from edgekit.processing.card import Card, load_card
from edgekit.tensor_spec import Array

CARD = """
title = "t"

[inputs.x]
kind = "image"
shape = {shape}
layout = "{layout}"
colour = "{colour}"
resize = "stretch"
{more}
"""


def noise(count: int, seed: int = 0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(0, 1, (1, 4)).astype(np.float32)} for _ in range(count)]


def test_parts_share_nothing_and_follow_the_content() -> None:
    samples = noise(80)
    parts = hold_out(samples, "them")
    assert (len(parts.training), len(parts.validation), len(parts.test)) == (60, 10, 10)
    seen = [
        sample["x"].tobytes() for part in (parts.training, parts.validation, parts.test) for sample in part
    ]
    assert sorted(seen) == sorted(sample["x"].tobytes() for sample in samples)
    mixed = hold_out([*samples[40:], *samples[:40], samples[3]], "them")
    assert {s["x"].tobytes() for s in mixed.test} == {s["x"].tobytes() for s in parts.test}
    assert len(mixed.training) == 60


@pytest.mark.parametrize("memory_bytes", [0, 2**20])
def test_batches_are_what_went_in(memory_bytes: int) -> None:
    """Also where only a later sample has fractions, and what was stored as bytes has to become float."""
    rng = np.random.default_rng(0)
    samples: list[dict[str, Array]] = [
        {"x": rng.integers(0, 256, (1, 2, 2)).astype(np.float32), "n": np.array([k], np.int64)}
        for k in range(20)
    ]
    for late in (False, True):
        if late:
            samples[15]["x"] = samples[15]["x"] - np.float32(300.5)
        found = TrainingSamples(samples, memory_bytes)
        assert len(found) == 20
        batch = found.batch(np.array([15, 2]))
        assert batch["x"].dtype == np.float32
        assert batch["n"].dtype == np.int64
        assert np.array_equal(batch["x"], np.stack([samples[15]["x"], samples[2]["x"]]))
        assert batch["n"].tolist() == [[15], [2]]


def card(tmp_path: Path, layout: str, channels: int = 3, more: str = "", task: str = "") -> Card:
    shape = [1, channels, 8, 10] if layout == "NCHW" else [1, 8, 10, channels]
    colour = "RGB" if channels == 3 else "GREY"
    path = tmp_path / "card.toml"
    path.write_text(CARD.format(shape=shape, layout=layout, colour=colour, more=more) + task, "utf-8")
    return load_card(path)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_stay_in_their_range(tmp_path: Path, layout: str, channels: int) -> None:
    numbers = [100, 110, 120][:channels], [50, 60, 70][:channels]
    given = card(tmp_path, layout, channels, f"mean = {numbers[0]}\nstd = {numbers[1]}")
    (entry,) = given.inputs.values()
    low, high = entry.range or (0.0, 0.0)
    rng = np.random.default_rng(1)
    batch: dict[str, Array] = {
        "x": rng.uniform(low, high, (16, *entry.shape)).astype(np.float32),
        "other": np.arange(16),
    }
    change = PictureAugmentation(given, CHANGES)
    once, again = (change(batch, np.random.default_rng(2)) for _ in range(2))
    assert once["x"].shape == batch["x"].shape
    assert once["x"].dtype == np.float32
    assert np.array_equal(once["x"], again["x"])
    assert not np.array_equal(once["x"], change(batch, np.random.default_rng(3))["x"])
    assert low - 1e-4 <= once["x"].min() < once["x"].max() <= high + 1e-4
    assert np.array_equal(once["other"], batch["other"])


def test_each_change_by_itself(tmp_path: Path) -> None:
    given = card(tmp_path, "NHWC")
    picture = np.random.default_rng(0).integers(0, 256, (1, 8, 10, 3)).astype(np.float32)
    batch = {"x": np.stack([picture] * 40)}
    made = PictureAugmentation(given, ["flip"])(batch, np.random.default_rng(0))["x"]
    mirrored = [bool(np.array_equal(each, picture[:, :, ::-1])) for each in made]
    assert 8 < sum(mirrored) < 32
    assert all(m or np.array_equal(each, picture) for m, each in zip(mirrored, made, strict=True))
    made = PictureAugmentation(given, ["crop"])(batch, np.random.default_rng(0))["x"]
    rows = {tuple(row) for row in picture[0].reshape(8, -1)}
    only_rows = [each for each in made if {tuple(r) for r in each[0].reshape(8, -1)} <= rows]
    assert 0 < len(only_rows) < 40
    assert set(np.unique(made)) <= set(np.unique(picture))
    made = PictureAugmentation(given, ["brightness"])(batch, np.random.default_rng(0))["x"]
    assert np.unique([round(float(each.mean())) for each in made]).size > 10
    inside = (picture > 60) & (picture < 190)
    slopes = [np.polyfit(picture[inside], each[inside], 1)[0] for each in made]
    assert 0.79 < min(slopes) < 0.95
    assert 1.05 < max(slopes) < 1.21


def test_what_suits_the_card(tmp_path: Path) -> None:
    task = '\n[task]\nkind = "{}"\ndecode = "{}"\nlabels = ["a", "b"]\noutputs = {{ scores = "y" }}\n'
    assert changes_for(None, None) == ()
    assert changes_for(card(tmp_path, "NCHW"), None) == CHANGES
    assert changes_for(card(tmp_path, "NCHW", task=task.format("classify", "logits")), None) == CHANGES
    text = load_card(Path(__file__).parents[3] / "samples/cards/ch_PP-OCRv4_det_infer.toml")
    assert changes_for(text, None) == ("crop", "brightness")
    assert changes_for(card(tmp_path, "NCHW"), "none") == ()
    assert changes_for(card(tmp_path, "NCHW"), "brightness, flip") == ("flip", "brightness")
