"""Reading of TOML and JSON tables that refuses what it does not know, and says where.

``where`` begins every error's text, e.g. ``card.toml: inputs.image``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.errors import CardError, MissingDependency
from edgekit.tensor_spec import Json

KINDS: Mapping[type, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def kind_of(value: Json) -> str:
    """Return the kind of a value, in words.

    >>> kind_of(True), kind_of(None)
    ('true or false', 'nothing')
    """
    return "nothing" if value is None else KINDS.get(type(value), type(value).__name__)


def only(table: Json, allowed: Sequence[str], location: str) -> None:
    """Refuse anything but a table and every key that is not in ``allowed``.

    Raises:
        CardError: there is such a key.
    """
    if not isinstance(table, Mapping):
        raise CardError(f"{location} must be a table, not {kind_of(table)}")
    for key in table:
        if key not in allowed:
            raise CardError(f"{location} has an unknown key {key!r}; it may have {', '.join(allowed)}")


def get(table: Mapping[str, Json], key: str, kind: type, location: str) -> Any:
    """Return the value of a key that must be there; a whole number passes as a float.

    Raises:
        CardError: it is missing or of another kind.
    """
    if key not in table:
        raise CardError(f"{location} has no {key}; it must be {KINDS[kind]}")
    value: Any = table[key]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        if not _is_finite(value):
            raise CardError(f"{location}.{key} is too large; it must be {KINDS[kind]} that 64 bits hold")
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CardError(f"{location}.{key} must be {KINDS[kind]}, not {kind_of(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise CardError(f"{location}.{key} is {value}; it must be a finite number")
    return value


def choice(table: Mapping[str, Json], key: str, allowed: Sequence[str], location: str) -> Any:
    """Return a text that must be one of ``allowed``.

    Raises:
        CardError: it is missing or another.
    """
    if key not in table:
        raise CardError(f"{location} has no {key}; it must be one of {', '.join(allowed)}")
    value = get(table, key, str, location)
    if value not in allowed:
        raise CardError(f"{location}.{key} is {value!r}; it must be one of {', '.join(allowed)}")
    return value


def texts(table: Mapping[str, Json], key: str, allowed: Sequence[str], location: str) -> dict[str, str]:
    """Return a table of texts; empty if it is absent.

    Raises:
        CardError: it is none, or has other keys.
    """
    inner = get(table, key, dict, location) if key in table else {}
    only(inner, allowed, f"{location}: {key}")
    return {name: get(inner, name, str, f"{location}: {key}") for name in inner}


def numbers(table: Mapping[str, Json], key: str, location: str) -> tuple[float, ...]:
    """Return a list of finite numbers.

    Raises:
        CardError: it is missing or holds something else.
    """
    values = get(table, key, list, location)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise CardError(f"{location}.{key} is {values}; it must be a list of finite numbers")
    return tuple(float(value) for value in values)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def whole_numbers(
    table: Mapping[str, Json], key: str, location: str, *, minimum: int | None = None
) -> tuple[int, ...]:
    """Return a list of whole numbers, each at least ``minimum``.

    Raises:
        CardError: it is missing or holds something else.
    """
    values = get(table, key, list, location)
    for value in values:
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits or (minimum is not None and value < minimum):
            bound = "" if minimum is None else f" from {minimum}"
            raise CardError(f"{location}.{key} is {values}; it must be a list of whole numbers{bound}")
    return tuple(values)


def text_list(table: Mapping[str, Json], key: str, location: str) -> tuple[str, ...]:
    """Return a list of texts.

    Raises:
        CardError: it is missing or holds something else.
    """
    values = get(table, key, list, location)
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise CardError(f"{location}.{key}[{index}] must be a text, not {kind_of(value)}")
    return tuple(values)


def pairs(table: Mapping[str, Json], key: str, location: str) -> tuple[tuple[int, int], ...]:
    """Return a list of pairs of whole numbers.

    Raises:
        CardError: it is missing or holds something else.
    """
    values = get(table, key, list, location)
    result = []
    for index, value in enumerate(values):
        if not isinstance(value, list) or len(value) != 2:
            raise CardError(f"{location}.{key}[{index}] is {value}; it must be a pair of whole numbers")
        first, second = whole_numbers({f"{key}[{index}]": value}, f"{key}[{index}]", location)
        result.append((first, second))
    return tuple(result)


def as_lists(table: Mapping[str, Any]) -> dict[str, Json]:
    """Return the table with tuples as lists, as JSON knows them.

    >>> as_lists({"strides": (8, 16), "skeleton": ((0, 1),), "score": 0.5})
    {'strides': [8, 16], 'skeleton': [[0, 1]], 'score': 0.5}
    """
    return {key: _as_list(value) for key, value in table.items()}


def _as_list(value: Any) -> Any:
    return [_as_list(one) for one in value] if isinstance(value, tuple) else value


def load_toml(text: str, description: str, error: type[Exception]) -> dict[str, Any]:
    """Parse TOML, on CPython 3.10 with tomli. Host side: a bundle carries its card and profiles as JSON.

    Raises:
        error: the text is not TOML, or holds numbers beyond 64 bits; the message names ``description`` and
            the line.
        MissingDependency: CPython 3.10 without tomli.
    """
    try:
        import tomllib
    except ModuleNotFoundError:
        try:
            import tomli as tomllib  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ModuleNotFoundError:
            raise MissingDependency("tomli", "reading TOML on Python 3.10", "pip install tomli") from None
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise error(f"{description} is not valid TOML: its lists or tables are nested too deep") from None
    except ValueError as problem:  # TOMLDecodeError, and what int() and datetime say
        reason = "a number of thousands of digits" if "integer string conversion" in str(problem) else problem
        raise error(f"{description} is not valid TOML: {reason}") from None
    _within_64_bits(table, description, error)
    return table


def _within_64_bits(value: Any, description: str, error: type[Exception]) -> None:
    """TOML 1.0: an integer that 64 bits do not hold is an error. Python takes one of a million digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise error(
            f"{description} is not valid TOML: a whole number of {value.bit_length()} bits; the limit is 64"
        )
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _within_64_bits(inner, description, error)
