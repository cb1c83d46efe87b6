"""Responses with a text, whole or as server-sent events, in the API's form."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.text_tokens import StopWords
from edgekit.serve.openai.tool_calls import BEGIN, OBJECT, Tools, calls_in
from edgekit.tensor_spec import Json

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
    """Writer of one response.

    Args:
        model: Name of the model in the request.
        usage: Whether the last event of a stream has the usage.
    """

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
        """Return the event before the text; empty where the API has none."""
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
        if self._tools.form == OBJECT and not self._kind_known:
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
