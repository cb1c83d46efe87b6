"""Text of a sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json


@dataclass(frozen=True)
class Segment:
    """A part of the text.

    Attributes:
        start_s, end_s: Its begin and end, in seconds from the sound's start.
        text: Words that are said.
        window_s: Begin of the window that was read, in seconds from the sound's start.
        log_probability: Mean log probability of the window's tokens.
        no_speech: Probability that nobody speaks in the window.
    """

    start_s: float
    end_s: float
    text: str
    tokens: tuple[int, ...] = ()
    window_s: float = 0.0
    log_probability: float = 0.0
    no_speech: float = 0.0

    def as_json(self) -> dict[str, Json]:
        return {"start_s": round(self.start_s, 2), "end_s": round(self.end_s, 2), "text": self.text}


@dataclass(frozen=True, eq=False, repr=False)
class Transcript(Prediction):
    """The text of a sound.

    Attributes:
        text: The whole text; "" if nothing is said.
        segments: Its parts, in order. Without timestamps, one for each window.
        language: Code of the language, e.g. ``en``; "" of a model that knows one language.
    """

    text: str
    segments: Sequence[Segment]
    language: str = ""

    def __str__(self) -> str:
        if not self.text:
            return "no speech"
        if len(self.segments) == 1:
            return self.text
        return "\n".join(f"{s.start_s:7.2f} to {s.end_s:7.2f} s  {s.text}" for s in self.segments)

    def as_json(self) -> dict[str, Json]:
        segments = [segment.as_json() for segment in self.segments]
        return {"text": self.text, "language": self.language, "segments": segments}
