"""The short form of ``python -m tests.native.sounds``, and refusals of cards of sounds."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EdgeKitError
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from edgekit.tensor_spec import TensorSpec
from tests.native.library import (
    NativeBundle,
    NativePreparation,
    NativeSession,
    RefusedError,
    link_program,
    ort_library,
    sound,
)
from tests.native.models import colours_bundle
from tests.native.sound_models import TONE_CARD, smoothed_bundle, tones_bundle
from tests.native.sounds import (
    PROGRAM,
    SoundCase,
    SoundTotals,
    compare_sounds,
    judge_sound,
    make_sound,
    write_sound,
    write_sound_bundle,
)

pytestmark = pytest.mark.needs_compiler
CASES = 150


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link_program(PROGRAM, tmp_path_factory.mktemp("run") / "run_sounds")


def is_long_and_real(case: SoundCase) -> bool:
    return (
        "features" in case.inputs["x"] and case.inputs["x"]["dtype"] == "float32" and len(case.sound) > 9000
    )


def test_cards_and_sounds_of_both_are_equal(program: Path, tmp_path: Path) -> None:
    totals = SoundTotals()
    assert compare_sounds(range(CASES), program, tmp_path, totals) == []
    assert totals.windows > 3000
    case = next(one for one in map(make_sound, range(CASES)) if is_long_and_real(one))
    write_sound(tmp_path, 0, case._replace(sound=np.ascontiguousarray(case.sound[::-1])))
    subprocess.run([program, tmp_path, "1"], check=True, timeout=100)
    with pytest.raises(AssertionError):
        judge_sound(case, (tmp_path / "0.windows").read_bytes(), totals)


@pytest.mark.parametrize(("n_fft", "frames"), [(16381, 40), (2 * 8179, 40), (3 * 4099, 80), (16129, 80)])
def test_a_transform_of_a_large_prime_factor_ends(
    program: Path, tmp_path: Path, n_fft: int, frames: int
) -> None:
    """A sum of products takes minutes for such a window; any fast algorithm takes milliseconds."""
    features = {"kind": "spectrogram", "frame": n_fft, "n_fft": n_fft, "hop": 1}
    entry = {"kind": "audio", "rate": 16000, "shape": [1, frames, n_fft // 2 + 1], "features": features}
    heard = np.random.default_rng(n_fft).normal(0, 0.2, n_fft + frames - 1).astype(np.float32)
    case = SoundCase({"x": entry}, 16000, len(heard), True, heard)
    write_sound(tmp_path, 0, case)
    subprocess.run([program, tmp_path, "1"], check=True, timeout=100)
    totals = SoundTotals()
    judge_sound(case, (tmp_path / "0.windows").read_bytes(), totals)
    assert totals.windows == 1


AUDIO: dict[str, Any] = {"kind": "audio", "shape": [1, 400], "rate": 8000}
MEL: dict[str, Any] = {"kind": "mel", "frame": 200, "hop": 100, "mels": 4, "log": "ln", "offset": 1e-6}
WITH_MEL: dict[str, Any] = {**AUDIO, "shape": [1, 3, 4], "features": MEL}
BROKEN: dict[str, dict[str, Any]] = {
    "unknown key": {**AUDIO, "bits": 16},
    "rate": {**AUDIO, "rate": 0},
    "rate beyond int64": {**AUDIO, "rate": 10**30},
    "normalize": {**AUDIO, "normalize": "loud"},
    "full scale": {**AUDIO, "full_scale": 0},
    "std": {**AUDIO, "std": -1.5},
    "layout of samples": {**AUDIO, "layout": "TF"},
    "window": {**AUDIO, "window": 399},
    "too long": {**AUDIO, "shape": [1, 1 << 25]},
    "context": {**AUDIO, "context": 400},
    "hop": {**AUDIO, "hop": 401},
    "hop with a context": {**AUDIO, "context": 10, "hop": 100},
    "normalized context": {**AUDIO, "context": 10, "normalize": "peak"},
    "shape of features": {**WITH_MEL, "window": 500},
    "shape of features, turned": {**WITH_MEL, "window": 500, "layout": "FT"},
    "features": {**AUDIO, "features": 1},
    "kind of features": {**WITH_MEL, "features": {**MEL, "kind": "cepstrum"}},
    "mels of a spectrogram": {**WITH_MEL, "features": {**MEL, "kind": "spectrogram"}},
    "no frame": {**WITH_MEL, "features": {key: MEL[key] for key in MEL if key != "frame"}},
    "short transform": {**WITH_MEL, "features": {**MEL, "n_fft": 128}},
    "negative floor": {**WITH_MEL, "features": {**MEL, "floor": -1}},
    "preemphasis": {**WITH_MEL, "features": {**MEL, "preemphasis": 1}},
    "bands": {**WITH_MEL, "features": {**MEL, "fmax": 5000}},
    "coefficients": {**WITH_MEL, "features": {**MEL, "kind": "mfcc", "coefficients": 5}},
    "no logarithm": {**WITH_MEL, "features": {**MEL, "kind": "mfcc", "coefficients": 2, "log": "none"}},
    "logarithm of zero": {**WITH_MEL, "features": {**MEL, "offset": 0}},
    "range without a logarithm": {
        **WITH_MEL,
        "features": {"kind": "mel", "frame": 200, "hop": 100, "mels": 4, "range": 8},
    },
    "dtype": {**AUDIO, "dtype": "int32"},
}


def refusal_of_python(inputs: Mapping[str, Any]) -> str:
    """Return the text with which Python refuses a card, or ""."""
    specs = [
        TensorSpec(name, row.get("dtype", "float32"), tuple(row["shape"])) for name, row in inputs.items()
    ]
    try:
        parse_card({"title": "sound", "inputs": dict(inputs)}, specs, [TensorSpec("y", "float32", (1, 3))])
    except EdgeKitError as problem:
        return str(problem)
    return ""


def refusal_of_library(program: Path, inputs: Mapping[str, Any], folder: Path) -> str:
    """Return the text with which the library refuses to listen, or ""."""
    write_sound_bundle(folder / "0.edgekit", inputs)
    (folder / "0.sound").write_bytes(np.array([8000, 100, 0], np.int32).tobytes())
    subprocess.run([program, folder, "1"], check=True, timeout=100)
    refused = folder / "0.refused"
    return refused.read_text("utf-8") if refused.exists() else ""


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_card_is_refused_with_python_s_text(program: Path, tmp_path: Path, broken: str) -> None:
    inputs = {"x": BROKEN[broken]}
    refusal = refusal_of_python(inputs)
    assert refusal
    assert refusal_of_library(program, inputs, tmp_path) == refusal


TENSORS: dict[str, dict[str, Any]] = {
    "value and range": {"kind": "tensor", "shape": [1], "value": 1, "dtype": "int8", "range": [0, 1]},
    "dtype alone": {"kind": "tensor", "shape": [1], "dtype": "int8"},
    "too large": {"kind": "tensor", "shape": [1], "value": 300, "dtype": "int8"},
    "a part": {"kind": "tensor", "shape": [2], "value": [0.5, 1], "dtype": "int8"},
    "too many": {"kind": "tensor", "shape": [2], "value": [1, 2, 3], "dtype": "int8"},
    "range": {"kind": "tensor", "shape": [2], "range": [2, 1]},
}


@pytest.mark.parametrize("tensor", TENSORS)
def test_a_broken_constant_is_refused_with_python_s_text(program: Path, tmp_path: Path, tensor: str) -> None:
    inputs = {"x": AUDIO, "gain": TENSORS[tensor]}
    refusal = refusal_of_python(inputs)
    assert refusal
    assert refusal_of_library(program, inputs, tmp_path) == refusal


def test_what_is_not_fed_is_refused(program: Path, tmp_path: Path) -> None:
    inputs = {"x": AUDIO, "gain": {"kind": "tensor", "shape": [1]}}
    assert refusal_of_library(program, inputs, tmp_path) == (
        "card: inputs.gain is an array without a value; pass it to edgekit_run of libedgekit yourself"
    )
    two = {"x": AUDIO, "y": AUDIO}
    assert "libedgekit prepares one image or one sound, beside" in refusal_of_library(program, two, tmp_path)


def test_a_rate_of_the_device_is_checked(program: Path, tmp_path: Path) -> None:
    write_sound_bundle(tmp_path / "0.edgekit", {"x": AUDIO})
    (tmp_path / "0.sound").write_bytes(np.array([0, 100, 0], np.int32).tobytes())
    subprocess.run([program, tmp_path, "1"], check=True, timeout=100)
    assert (
        tmp_path / "0.refused"
    ).read_text() == "rate is 0; it must be a whole number of Hz from 1 to 768000"


def test_an_input_of_another_kind_is_refused(tmp_path: Path) -> None:
    with NativeBundle(tones_bundle().save(tmp_path / "t.edgekit")) as bundle:
        with pytest.raises(RefusedError, match=r"^Tones takes a sound: its input bands is of kind \w+_SOUND"):
            bundle.prepare(np.zeros((4, 4, 3), np.uint8), "rgb")
        found = bundle.decode({"scores": np.array([[0.0, 2.0, 1.0]], np.float32)}, None)
    assert (found.kind, found.labels) == ("classify", ["middle", "high", "low"])
    with (
        NativeBundle(colours_bundle().save(tmp_path / "c.edgekit")) as bundle,
        NativePreparation(bundle) as preparation,
    ):
        for entry in (sound(np.zeros(10, np.float32), 8000), None):
            with pytest.raises(RefusedError, match=r"^Colours takes a picture: its input image is of kind"):
                preparation.prepare(entry)


def test_a_sound_keeps_its_rate_and_ends_once(tmp_path: Path) -> None:
    samples = np.zeros(900, np.float32)
    with (
        NativeBundle(tones_bundle().save(tmp_path / "t.edgekit")) as bundle,
        NativePreparation(bundle) as preparation,
    ):
        with pytest.raises(RefusedError, match=r"^nothing was prepared; call edgekit_prepare before"):
            preparation.carry({"after": np.zeros((1, 3), np.float32)})
        assert preparation.prepare(None).count == 0
        preparation.prepare(sound(samples, 8000))
        with pytest.raises(RefusedError, match=r"^rate is 44100 Hz, but this sound began with 8000; a sound"):
            preparation.prepare(sound(samples, 44100))
        assert preparation.prepare(sound(samples, 8000, ends=True)).count == 3
        with pytest.raises(RefusedError, match=r"^the sound has ended; its samples cannot go on\."):
            preparation.prepare(sound(samples, 8000))
        with pytest.raises(RefusedError, match=r"^output after is missing, which is the next before$"):
            preparation.carry({"scores": np.zeros((1, 3), np.float32)})
        with pytest.raises(RefusedError, match=r"^output after has another size or dtype than input before"):
            preparation.carry({"after": np.zeros((1, 2), np.float32)})
        assert preparation.prepare(sound(samples, 44100, begins=True)).count == 0
        broken = sound(samples, 8000, begins=True)
        broken.values = None
        with pytest.raises(RefusedError, match=r"^values is NULL; pass the pixels or samples$"):
            preparation.prepare(broken)
        with pytest.raises(RefusedError, match=r"^a sound has samples that are NaN or infinite$"):
            preparation.prepare(sound(np.full(9, np.nan, np.float32), 8000, begins=True))


@pytest.mark.needs_ort
def test_a_session_hears_what_python_s_hears(tmp_path: Path) -> None:
    """The model has a state and a constant beside the sound, which comes at another rate and in pieces."""
    ort = ort_library()
    if not ort:
        pytest.skip("this wheel of onnxruntime has no libonnxruntime.so")
    path = tones_bundle().save(tmp_path / "t.edgekit")
    heard = np.random.default_rng(0).normal(0, 0.2, 30_000).astype(np.float32)
    pieces = np.split(heard, [100, 9000, 9001, 22_000])
    with (
        NativeBundle(path) as bundle,
        NativeSession(bundle, ort) as session,
        Session(path, threads=1) as python,
    ):
        for _ in range(2):  # a second sound begins from the first state
            found = []
            for i, piece in enumerate(pieces):
                ends = i == len(pieces) - 1
                found += session.listen(np.ascontiguousarray(piece), 11_025, begins=i == 0, ends=ends)
            expected = list(python.listen(heard, rate=11_025))
            assert len(found) == len(expected) > 20
            for window, one in zip(found, expected, strict=True):
                assert window.span_s == (one.start_s, one.end_s)
                assert window.labels == [item.label for item in one.prediction]
                assert window.scores == pytest.approx(one.prediction.scores, abs=1e-6)


@pytest.mark.needs_ort
def test_a_picture_beside_a_constant_and_a_state_is_python_s(tmp_path: Path) -> None:
    ort = ort_library()
    if not ort:
        pytest.skip("this wheel of onnxruntime has no libonnxruntime.so")
    path = smoothed_bundle().save(tmp_path / "s.edgekit")
    frames = np.random.default_rng(2).integers(0, 256, (4, 40, 30, 3)).astype(np.uint8)
    with (
        NativeBundle(path) as bundle,
        NativeSession(bundle, ort) as session,
        Session(path, threads=1) as python,
    ):
        for frame in frames:
            expected = python.predict(frame)
            found = session.predict(frame, "rgb")
            assert found.labels == [item.label for item in expected]
            assert found.scores == pytest.approx(expected.scores, rel=1e-6)
        assert session.predict(frames[0], "rgb").scores[0] != session.predict(frames[0], "rgb").scores[0]


def test_states_are_outputs_of_the_model(tmp_path: Path) -> None:
    bundle = tones_bundle({**TONE_CARD, "states": {"before": "missing"}})
    with NativeBundle(bundle.save(tmp_path / "t.edgekit")) as opened, pytest.raises(RefusedError) as refused:
        opened.decode({"scores": np.zeros((1, 3), np.float32)}, None)
    with pytest.raises(EdgeKitError) as error:
        parse_card(bundle.card or {}, bundle.inputs, bundle.outputs)
    assert str(refused.value) == str(error.value)
