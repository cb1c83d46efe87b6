"""Speech segments from probabilities, checked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.processing.predictions.voice_activity import VoiceActivity
from edgekit.processing.predictions.windows import WindowPrediction
from edgekit.processing.processing import decode, decode_windows
from tests.fixtures.sounds import audio


def card(**options: Any) -> Card:
    task = {"kind": "voice-activity", "decode": "probability", "outputs": {"probability": "p"}, **options}
    return parse_card({"title": "vad", "inputs": {"x": audio()}, "task": task})


PLAIN = {"min_speech_s": 0.0, "min_silence_s": 0.0, "pad_s": 0.0}


def found(probabilities: list[float], window_s: float = 0.1, **options: Any) -> list[tuple[float, float]]:
    windows = [
        WindowPrediction(i * window_s, (i + 1) * window_s, VoiceActivity(p))
        for i, p in enumerate(probabilities)
    ]
    segments = decode_windows(card(), windows, **{**PLAIN, **options})
    return [(round(each.start_s, 6), round(each.end_s, 6)) for each in segments]


@pytest.mark.parametrize(
    ("probabilities", "options", "expected"),
    [
        ([], {}, []),
        ([0.1, 0.2], {}, []),
        ([0.1, 0.9, 0.9, 0.1], {}, [(0.1, 0.3)]),
        ([0.9, 0.9], {}, [(0.0, 0.2)]),  # it lasts to the end
        ([0.9, 0.4, 0.4, 0.1], {}, [(0.0, 0.3)]),  # between the thresholds it goes on
        ([0.9, 0.4, 0.1], {"hysteresis": 0.05}, [(0.0, 0.1)]),
        ([0.9, 0.1, 0.9, 0.1, 0.1], {"min_silence_s": 0.1}, [(0.0, 0.3)]),  # the short silence is none
        ([0.9, 0.1, 0.4, 0.1, 0.9], {"min_silence_s": 0.2}, [(0.0, 0.1), (0.4, 0.5)]),
        ([0.9, 0.1, 0.9, 0.9, 0.9], {"min_speech_s": 0.2}, [(0.2, 0.5)]),
        ([0.0, 0.0, 0.9, 0.0, 0.0], {"pad_s": 0.05}, [(0.15, 0.35)]),
        ([0.9, 0.0, 0.9, 0.9], {"pad_s": 0.3}, [(0.0, 0.15), (0.15, 0.4)]),  # they meet in the middle
        ([0.7, 0.0, 0.9], {"threshold": 0.8}, [(0.2, 0.3)]),
        ([0.015, 0.005], {"threshold": 0.012}, [(0.0, 0.1)]),  # it ends below 0.01 at least
    ],
)
def test_segments(
    probabilities: list[float], options: dict[str, Any], expected: list[tuple[float, float]]
) -> None:
    assert found(probabilities, **options) == expected


def test_one_window() -> None:
    activity = decode(card(threshold=0.25), {"p": np.array([[0.3]], np.float32)}, None)
    assert activity.is_speech
    assert str(activity) == "speech  0.300"
    assert activity.as_json() == {"speech": True, "probability": 0.3}
    assert not decode(card(), {"p": np.array([[0.3]], np.float32)}, None).is_speech


def test_the_whole_for_people_and_for_programs() -> None:
    windows = [WindowPrediction(0.0, 0.5, VoiceActivity(0.9)), WindowPrediction(0.5, 1.0, VoiceActivity(0.1))]
    segments = decode_windows(card(), windows, min_silence_s=0.0)
    assert str(segments) == "speech    0.00 to   0.53 s"
    assert segments.as_json() == [{"start_s": 0.0, "end_s": 0.53}]
    assert str(decode_windows(card(), [])) == "no speech"


def test_more_than_one_probability() -> None:
    with pytest.raises(EngineError) as error:
        decode(card(), {"p": np.zeros((1, 2), np.float32)}, None)
    assert str(error.value) == "the card decodes one probability per window, but the model returned [1, 2]"


def test_options_out_of_bounds() -> None:
    with pytest.raises(UsageError) as error:
        decode_windows(card(), [], threshold=2)
    assert (
        str(error.value)
        == "probability does not accept these options: threshold is 2; it must be from 0 to 1"
    )
