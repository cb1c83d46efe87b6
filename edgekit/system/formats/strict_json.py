"""Strict JSON: untrusted input parsed within limits, and deterministic output: equal values give equal bytes.

The standard library's parser accepts NaN, infinities, repeated keys, lone surrogates, nesting up to its stack
and numbers of any length. A manifest has none of these, and here they are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from edgekit.errors import printable
from edgekit.tensor_spec import Json

DEPTH_LIMIT = 32
"""Nesting of objects and lists."""
VALUES_LIMIT = 500_000
"""Commas and opening brackets: bounds the memory of parsing (about 100 bytes a value)."""
TEXT_LIMIT_CHARS = 65_536
NUMBER_LIMIT_CHARS = 32


class JsonError(ValueError):
    """Fault in JSON, with its place; the caller adds the file."""


def decode(data: bytes, description: str, limit_bytes: int) -> Json:
    """Parse UTF-8 JSON.

    Raises:
        JsonError: there are too many, they are not UTF-8, not strict JSON, too deep, or a text or number is
            too long.
    """
    if len(data) > limit_bytes:
        raise JsonError(f"{description}: {len(data)} bytes; the limit is {limit_bytes}")
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > VALUES_LIMIT:
        raise JsonError(f"{description}: about {values} values; the limit is {VALUES_LIMIT}")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as problem:
        raise JsonError(f"{description}: byte {problem.start} is not UTF-8") from None
    except json.JSONDecodeError as problem:
        raise JsonError(f"{description}: character {problem.pos} is not JSON: {problem.msg}") from None
    except JsonError as problem:
        raise JsonError(f"{description}: {problem}") from None
    except RecursionError:
        raise JsonError(_too_deep(description)) from None
    _check_values(value, description)
    return value


def encode(value: Json) -> bytes:
    """UTF-8, keys sorted, no spaces; tuples become lists.

    Control characters in strings (an engine's error may be coloured) are escaped, as ``\\x1b``.

    >>> encode({"b": (1, 2.5), "a": None})
    b'{"a":null,"b":[1,2.5]}'

    Raises:
        JsonError: a value is not JSON (a number that is not finite, a numpy scalar, bytes ...).
    """
    plain = _as_plain(value, "", DEPTH_LIMIT)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def brief(value: Json) -> str:
    """Return a value for an error message: in ASCII, at most 60 characters.

    >>> brief("caf\\u00e9"), brief([1, 2]), brief(None)
    ("'caf\\\\xe9'", 'a list', 'None')
    """
    if isinstance(value, (dict, list)):
        return f"a {type(value).__name__}"
    shown = ascii(value[:60] if isinstance(value, str) else value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def check_text(text: str, location: str) -> None:
    """Raise JsonError if a string is too long or contains control characters, direction overrides or lone
    surrogates."""
    if len(text) > TEXT_LIMIT_CHARS:
        raise JsonError(f"{location}: a text of {len(text)} characters; the limit is {TEXT_LIMIT_CHARS}")
    if printable(text) != text:
        raise JsonError(f"{location}: {brief(text)} contains a control character or half of a surrogate pair")


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    table = dict(pairs)
    if len(table) != len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise JsonError(f"key {brief(key)} is twice in one object")
            keys.add(key)
    return table


def _parse_int(text: str) -> int:
    if len(text) > NUMBER_LIMIT_CHARS:
        raise JsonError(f"a number of {len(text)} digits; the limit is {NUMBER_LIMIT_CHARS}")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text) if len(text) <= NUMBER_LIMIT_CHARS else math.inf
    if not math.isfinite(number):
        raise JsonError(f"{brief(text)} is not a number of 64 bits")
    return number


def _refuse_constant(text: str) -> None:
    raise JsonError(f"{text} is not JSON")


def _too_deep(location: str) -> str:
    return f"{location}: objects and lists are more than {DEPTH_LIMIT} deep"


def _check_values(value: Json, description: str) -> None:
    """Check depth and strings; iterative, because it is the check that bounds recursion."""
    todo: list[tuple[Json, int]] = [(value, 1)]
    while todo:
        value, depth = todo.pop()
        if isinstance(value, str):
            check_text(value, description)
        elif isinstance(value, (dict, list)):
            if depth > DEPTH_LIMIT:
                raise JsonError(_too_deep(description))
            if isinstance(value, dict):
                todo.extend((key, depth) for key in value)
                todo.extend((item, depth + 1) for item in value.values())
            else:
                todo.extend((item, depth + 1) for item in value)


def _as_plain(value: Json, location: str, depth_left: int) -> Json:
    """Return the value in the types that json.loads returns, with printable strings."""
    if isinstance(value, str):
        return printable(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise JsonError(f"{location}: {value} is not valid JSON; use None where a number is missing")
        return float(value)
    if isinstance(value, (Mapping, list, tuple)) and depth_left == 0:
        raise JsonError(_too_deep(location))
    if isinstance(value, Mapping):
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise JsonError(f"{location}: key {key!r} is not a text")
            path = f"{location}.{key}" if location else key
            plain[_as_plain(key, location, depth_left)] = _as_plain(item, path, depth_left - 1)
        return plain
    if isinstance(value, (list, tuple)):
        return [_as_plain(item, f"{location}[{i}]", depth_left - 1) for i, item in enumerate(value)]
    raise JsonError(f"{location}: a {type(value).__name__} cannot be written as JSON")
