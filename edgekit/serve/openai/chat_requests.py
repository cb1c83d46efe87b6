"""Requests for chats and completions: their messages, and their options as ``GenerateOptions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from edgekit.generate.device.chat_template import MESSAGES_LIMIT
from edgekit.generate.device.options import checked_options
from edgekit.generate.device.text_session import TextSession
from edgekit.generate.device.text_stream import TextStream
from edgekit.runtime import Session
from edgekit.serve.openai.api_errors import ApiError
from edgekit.serve.openai.request_fields import (
    CHAT_ONLY,
    COMMON,
    COMPLETION_ONLY,
    NEUTRAL,
    SAMPLING,
    TEMPERATURE,
    check_fields,
    check_values,
    number_of,
    one_of,
    sampling_of,
    streaming_of,
    whole_of,
)
from edgekit.serve.openai.tool_calls import END, TAGS, TOOLS, Tools, form_of, read_tools, told_in_messages

CHAT_FIELDS = (
    *COMMON, "messages", "max_completion_tokens", "response_format", "tools", "tool_choice",
    "parallel_tool_calls",
)  # fmt: skip
COMPLETION_FIELDS = (*COMMON, "prompt")
COMPLETION_TOKENS = 16
"""Tokens of a completion if the request does not say, as in the API."""
PARTS = 1024
"""Maximum number of parts of a message's content."""
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Role of a message -> role in templates."""
EMPTY = ("refusal", "annotations", "audio", "function_call")
"""Fields of an earlier answer that clients send back, and that must be empty."""


class TextRequest(NamedTuple):
    """Request for a text.

    Attributes:
        prompt: Text to continue, or messages of a chat.
        usage: Whether the last event of a stream has the usage.
    """

    prompt: str | Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]
    tools: Tools
    stream: bool
    usage: bool

    def begin(self, session: TextSession, adapter: str, deadline_ms: float) -> TextStream:
        """Create the stream; as ``TextSession.chat`` and ``generate``."""
        options = {**self.options, "adapter": adapter, "deadline_ms": deadline_ms}
        if isinstance(self.prompt, str):
            return session.generate(self.prompt, **options)
        tools = self.tools
        return session.chat(self.prompt, tools=tools.listed, begin=tools.begin, **options)


def read_chat(body: Mapping[str, Any], session: TextSession) -> TextRequest:
    """Read the body of ``/v1/chat/completions``.

    Raises:
        ApiError, UsageError: a field is malformed or not supported.
    """
    check_fields(body, CHAT_FIELDS, set(NEUTRAL) - set(COMPLETION_ONLY))
    stream, usage = streaming_of(body)
    options = sampling_of(body)
    options["max_tokens"] = one_of(
        body,
        ("max_completion_tokens", "max_tokens"),
        lambda name: whole_of(body, name, 1, 1 << 20, session.capacity),
    )
    tools = read_tools(body, session.template, session.tokenizer.special)
    schema = _schema_of(body.get("response_format"))
    if schema is not None and tools.form:
        raise ApiError("response_format and tools exclude each other here; send one", "response_format")
    schema = tools.schema if tools.schema is not None else schema
    if schema is not None:
        options["json_schema"] = schema
    if tools.form == TAGS and tools.schema is None and not tools.many:
        options["stop"] = [*_stops(options), END]  # after the first call
    checked_options(options)
    messages = _messages(body.get("messages"))
    if not form_of(session.template, session.tokenizer.special):
        messages = told_in_messages(messages, tools)
    return TextRequest(messages, options, tools, stream, usage)


def read_completion(body: Mapping[str, Any], session: TextSession) -> TextRequest:
    """Read the body of ``/v1/completions``.

    Raises:
        ApiError, UsageError: a field is malformed or not supported.
    """
    check_fields(body, COMPLETION_FIELDS, set(NEUTRAL) - set(CHAT_ONLY))
    stream, usage = streaming_of(body)
    options = sampling_of(body)
    options["max_tokens"] = whole_of(body, "max_tokens", 1, 1 << 20, COMPLETION_TOKENS)
    checked_options(options)
    return TextRequest(_prompt(body), options, Tools(), stream, usage)


def read_text2text(body: Mapping[str, Any], session: Session) -> TextRequest:
    """Read the body of ``/v1/completions`` for a text-to-text model, which writes the likeliest tokens.

    Raises:
        ApiError: a field is malformed or not supported.
    """
    fields = [name for name in COMPLETION_FIELDS if name not in SAMPLING]
    check_fields(body, [*fields, "temperature"], set(NEUTRAL) - set(CHAT_ONLY))
    if number_of(body, "temperature", TEMPERATURE, 0.0):
        raise ApiError("the model writes the likeliest text: leave temperature out, or send 0", "temperature")
    stream, usage = streaming_of(body)
    capacity = session.card.constants()["prompt"].shape[1] - 1
    options = {"max_tokens": whole_of(body, "max_tokens", 1, capacity, capacity)}
    return TextRequest(_prompt(body), options, Tools(), stream, usage)


def _prompt(body: Mapping[str, Any]) -> str:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise ApiError(
            "prompt must be one text; send several in requests of their own, and no tokens", "prompt"
        )
    return prompt


def _stops(options: Mapping[str, Any]) -> Sequence[Any]:
    stop = options.get("stop", ())
    if isinstance(stop, str):
        return (stop,)
    return stop if isinstance(stop, list) else ()


def _schema_of(form: Any) -> Mapping[str, Any] | None:
    """Return the schema of a ``response_format``; None if the answer is any text."""
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    json_schema = form.get("json_schema") if kind == "json_schema" else None
    schema = json_schema.get("schema") if isinstance(json_schema, dict) else None
    if not isinstance(schema, dict):
        raise ApiError(
            'response_format is {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", '
            '"json_schema": {"name": ..., "schema": {...}}}',
            "response_format",
        )
    return schema


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ApiError('messages is a list like [{"role": "user", "content": "..."}], not empty', "messages")
    if len(value) > MESSAGES_LIMIT:
        raise ApiError(f"there are {len(value)} messages; {MESSAGES_LIMIT} are allowed", "messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(message: Any, location: str) -> dict[str, Any]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in ROLES:
        raise ApiError(f"{location}.role must be one of {', '.join(ROLES)}", location)
    converted: dict[str, Any] = {"role": ROLES[role]}
    calls = message.get("tool_calls")
    content = message.get("content")
    if content is None and role == "assistant" and calls:
        content = ""
    converted["content"] = _content(content, location)
    for name, value in message.items():
        if name in ("role", "content") or value is None or (name in EMPTY and not value):
            continue
        if name == "tool_calls" and role == "assistant":
            converted[name] = _calls(value, f"{location}.tool_calls")
        elif (name == "name" or (name == "tool_call_id" and role == "tool")) and isinstance(value, str):
            converted[name] = value
        else:
            raise ApiError(f"{location}.{name[:64]} is not supported in a message of this role", location)
    return converted


def _content(content: Any, location: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or len(content) > PARTS:
        raise ApiError(f"{location}.content must be a text, or a list of at most {PARTS} texts", location)
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise ApiError(
                f"{location}.content has a part that is not a text; the model takes texts only", location
            )
    return "".join(part["text"] for part in content)


def _calls(calls: Any, location: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or len(calls) > TOOLS:
        raise ApiError(f"{location} is a list of at most {TOOLS} calls", location)
    converted = []
    for call in calls:
        function: Any = call.get("function") if isinstance(call, dict) else None
        try:
            name, text = function["name"], function["arguments"]
            check_values(text.encode())
            arguments = orjson.loads(text) if text else {}
        except (TypeError, KeyError, ValueError, AttributeError):
            name, arguments = None, None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ApiError(
                f"{location} has a call without a name or with arguments that are not JSON", location
            )
        # Templates write the arguments as an object, as transformers passes them.
        id_ = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
        converted.append({**id_, "type": "function", "function": {"name": name, "arguments": arguments}})
    return converted
