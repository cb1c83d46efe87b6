"""Responses with a text, whole or as server-sent events, in the API's form."""

from __future__ import annotations

import json
import math
import secrets
import time
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.text_tokens import StopWords
from edgekit.serve.openai.tool_calls import BEGIN, Tools, calls_in
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from edgekit.processing.predictions.transcribe import Segment, Transcript
    from edgekit.serve.openai.transcriptions import TranscriptionRequest

DONE = b"data: [DONE]\n\n"
JSON = b"application/json"


def usage_of(result: GeneratedText) -> dict[str, Json]:
    """Return the tokens of a text."""
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.tokens,
        "total_tokens": result.prompt_tokens + result.tokens,
        "prompt_tokens_details": {"cached_tokens": result.cached_tokens},
    }


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Return an object as compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(value: Mapping[str, Any]) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json_bytes(value) + b"\n\n"


def finish_reason(result: GeneratedText) -> str:
    """Return why a text ended, in the API's words."""
    return "stop" if result.reason == "stop" else "length"


class ResponseWriter:
    """Writer of one response."""

    def __init__(self, model: str, chat: bool, tools: Tools, usage: bool) -> None:
        self._chat, self._tools, self._usage = chat, tools, usage
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._text: list[str] = []
        self._shown = 0
        self._kind_known = self._is_call = False
        self._words = StopWords((BEGIN,)) if tools.form else None

    # --- whole -------------------------------------------------------------------------------------------

    def whole(self, result: GeneratedText) -> tuple[bytes, bytes]:
        """Return the content type and the body of a response that is not streamed."""
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish_reason(result)}
        if not self._chat:
            choice["text"] = result.text
        else:
            text, calls = calls_in(result.text, self._tools) if self._tools.form else (result.text, [])
            message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
            message["content"] = text if text or not calls else None
            if calls:
                message["tool_calls"], choice["finish_reason"] = calls, "tool_calls"
            choice["message"] = message
        kind = "chat.completion" if self._chat else "text_completion"
        response = {**self._head, "object": kind, "choices": [choice], "usage": usage_of(result)}
        return JSON, json_bytes(response)

    # --- streamed ----------------------------------------------------------------------------------------

    def first(self) -> bytes:
        """Return the event before the text; empty if the API has none."""
        return self._event({"role": "assistant", "content": ""}) if self._chat else b""

    def piece(self, piece: str) -> bytes:
        """Return the event of a piece; empty while it may belong to a call."""
        shown = piece
        if self._words is not None:
            self._text.append(piece)
            shown = self._shown_of(piece, self._words)
            self._shown += len(shown)
        return self._event({"content": shown} if self._chat else shown) if shown else b""

    def _shown_of(self, piece: str, words: StopWords) -> str:
        """Return the text to show now; empty while the whole answer may be a call."""
        if self._tools.schema is not None or self._is_call:
            return ""
        if not self._kind_known:
            begin = piece.lstrip()[:1]
            self._kind_known, self._is_call = bool(begin), begin == "{"
            if not begin or self._is_call:
                return ""
            piece = "".join(self._text)  # with the white space before it
        return words.push(piece)

    def last(self, result: GeneratedText) -> bytes:
        """Return the events at the end of the text."""
        events, reason = b"", finish_reason(result)
        if self._words is not None:
            text = "".join(self._text)
            before, calls = calls_in(text, self._tools)
            if rest := before[self._shown :]:
                events += self._event({"content": rest})
            if calls:
                events += self._event({"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]})
                reason = "tool_calls"
        events += self._event({} if self._chat else "", reason)
        if self._usage:
            events += event({**self._head, "object": self._kind, "choices": [], "usage": usage_of(result)})
        return events + DONE

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _event(self, part: Any, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta" if self._chat else "text": part, "logprobs": None}
        usage = {"usage": None} if self._usage else {}
        choices = [{**choice, "finish_reason": reason}]
        return event({**self._head, "object": self._kind, "choices": choices, **usage})


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
