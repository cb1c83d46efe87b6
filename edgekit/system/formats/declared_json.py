"""Values of declared types as JSON, for messages and caches: the fields of a class are the format.

    message = encode(ShrunkModel, model, "onnx")                   # the reader has the file ``onnx`` itself
    model = decode(ShrunkModel, message, "figures", onnx=content)

A dataclass is an object, and a NamedTuple a list, as any tuple. A float that JSON lacks is a text: ``inf``,
``-inf`` or ``nan``. Types are ``str``, ``int`` (from -1), ``float``, ``bool``, Literals of texts, optional
types, mappings by text, sequences, frozensets of texts, and classes whose fields are of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache, partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from edgekit.system.formats.json_schema import Check, ManifestError, list_of, map_of, record, text, whole
from edgekit.system.formats.strict_json import brief
from edgekit.tensor_spec import Json

ITEMS_LIMIT = 100_000
"""Maximum length of a list and of a mapping."""


def encode(kind: Any, value: Any, *without: str) -> Json:
    """Return a value as JSON, floats with every digit.

    Args:
        without: Fields of a dataclass that are not written, because the reader has them itself.
    """
    origin: Any = get_origin(kind) or kind
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else encode(arguments[0], value)
    if origin is Literal:
        return value
    if origin in _CHECKS:
        return origin(value) if origin is not float or math.isfinite(value) else repr(float(value))
    if hasattr(origin, "__dataclass_fields__"):
        return {
            name: encode(member, getattr(value, name)) for name, member in _types(origin, without).items()
        }
    if issubclass(origin, Mapping):
        return {name: encode(arguments[1], entry) for name, entry in value.items()}
    entries = sorted(value) if origin is frozenset else value
    return [encode(member, entry) for member, entry in zip(_items(kind, len(value)), entries, strict=True)]


def decode(kind: Any, value: Json, location: str, **supplied: Any) -> Any:
    """Return the value that :func:`encode` wrote, from untrusted JSON.

    Args:
        supplied: Fields of a dataclass that are not in the JSON.

    Raises:
        ManifestError: it is not of this type; the text names the place.
    """
    origin: Any = get_origin(kind) or kind
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else decode(arguments[0], value, location)
    if origin is Literal or origin in _CHECKS:
        _CHECKS.get(origin, partial(_among, arguments))(value, location)
        return value if origin is Literal else origin(value)
    if hasattr(origin, "__dataclass_fields__"):
        types = _types(origin, tuple(supplied))
        record(dict.fromkeys(types, _any))(value, location)
        parts = {name: decode(member, value[name], f"{location}.{name}") for name, member in types.items()}
        return origin(**supplied, **parts)
    if issubclass(origin, Mapping):
        map_of(text, _any, ITEMS_LIMIT)(value, location)
        return {name: decode(arguments[1], entry, f"{location}.{name}") for name, entry in value.items()}
    list_of(_any, ITEMS_LIMIT)(value, location)
    kinds = _items(kind, len(value))
    if len(kinds) != len(value):
        raise ManifestError(f"{location}: {len(value)} items where {len(kinds)} are expected")
    items = [decode(member, value[i], f"{location}[{i}]") for i, member in enumerate(kinds)]
    make: Callable[..., Any] = getattr(origin, "_make", origin if origin in (tuple, frozenset) else list)
    return make(items)


def _items(kind: Any, count: int) -> list[Any]:
    if hasattr(kind, "_fields"):
        return list(_types(kind, ()).values())
    arguments = get_args(kind)
    is_open = get_origin(kind) is not tuple or arguments[-1] is Ellipsis
    return [arguments[0]] * count if is_open else list(arguments)


@cache
def _types(kind: Any, without: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the type of each field. One that is left out may name what only a type checker imports."""
    names = getattr(kind, "_fields", None) or [entry.name for entry in fields(kind)]
    hints = {name: kind.__annotations__[name] for name in names if name not in without}
    return get_type_hints(type("Written", (), {"__annotations__": hints, "__module__": kind.__module__}))


def _any(value: Json, location: str) -> None:
    """Check nothing: the items of a list and the fields of an object are decoded one by one."""


def _among(allowed: tuple[Any, ...], value: Json, location: str) -> None:
    if value not in allowed:
        raise ManifestError(f"{location}: {brief(value)} is not one of {', '.join(map(str, allowed))}")


def _number(value: Json, location: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and value not in ("inf", "-inf", "nan"):
        raise ManifestError(f"{location}: {brief(value)} where a number is expected")


def _flag(value: Json, location: str) -> None:
    if not isinstance(value, bool):
        raise ManifestError(f"{location}: {brief(value)} where true or false is expected")


_CHECKS: Mapping[Any, Check] = {str: text, int: whole(-1), float: _number, bool: _flag}
