"""Voice activity: whether somebody speaks in a window of a recording, and from when to when in all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.errors import EngineError
from edgekit.processing.predictions.voice_activity import SpeechSegment, SpeechSegments, VoiceActivity
from edgekit.processing.predictions.windows import WindowPrediction
from edgekit.processing.task_decoder import Decoder, Outputs, within

LEAVE_LEAST = 0.01
LONG_S = 3600.0
TOLERANCE_S = 1e-9
"""Of sums of window lengths in binary fractions."""


@dataclass(frozen=True)
class VoiceActivityOptions:
    """Options for joining windows into speech segments, with the defaults of silero-vad.

    Attributes:
        threshold: Speech starts in a window with at least this probability.
        hysteresis: Speech ends below ``threshold - hysteresis``; this limit is at least 0.01.
        min_speech_s: Minimum length of a speech segment in seconds; shorter ones are dropped.
        min_silence_s: Minimum length of a silence in seconds; shorter ones do not end a segment.
        pad_s: Seconds added at both ends of a segment. Segments that would overlap meet in the middle.
    """

    threshold: float = 0.5
    hysteresis: float = 0.15
    min_speech_s: float = 0.25
    min_silence_s: float = 0.1
    pad_s: float = 0.03

    def __post_init__(self) -> None:
        within(0, 1, threshold=self.threshold, hysteresis=self.hysteresis)
        within(0, LONG_S, min_speech_s=self.min_speech_s, min_silence_s=self.min_silence_s, pad_s=self.pad_s)


def decode_probability(
    outputs: Outputs, options: VoiceActivityOptions, placed: object, labels: Sequence[str] = ()
) -> VoiceActivity:
    """``probability``: one number, 0 to 1."""
    probability = outputs["probability"]
    if probability.size != 1:
        raise EngineError(
            f"the card decodes one probability per window, but the model returned {list(probability.shape)}"
        )
    return VoiceActivity(float(probability.reshape(())), options.threshold)


def find_speech(windows: Sequence[WindowPrediction], options: VoiceActivityOptions) -> SpeechSegments:
    """Compute the speech segments of a whole recording by the rules of silero-vad's
    ``get_speech_timestamps``.

    Speech begins with a window at the threshold. It ends where windows below the lower threshold begin, once
    they last ``min_silence_s`` with no window at the threshold among them.
    """
    leave = max(options.threshold - options.hysteresis, LEAVE_LEAST)
    spans: list[tuple[float, float]] = []
    begun_s: float | None = None
    silent_s: float | None = None
    for window in windows:
        probability = window.prediction.probability
        if probability >= options.threshold:
            silent_s = None
            begun_s = window.start_s if begun_s is None else begun_s
        elif probability < leave and begun_s is not None:
            silent_s = window.start_s if silent_s is None else silent_s
            if window.start_s - silent_s >= options.min_silence_s - TOLERANCE_S:
                spans.append((begun_s, silent_s))
                begun_s = silent_s = None
    end_s = windows[-1].end_s if windows else 0.0
    if begun_s is not None:
        spans.append((begun_s, end_s))
    long = [(a, b) for a, b in spans if b - a > options.min_speech_s + TOLERANCE_S]
    return SpeechSegments([SpeechSegment(a, b) for a, b in _padded(long, options.pad_s, end_s)])


def _padded(spans: Sequence[tuple[float, float]], pad_s: float, end_s: float) -> list[tuple[float, float]]:
    starts, ends = [a for a, _ in spans], [b for _, b in spans]
    before = [0.0, *ends[:-1]]
    after = [*starts[1:], end_s]
    padded = []
    for i, (start, end) in enumerate(spans):
        first, last = i == 0, i == len(spans) - 1
        room_before = start - before[i] if first else (start - before[i]) / 2
        room_after = after[i] - end if last else (after[i] - end) / 2
        padded.append((start - min(pad_s, room_before), end + min(pad_s, room_after)))
    return padded


DECODERS: Mapping[str, Decoder] = {
    "probability": Decoder(
        VoiceActivityOptions, decode_probability, ("probability",), over_windows=find_speech
    ),
}
