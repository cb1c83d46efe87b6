"""Typed reading of fields in the JSON files of a model's folder, which may be a stranger's.

A field that is null is absent. ``file`` names the JSON file in errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.activations import ACTIVATIONS
from edgekit.tensor_spec import Json

CONFIG = "config.json"
NUMBER_LIMIT = 1 << 30


def number(
    table: Mapping[str, Json], key: str, folder: Path, default: int | None = None, file: str = CONFIG
) -> int:
    """Return a whole number.

    Raises:
        ModelError: it is of another type or too large, or absent without a default.
    """
    value: Any = table.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or abs(value) > NUMBER_LIMIT:
        raise _wrong(folder, file, key, value, "a whole number")
    return value


def real(
    table: Mapping[str, Json],
    key: str,
    folder: Path,
    default: float | None = None,
    limits: tuple[float, float] = (0, 1),
    file: str = CONFIG,
) -> float:
    """Return a number from the first limit to the second.

    Raises:
        ModelError: it is of another type or beyond a limit, or absent without a default.
    """
    value: Any = table.get(key)
    value, (low, high) = default if value is None else value, limits
    if type(value) not in (int, float) or not low <= value <= high:
        raise _wrong(folder, file, key, value, f"from {low:g} to {high:g}")
    return float(value)


def text(table: Mapping[str, Json], key: str, folder: Path, default: str = "", file: str = CONFIG) -> str:
    """Return a string. Raises ModelError: it is of another type."""
    value: Any = table.get(key)
    if not isinstance(value, str | None):
        raise _wrong(folder, file, key, value, "a string")
    return default if value is None else value


def table_of(table: Mapping[str, Json], key: str, folder: Path, file: str = CONFIG) -> dict[str, Json]:
    """Return an object, {} if it is absent. Raises ModelError: it is of another type."""
    value: Any = table.get(key)
    if not isinstance(value, dict | None):
        raise _wrong(folder, file, key, value, "an object")
    return value or {}


def entries(table: Mapping[str, Json], key: str, folder: Path, file: str = CONFIG) -> list[dict[str, Json]]:
    """Return a list of objects, [] if it is absent. Raises ModelError: it is of another type."""
    value: Any = table.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise _wrong(folder, file, key, value, "a list of objects")
    return value


def activation(table: Mapping[str, Json], key: str, folder: Path, default: str) -> str:
    """Return the activation that a field of ``config.json`` names as transformers does.

    Raises:
        ModelError: it is not supported.
    """
    return known_activation(text(table, key, folder, default), folder)


def known_activation(name: str, folder: Path) -> str:
    """Return the activation that transformers names so. Raises ModelError: it is not supported."""
    if name not in ACTIVATIONS:
        raise ModelError(f"{folder}: {CONFIG}: activation {name[:40]!r} is not supported")
    return ACTIVATIONS[name]


def refuse_different(table: Mapping[str, Json], pairs: tuple[tuple[str, str], ...], folder: Path) -> None:
    """Check that settings are equal; the second of a pair may be absent.

    Raises:
        ModelError: they differ.
    """
    for first, second in pairs:
        if table.get(second) not in (None, table.get(first)):
            raise ModelError(f"{folder}: {CONFIG}: {first} and {second} differ, which is not supported")


def _wrong(folder: Path, file: str, key: str, value: object, expected: str) -> ModelError:
    if value is None:
        return ModelError(f"{folder}: {file} has no {key}; it must be {expected}")
    return ModelError(f"{folder}: {file}: {key} is {str(value)[:20]}; it must be {expected}")
