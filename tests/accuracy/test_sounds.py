"""Real networks on sounds: the states of a voice detector, and the features of a keyword spotter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import edgekit
from edgekit.processing import load_card
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.sounds import chirp

pytestmark = [pytest.mark.needs_shared, pytest.mark.needs_ort]
CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"


def bundle(shared: Path, name: str, target: str = "ort") -> edgekit.Bundle:
    return edgekit.build(
        shared / "models" / f"{name}.onnx", targets=[target], card=load_card(CARDS / f"{name}.toml")
    )


def hum() -> Array:
    """float32: a second of a chirp, with noise and a pause in it; something between speech and none."""
    rng = np.random.default_rng(0)
    sound = chirp() / 32768 * (1 + np.sin(np.arange(16000) / 500)) / 2 + rng.normal(0, 0.01, 16000)
    sound[6000:9000] = 0
    found: Array = sound.astype(np.float32)
    return found


def expected_probabilities(shared: Path, sound: Array) -> list[float]:
    """ONNX Runtime by hand: 64 samples of context, 512 new ones, and the state of the run before."""
    model = onnxruntime.InferenceSession(shared / "models" / "silero_vad.onnx")
    state, context, found = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), []
    for start in range(0, len(sound), 512):
        piece = np.zeros(512, np.float32)
        piece[: len(sound) - start] = sound[start : start + 512]
        window = np.concatenate([context, piece])[None]
        output, state = model.run(None, {"input": window, "state": state, "sr": np.array(16000)})
        context = piece[-64:]
        found.append(float(output[0, 0]))
    return found


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_16k_sequence"])
def test_a_voice_detector_goes_on_from_window_to_window(shared: Path, name: str) -> None:
    expected = expected_probabilities(shared, hum())
    assert max(expected) - min(expected) > 0.01
    with Session(bundle(shared, name)) as session:
        listened = [window.prediction.probability for window in session.listen(hum())]
        predicted = [session.predict(hum()[i : i + 512]).probability for i in range(0, 16000, 512)]
    np.testing.assert_allclose(listened, expected, atol=1e-4)
    assert predicted == listened


@pytest.mark.needs_tflite
def test_the_same_on_another_engine(shared: Path) -> None:
    with Session(bundle(shared, "silero_vad", "tflite")) as session:
        found = [window.prediction.probability for window in session.listen(hum())]
    np.testing.assert_allclose(found, expected_probabilities(shared, hum()), atol=1e-3)


def test_a_keyword_spotter_hears_silence_and_noise(shared: Path) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.001, 16000).astype(np.float32)
    with Session(bundle(shared, "kws_ref_model_float32")) as session:
        assert session.predict(noise)[0].label == "silence"
        windows = session.listen(np.concatenate([noise, noise])).answer()
    assert [round(window.start_s, 3) for window in windows] == [0, 0.5, 1]
    assert {window.prediction[0].label for window in windows} == {"silence"}
