"""Speech in a recording: its probability in one window, and its segments in the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json


@dataclass(frozen=True, repr=False)
class VoiceActivity(Prediction):
    """Voice activity in one window.

    Attributes:
        probability: Probability of speech, 0 to 1.
        threshold: Minimum probability of speech.
    """

    probability: float
    threshold: float = 0.5

    @property
    def is_speech(self) -> bool:
        return self.probability >= self.threshold

    def __str__(self) -> str:
        return f"{'speech' if self.is_speech else 'no speech'}  {self.probability:.3f}"

    def as_json(self) -> dict[str, Json]:
        return {"speech": self.is_speech, "probability": round(self.probability, 6)}


@dataclass(frozen=True)
class SpeechSegment:
    """A part of a recording in which somebody speaks, in seconds from its begin."""

    start_s: float
    end_s: float


@dataclass(frozen=True, repr=False)
class SpeechSegments(Prediction):
    """All parts of a recording in which somebody speaks, in order."""

    segments: Sequence[SpeechSegment]

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, index: int) -> SpeechSegment:
        return self.segments[index]

    def __iter__(self) -> Iterator[SpeechSegment]:
        return iter(self.segments)

    def __str__(self) -> str:
        lines = (f"speech  {span.start_s:6.2f} to {span.end_s:6.2f} s" for span in self.segments)
        return "\n".join(lines) or "no speech"

    def as_json(self) -> list[dict[str, Json]]:
        return [{"start_s": round(span.start_s, 4), "end_s": round(span.end_s, 4)} for span in self.segments]
