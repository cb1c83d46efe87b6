"""A sound goes into the input as the card says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.errors import CardError, UsageError
from edgekit.processing import Card
from edgekit.processing.audio_preparation import AudioWindow, loudest, mono, mono_pieces
from edgekit.processing.card import parse_card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.processing import prepare
from tests.fixtures.sounds import KWS, audio, chirp


def card(**entry: Any) -> Card:
    return parse_card({"title": "ear", "inputs": {"x": audio(**entry)}})


def entry_of(made: Card) -> AudioInput:
    entry = made.sources()[0]
    assert isinstance(entry, AudioInput)
    return entry


def fed(sound: Any, rate: int | None = None, **entry: Any) -> list[float]:
    values: list[float] = prepare(card(**entry), sound, rate=rate)[0]["x"].ravel().tolist()
    return values


EIGHT = np.array([0.5, -0.25, 0, 0, 0.125, 0, 0, -0.5], np.float32)


@pytest.mark.parametrize(
    "sound",
    [
        EIGHT,
        EIGHT.astype(np.float64),
        (EIGHT * 32768).astype(np.int16),
        np.stack([EIGHT, EIGHT], axis=1),
        np.stack([2 * EIGHT, 0 * EIGHT], axis=1),
    ],
)
def test_samples_as_they_are(sound: Any) -> None:
    feeds, placed = prepare(card(), sound)
    assert feeds["x"].dtype == np.float32
    assert feeds["x"].tolist() == [EIGHT.tolist()]
    assert placed == AudioWindow(0.0, 8 / 16000)


def test_a_short_sound_is_followed_by_zeros() -> None:
    assert fed(EIGHT[:2]) == [0.5, -0.25, 0, 0, 0, 0, 0, 0]
    assert fed(EIGHT[:2], context=3) == [0, 0, 0, 0.5, -0.25, 0, 0, 0]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"full_scale": 32768.0}, [16384, -8192, 0, 0, 4096, 0, 0, -16384]),
        ({"full_scale": 32768.0, "dtype": "int16"}, [16384, -8192, 0, 0, 4096, 0, 0, -16384]),
        ({"full_scale": 128.0, "mean": -128.0, "dtype": "uint8"}, [192, 96, 128, 128, 144, 128, 128, 64]),
        ({"std": 0.5}, [1, -0.5, 0, 0, 0.25, 0, 0, -1]),
        ({"normalize": "max"}, [1, -0.5, 0, 0, 0.25, 0, 0, -1]),
    ],
)
def test_scales(entry: dict[str, Any], expected: list[float]) -> None:
    assert fed(EIGHT, **entry) == expected


def test_max_and_peak_differ_in_sign() -> None:
    assert fed(-EIGHT[:2], normalize="max")[:2] == [-2, 1]
    assert fed(-EIGHT[:2], normalize="peak")[:2] == [-1, 0.5]


@pytest.mark.parametrize("normalize", ["max", "peak", "mean-std"])
def test_silence_stays_silence(normalize: str) -> None:
    assert fed(np.zeros(8), normalize=normalize) == [0] * 8


def test_mean_and_variance_are_those_of_the_sound_without_the_zeros() -> None:
    found = fed(np.array([1.0, 0.0]), normalize="mean-std")
    np.testing.assert_allclose(found, [1, -1, 0, 0, 0, 0, 0, 0], atol=1e-6)


def test_integers_are_clipped() -> None:
    assert fed(np.ones(8), full_scale=32768.0, dtype="int16") == [32767] * 8


def test_features_in_both_layouts() -> None:
    first = prepare(card(shape=[1, 49, 10, 1], features=KWS, window=16000, normalize="max"), chirp())[0]["x"]
    other = prepare(
        card(shape=[1, 10, 49], features=KWS, window=16000, normalize="max", layout="FT"), chirp()
    )
    assert first[0, 0, 0, 0] == pytest.approx(-33.6639, abs=3e-3)
    np.testing.assert_array_equal(other[0]["x"][0], first[0, :, :, 0].T)


def test_another_rate() -> None:
    made = card(shape=[1, 8000], rate=8000)
    tone = np.cos(2 * np.pi * 440 * np.arange(16000) / 16000)
    found = prepare(made, tone, rate=16000)[0]["x"][0]
    np.testing.assert_allclose(found[500:-500], tone[::2][500:-500], atol=1e-4)


def test_the_loudest_window_in_steps_of_the_hop() -> None:
    entry = entry_of(card(hop=4))
    sound = np.zeros(40)
    sound[21] = 1.0
    assert np.flatnonzero(loudest(sound, entry)).tolist() == [5]  # it begins at 16
    assert loudest(sound[:3], entry).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("sound", "rate", "text"),
    [
        ([0.0], None, "a sound is a numpy array of floats or int16 [n], not a list"),
        (
            np.zeros(8, np.uint8),
            None,
            "a sound is floats (-1 to 1) or int16, [n] or [n, channels], not uint8 [8]",
        ),
        (
            np.zeros((0,)),
            None,
            "a sound is floats (-1 to 1) or int16, [n] or [n, channels], not float64 [0]",
        ),
        (np.array([np.nan]), None, "a sound has samples that are NaN or infinite"),
        (np.zeros(8), 0, "rate is 0; it must be a whole number of Hz from 1 to 768000"),
        (
            np.zeros(9),
            None,
            "x takes 8 samples at once (0.0005 s at 16000 Hz), not 9; session.listen(sound) goes through a "
            "longer one, window by window",
        ),
    ],
)
def test_what_is_no_sound(sound: Any, rate: int | None, text: str) -> None:
    with pytest.raises(UsageError) as error:
        prepare(card(), sound, rate=rate)
    assert str(error.value) == text


def test_an_image_has_no_rate() -> None:
    image = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    made = parse_card({"title": "eye", "inputs": {"x": image}})
    with pytest.raises(UsageError) as error:
        prepare(made, np.zeros((8, 8, 3), np.uint8), rate=16000)
    assert str(error.value) == "rate applies to sounds, and eye does not take sounds"


def test_two_sounds_are_no_input() -> None:
    made = parse_card({"title": "ears", "inputs": {"x": audio(), "y": audio()}})
    with pytest.raises(CardError) as error:
        prepare(made, EIGHT)
    assert str(error.value) == (
        "ears: a prediction needs one image, one sound or one text, in addition to constants and states; "
        "this card has x (audio), y (audio)"
    )


@pytest.mark.parametrize("rate", [None, 8000, 11025, 44100, 48000])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("size", [1, 65_600, 200_003])
def test_pieces_have_the_bits_of_the_whole(rate: int | None, channels: int, size: int) -> None:
    entry = entry_of(card(shape=[1, 400]))
    sound = np.random.default_rng(7).uniform(-1, 1, (size, channels)).astype(np.float32)
    sound = sound[:, 0] if channels == 1 else sound
    pieces = list(mono_pieces(sound, entry, rate))
    np.testing.assert_array_equal(np.concatenate(pieces), mono(sound, entry, rate))
    assert (len(pieces) > 2) is (size == 200_003)
