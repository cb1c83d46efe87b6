"""Fidelity of voice activity: decisions at the threshold."""

from __future__ import annotations

from edgekit.processing.predictions.voice_activity import VoiceActivity
from edgekit.tasks.voice_activity.metric import decision_agreement


def test_windows_on_the_same_side_of_the_threshold_agree() -> None:
    reference = [VoiceActivity(p) for p in (0.9, 0.6, 0.4, 0.1)]
    assert decision_agreement(reference, reference) == 1
    assert decision_agreement(reference, [VoiceActivity(p) for p in (0.5, 0.7, 0.5, 0.0)]) == 0.75
    assert decision_agreement(reference, [VoiceActivity(1 - each.probability) for each in reference]) == 0
