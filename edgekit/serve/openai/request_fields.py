"""The body of a request: bounded JSON, and its fields, each honored or refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from edgekit.serve.openai.api_errors import ApiError

BODY_BYTES = 8 << 20
"""Maximum size of a body: the longest text of a context of 64 thousand tokens, a schema and its quotes."""
DEPTH = 64
"""Maximum nesting of lists and objects in a body."""
VALUES = 200_000
"""Maximum number of values in a body."""
TEMPERATURE = 2.0
METADATA, METADATA_CHARS = 16, 512
"""Maximum number of entries of ``metadata``, and maximum characters of one, as in the API."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "modalities": (["text"],),
}
"""Options that are not supported -> values with which they ask for nothing."""
CHAT_ONLY, COMPLETION_ONLY = (
    ("top_logprobs", "store", "service_tier", "modalities"),
    ("best_of", "echo", "suffix"),
)
LABELS = ("user", "safety_identifier", "prompt_cache_key")
"""Texts that label a request for its sender's own records; they do not change the result."""
UNSUPPORTED = (
    "audio", "chunking_strategy", "function_call", "functions", "include", "known_speaker_names",
    "known_speaker_references", "moderation", "prediction", "prompt_cache_retention", "reasoning_effort",
    "verbosity", "web_search_options",
)  # fmt: skip
SAMPLING = ("temperature", "top_p", "seed", "stop", "top_k", "min_p", "repetition_penalty")
COMMON = ("model", "stream", "stream_options", "metadata", "max_tokens", *SAMPLING, *LABELS)


def check_values(text: bytes) -> None:
    """Check the number of values in JSON before the parser makes objects. Commas in texts count too.

    Raises:
        ApiError: 413: it has more than VALUES.
    """
    if text.count(b",") + text.count(b"[") + text.count(b"{") > VALUES:
        raise ApiError(f"the body has more than {VALUES} values", status=413)


def parsed_body(body: bytes) -> dict[str, Any]:
    """Parse a body.

    Raises:
        ApiError: it is not a JSON object, or is nested too deeply or has too many values.
    """
    check_values(body)
    try:
        parsed = orjson.loads(body)
    except ValueError as problem:
        raise ApiError(f"the body is not valid JSON: {str(problem)[:200]}") from None
    if not isinstance(parsed, dict):
        raise ApiError("the body is not a JSON object")
    todo: list[tuple[Any, int]] = [(parsed, 1)]
    while todo:
        value, depth = todo.pop()
        if depth > DEPTH:
            raise ApiError(f"the body has lists and objects more than {DEPTH} deep")
        children: Iterable[Any] = value.values() if isinstance(value, dict) else value
        todo += [(child, depth + 1) for child in children if isinstance(child, dict | list)]
    return parsed


def check_fields(body: Mapping[str, Any], honored: Iterable[str], neutral: Iterable[str]) -> None:
    """Check that each field is known, and that those that are not supported have neutral values.

    Args:
        neutral: Fields of NEUTRAL that the endpoint has.

    Raises:
        ApiError: a field is unknown or not supported.
    """
    supported, allowed = set(honored), set(neutral)
    for name, value in body.items():
        if name in supported or (value is None and (name in UNSUPPORTED or name in allowed)):
            continue
        if name in allowed:
            if not any(
                value == item and isinstance(value, bool) == isinstance(item, bool) for item in NEUTRAL[name]
            ):
                accepted = " or ".join(repr(item) for item in NEUTRAL[name])
                raise ApiError(f"{name} is not supported; leave it out or send {accepted}", name)
        elif name in UNSUPPORTED:
            raise ApiError(f"{name} is not supported; leave it out", name)
        else:
            raise ApiError(f"unknown field {name[:64]!r}; leave it out", name[:64], code="unknown_parameter")
    for name in LABELS:
        if name in supported:
            text_of(body, name, "")
    if (labels := body.get("metadata")) is not None and "metadata" in supported:
        _check_metadata(labels)


def _check_metadata(labels: object) -> None:
    if (
        not isinstance(labels, dict)
        or len(labels) > METADATA
        or any(not isinstance(v, str) or len(v) > METADATA_CHARS for v in labels.values())
    ):
        raise ApiError(
            f"metadata is an object of at most {METADATA} texts of {METADATA_CHARS} characters", "metadata"
        )


def text_of(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text field.

    Raises:
        ApiError: it is absent without a default, or not a text.
    """
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise ApiError(f"{name} must be a text", name)
    return value


def flag_of(body: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field, False if it is absent. Raises ApiError: it is something else."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise ApiError(f"{name} must be true or false", name)
    return bool(value)


def whole_of(body: Mapping[str, Any], name: str, minimum: int, maximum: int, default: int) -> int:
    """Return a field that is a whole number. Raises ApiError: it is not, or outside its range."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ApiError(f"{name} must be a whole number from {minimum} to {maximum}", name)
    return value


def number_of(body: Mapping[str, Any], name: str, maximum: float, default: float) -> float:
    """Return a field that is a number from 0. Raises ApiError: it is not, or outside its range."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ApiError(f"{name} must be a number", name)
    if not 0 <= value <= maximum:
        raise ApiError(f"{name} must be from 0 to {maximum:g}", name)
    return float(value)


def sampling_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of sampling, as ``GenerateOptions``. The API's default temperature is 1.

    Raises:
        ApiError: one is of another type or outside its range.
    """
    top_p = number_of(body, "top_p", 1.0, 1.0)
    if top_p == 0:
        raise ApiError("top_p must be above 0; for the likeliest token send temperature 0", "top_p")
    options: dict[str, Any] = {
        "temperature": number_of(body, "temperature", TEMPERATURE, 1.0),
        "top_p": top_p,
        "top_k": whole_of(body, "top_k", 0, 1 << 24, 0),
        "min_p": number_of(body, "min_p", 1.0, 0.0),
    }
    if body.get("seed") is not None:
        options["seed"] = whole_of(body, "seed", -(1 << 63), (1 << 63) - 1, 0) % (1 << 64)
    if body.get("repetition_penalty") is not None:
        options["repetition_penalty"] = number_of(body, "repetition_penalty", 100.0, 1.0)
    if body.get("stop") is not None:
        options["stop"] = body["stop"]  # checked with the other options, before anything runs
    return options


def streaming_of(body: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the response is streamed, and whether its last event has the usage.

    Raises:
        ApiError: a field is malformed.
    """
    stream, options = flag_of(body, "stream"), body.get("stream_options")
    if options is None:
        return stream, False
    if not stream or not isinstance(options, dict):
        raise ApiError("stream_options is an object, and needs stream: true", "stream_options")
    flag_of(options, "include_obfuscation")
    if options.get("include_obfuscation"):
        raise ApiError("include_obfuscation is not supported; send false", "stream_options")
    if unknown := sorted(set(options) - {"include_usage", "include_obfuscation"}):
        raise ApiError(f"unknown field {unknown[0][:64]!r} in stream_options", "stream_options")
    return stream, flag_of(options, "include_usage")


def one_of(body: Mapping[str, Any], names: tuple[str, ...], read: Callable[[str], int]) -> int:
    """Return the value of the first field that is present, or the default of the last."""
    present = [name for name in names if body.get(name) is not None]
    if len(present) > 1:
        raise ApiError(f"{' and '.join(present)} were both given; give one", present[1])
    return read(present[0] if present else names[-1])
