"""Responses with a transcript, in the API's forms: JSON, text, subtitles, or server-sent events."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any

from edgekit.serve.openai.text_responses import JSON, event, json_bytes

if TYPE_CHECKING:
    from edgekit.processing.predictions.transcribe import Segment, Transcript
    from edgekit.serve.openai.transcriptions import TranscriptionRequest

TEXT = b"text/plain; charset=utf-8"
FRAMES_A_SECOND = 100
"""Unit of ``seek`` in the API."""


class TranscriptWriter:
    """Writer of one response."""

    def __init__(self, request: TranscriptionRequest) -> None:
        self._form, self._seconds = request.form, request.seconds
        self._task = "translate" if request.options.get("translate") else "transcribe"

    def whole(self, result: Transcript) -> tuple[bytes, bytes]:
        """Return the content type and the body of a response that is not streamed."""
        if self._form in ("text", "srt", "vtt"):
            text = result.text + "\n" if self._form == "text" else subtitles(result, self._form == "vtt")
            return TEXT, text.encode()
        response: dict[str, Any] = {"text": result.text}
        if self._form == "verbose_json":
            segments = [_segment(number, segment) for number, segment in enumerate(result.segments)]
            about = {"task": self._task, "language": result.language, "duration": self._seconds}
            response = {**about, **response, "segments": segments}
        response["usage"] = {"type": "duration", "seconds": math.ceil(self._seconds)}
        return JSON, json_bytes(response)

    def first(self) -> bytes:
        """Return the event before the text: there is none."""
        return b""

    def piece(self, piece: str) -> bytes:
        """Return the event of a piece."""
        return event({"type": "transcript.text.delta", "delta": piece})

    def last(self, result: Transcript) -> bytes:
        """Return the event at the end."""
        return event({"type": "transcript.text.done", "text": result.text})


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    text = segment.text.encode()
    return {
        "id": number,
        "seek": round(segment.window_s * FRAMES_A_SECOND),
        "start": round(segment.start_s, 3),
        "end": round(segment.end_s, 3),
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": 0.0,
        "avg_logprob": segment.log_probability,
        "compression_ratio": len(text) / len(zlib.compress(text)),
        "no_speech_prob": segment.no_speech,
    }


def subtitles(result: Transcript, vtt: bool) -> str:
    """Return a transcript as subtitles: WebVTT, or SubRip.

    >>> from edgekit.processing.predictions.transcribe import Segment, Transcript
    >>> print(subtitles(Transcript("so", [Segment(0.5, 3601.25, "so")]), False), end="")
    1
    00:00:00,500 --> 01:00:01,250
    so
    <BLANKLINE>
    """
    lines = ["WEBVTT", ""] if vtt else []
    for number, segment in enumerate(result.segments, 1):
        times = f"{_time(segment.start_s)} --> {_time(segment.end_s)}"
        lines += [] if vtt else [str(number)]
        lines += [times if vtt else times.replace(".", ","), segment.text.replace("-->", "->"), ""]
    return "".join(f"{line}\n" for line in lines)


def _time(seconds: float) -> str:
    ms = round(1000 * seconds)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}"
