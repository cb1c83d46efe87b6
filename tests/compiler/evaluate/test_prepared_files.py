"""Sounds as samples: read through the card, their labels, and random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.prepared_files import text_placements
from edgekit.compiler.evaluate.samples import FileSamples, load_samples, read_sample
from edgekit.errors import SampleError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.sounds import KWS, audio, chirp, wav
from tests.fixtures.texts import TOKENIZER, table, text_card

SPECS = (
    TensorSpec("x", "float32", (1, 8)),
    TensorSpec("h", "float32", (1, 2)),
    TensorSpec("sr", "int64", ()),
)


def card(**entry: Any) -> Card:
    inputs = {
        "x": audio(**entry),
        "h": {"kind": "tensor", "shape": [1, 2]},
        "sr": {"kind": "tensor", "shape": [], "value": 16000, "dtype": "int64"},
    }
    task = {"kind": "classify", "decode": "logits", "outputs": {"scores": "y"}}
    return parse_card({"title": "ear", "inputs": inputs, "task": task, "states": {"h": "hn"}})


def write(path: Path, samples: list[int], rate: int = 16000) -> Path:
    path.write_bytes(wav(np.array(samples, "<i2").tobytes(), rate=rate))
    return path


def test_a_sound_is_a_sample_with_constants_and_initial_states(tmp_path: Path) -> None:
    sample = read_sample(write(tmp_path / "a.wav", [1 << 14] * 3), SPECS, card())
    assert sample["x"].tolist() == [[0.5, 0.5, 0.5, 0, 0, 0, 0, 0]]
    assert sample["h"].tolist() == [[0, 0]]
    assert sample["sr"].shape == ()
    assert int(sample["sr"]) == 16000


def test_of_a_long_sound_the_loudest_window(tmp_path: Path) -> None:
    sample = read_sample(write(tmp_path / "a.wav", [0] * 30 + [1 << 14] * 8 + [0] * 9), SPECS, card(hop=2))
    assert sample["x"].tolist() == [[0.5] * 8]


def test_a_folder_of_sounds_with_labels(tmp_path: Path) -> None:
    for name in ("a.wav", "b.wav"):
        write(tmp_path / name, [1, 2, 3])
    (tmp_path / "labels.csv").write_text("file,class_index\nb.wav,1\na.wav,0\n", "utf-8")
    samples = load_samples(tmp_path, SPECS, card())
    assert samples.origin == "2 files"
    assert isinstance(samples.arrays, FileSamples)
    labels = find_labels(samples.arrays.paths, card())
    assert labels is not None
    assert [label.index for label in labels] == [0, 1]


def test_what_does_not_fit_the_card(tmp_path: Path) -> None:
    sound = write(tmp_path / "a.wav", [1])
    with pytest.raises(SampleError) as error:
        read_sample(sound, SPECS, None)
    assert str(error.value) == (
        f"{sound} is a sound, which needs a card to become an input; add --card: `edgekit model "
        "card MODEL -o card.toml` drafts one, in Python edgekit.draft_card"
    )
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(SampleError) as error:
        read_sample(tmp_path / "a.png", SPECS, card())
    assert str(error.value) == f"{tmp_path / 'a.png'} is a picture, but ear takes a sound: .wav"


def test_random_sounds_are_sounds_and_constants_constant() -> None:
    """Features of noise: uniform numbers would be no features."""
    specs = (TensorSpec("x", "float32", (1, 49, 10, 1)), *SPECS[1:])
    made = card(shape=[1, 49, 10, 1], features=KWS)
    first, second = load_samples(None, specs, made).arrays
    assert int(first["sr"]) == int(second["sr"]) == 16000
    assert first["x"][0, :, 0].min() > 5  # the coefficient of loudness
    assert not np.array_equal(first["x"], second["x"])
    assert not np.array_equal(first["h"], second["h"])
    again = load_samples(None, specs, made).arrays[0]
    np.testing.assert_array_equal(first["x"], again["x"])


def test_a_sound_at_another_rate_is_resampled(tmp_path: Path) -> None:
    specs = (TensorSpec("x", "float32", (1, 8000)), *SPECS[1:])
    made = card(shape=[1, 8000], rate=8000)
    sample = read_sample(write(tmp_path / "a.wav", chirp().tolist()), specs, made)
    np.testing.assert_allclose(sample["x"][0, 200:3800], (chirp() / 32768)[400:7600:2], atol=1e-4)


@pytest.mark.parametrize("parts", [("ids", "mask"), ("ids",)])
def test_what_becomes_of_padding_is_not_compared(parts: tuple[str, ...]) -> None:
    task = {"kind": "embed", "decode": "mean-pooling", "outputs": {"tokens": "y"}}
    inputs = {name: entry for name, entry in table()["inputs"].items() if name in parts}
    made = parse_card(
        {"title": "t", "inputs": inputs, "task": task}, files=lambda name: TOKENIZER.read_bytes()
    )
    sample = {"ids": np.array([[2, 9, 3, 0, 0, 0, 0, 0]]), "mask": np.array([[1, 1, 1, 0, 0, 0, 0, 0]])}
    tokens = np.random.default_rng(0).normal(size=(1, 8, 4)).astype(np.float32)
    other = tokens.copy()
    other[0, 3:] = -1  # the padding's
    placed = text_placements(made, [sample])
    judge = Evaluator(made, [{"y": tokens}], placed=placed)
    assert judge.evaluate([{"y": other}]).score.value == pytest.approx(1)
    other[0, 1] *= -1
    assert judge.evaluate([{"y": other}]).score.value < 0.9
    assert text_placements(card(), [sample]) is None


def test_a_sample_is_one_text(tmp_path: Path) -> None:
    specs = [TensorSpec(name, "int64", (1, 8)) for name in ("ids", "mask")]
    path = tmp_path / "a.txt"
    path.write_text("good\nbad\n", "utf-8")
    with pytest.raises(SampleError) as error:
        read_sample(path, specs, text_card())
    assert str(error.value) == f"{path} has 2 texts, one per line; a sample must be one text"
