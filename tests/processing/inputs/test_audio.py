"""An audio input in a card: what it says, what follows from it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.errors import CardError
from edgekit.processing.card import parse_card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.sounds import KWS, audio

MEL = {"kind": "mel", "frame": 400, "hop": 160, "mels": 80}


def read(**entry: Any) -> AudioInput:
    found = parse_card({"title": "t", "inputs": {"x": audio(**entry)}}).inputs["x"]
    assert isinstance(found, AudioInput)
    return found


def test_samples_go_in_as_they_are_unless_the_card_says_more() -> None:
    assert read() == AudioInput("x", (1, 8), 16000, 8, 8)
    assert read(context=2) == AudioInput("x", (1, 8), 16000, 8, 6, 2)
    assert read(hop=4).hop == 4


@pytest.mark.parametrize(
    ("shape", "entry", "window"),
    [
        ([1, 49, 10, 1], {"features": KWS}, 15840),  # 480 + 48 x 320
        ([1, 98, 80], {"features": MEL}, 15920),
        ([1, 80, 98], {"features": MEL, "layout": "FT"}, 15920),
        ([1, 80, 3000], {"features": {**MEL, "n_fft": 400, "center": "reflect"}, "layout": "FT"}, 479840),
        ([1, 257, 3], {"features": {"kind": "spectrogram", "frame": 400, "hop": 160}, "layout": "FT"}, 720),
    ],
)
def test_a_window_follows_from_the_frames(shape: list[int], entry: dict[str, Any], window: int) -> None:
    assert read(shape=shape, **entry).window == window


def test_a_centred_last_frame_may_be_left_out() -> None:
    """30 s give 3001 frames around their middles, and Whisper takes 3000."""
    features = {**MEL, "n_fft": 400, "center": "reflect"}
    assert read(shape=[1, 80, 3000], features=features, layout="FT", window=480000).hop == 480000


@pytest.mark.parametrize("entry", [{}, {"context": 2}, {"shape": [1, 49, 10, 1], "features": KWS}])
def test_it_travels_as_json(entry: dict[str, Any]) -> None:
    card = parse_card({"title": "t", "inputs": {"x": audio(**entry)}})
    assert parse_card(card.as_json()) == card


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, (-1.0, 1.0)),
        ({"full_scale": 32768.0}, (-32768.0, 32768.0)),
        ({"full_scale": 32768.0, "dtype": "int16"}, (-32768.0, 32767.0)),
        ({"full_scale": 32768.0, "normalize": "peak"}, (-1.0, 1.0)),
        ({"normalize": "mean-std"}, None),
        ({"shape": [1, 49, 10, 1], "features": KWS}, None),
    ],
)
def test_ranges(entry: dict[str, Any], expected: tuple[float, float] | None) -> None:
    assert read(**entry).range == expected


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"rate": 0}, ".rate is 0; it must be from 1 to 768000"),
        ({"window": 9}, ".shape is [1, 8], but a window has 9 samples"),
        ({"hop": 9}, ".hop is 9; it must be at most a window, 8 samples"),
        ({"context": 2, "hop": 8}, ".hop is 8; with a context it must be window - context, 6"),
        (
            {"context": 8},
            ": a window has 8 samples and a context of 8; it must be at most 16777216, and its context "
            "shorter",
        ),
        (
            {"context": 2, "normalize": "peak"},
            ".normalize cannot be combined with a context",
        ),
        ({"std": 0}, ".std is 0; it must be above 0"),
        ({"full_scale": -1}, ".full_scale is -1; it must be above 0"),
        ({"layout": "TF"}, ".layout needs features; samples have no frames"),
        ({"features": "mel"}, ".features must be a table, not a text"),
        (
            {"shape": [1, 50, 10, 1], "features": KWS, "window": 16000},
            ".shape is [1, 50, 10, 1]; a window of 16000 samples gives 49 frames of 10 features (layout TF)",
        ),
        (
            {"shape": [1, 49, 10, 1], "features": KWS, "window": 16000, "layout": "FT"},
            ".shape is [1, 49, 10, 1]; a window of 16000 samples gives 10 features of 49 frames (layout FT)",
        ),
        (
            {"features": {"kind": "cepstrum"}},
            ".features.kind is 'cepstrum'; it must be one of spectrogram, mel, mfcc",
        ),
        (
            {"features": {"kind": "mel", "frame": 400, "hop": 160}},
            ".features has no mels; it must be a whole number",
        ),
        ({"features": {**MEL, "hop": 0}}, ".features.hop is 0; it must be from 1 to 16384"),
        ({"features": {**MEL, "n_fft": 256}}, ".features.n_fft is 256; it must hold a frame, 400 samples"),
        ({"features": {**MEL, "n_fft": 1 << 15}}, ".features.n_fft is 32768; it must be from 2 to 16384"),
        (
            {"features": {**MEL, "fmax": 8001}},
            ".features: the bands go from 0 to 8001 Hz; fmin must be below fmax, and that at most half of "
            "the rate, 8000",
        ),
        (
            {"features": {**MEL, "log": "ln"}},
            ".features.log needs an offset or a floor, since silence has no logarithm; e.g. 1e-6",
        ),
        ({"features": {**MEL, "floor": 1e-6}}, ".features.floor needs log, but log is 'none'"),
        ({"features": {**MEL, "dct": "htk"}}, ".features.dct needs kind = 'mfcc'"),
        (
            {"features": {"kind": "spectrogram", "frame": 4, "hop": 2, "mels": 4}},
            ".features.mels needs kind = 'mel' or 'mfcc'",
        ),
        (
            {"features": {**KWS, "coefficients": 41}},
            ".features.coefficients is 41; the maximum for 40 bands",
        ),
        (
            {"features": {k: v for k, v in KWS.items() if k not in ("log", "offset")}},
            ".features.log is 'none'; MFCC need logarithms: ln, log10 or db",
        ),
        (
            {"features": {**MEL, "preemphasis": 1.5}},
            ".features.preemphasis is 1.5; it must be from 0 to below 1",
        ),
        ({"features": {**MEL, "fmin": -1}}, ".features.fmin is -1; it must not be below 0"),
    ],
)
def test_what_is_refused(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(CardError) as error:
        read(**entry)
    assert str(error.value) == f"card: inputs.x{text}"


def test_its_dtype_and_shape_must_be_the_models() -> None:
    table = {"title": "t", "inputs": {"x": audio()}}
    with pytest.raises(CardError) as error:
        parse_card(table, [TensorSpec("x", "float16", (1, 8))], [])
    assert str(error.value) == "t: input x is float32 in the card but float16 in the model"
