"""Speech in a live sound, by a real model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session
from edgekit.runtime.streaming.transcriber import ModelDetector
from tests.fixtures.whisper_folders import speech

CARDS = Path(__file__).resolve().parents[3] / "samples" / "cards"


@pytest.mark.needs_ort
@pytest.mark.needs_shared
def test_silero_decides_as_in_windows(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "vad.edgekit"
    model = shared / "models" / "silero_vad.onnx"
    edgekit.build(model, targets=["ort"], precision="fp32", card=CARDS / "silero_vad.toml").save(path)
    noise = np.random.default_rng(0).standard_normal(16000) * 1e-3
    sound = np.concatenate([noise, speech(2.0), noise])
    sound = sound[: len(sound) - len(sound) % 512]
    with Session(path, threads=1) as session:
        probabilities = [window.prediction.probability for window in session.listen(sound)]
        expected, speaks = [], False
        for probability in probabilities:
            speaks = probability >= (0.35 if speaks else 0.5)
            expected.append(speaks)
        detector = ModelDetector(session, 16000)
        assert detector.hop == 512
        found = [detector.is_speech(sound[at : at + 512]) for at in range(0, len(sound), 512)]
    assert found == expected
    assert max(probabilities) - min(probabilities) > 0.01
