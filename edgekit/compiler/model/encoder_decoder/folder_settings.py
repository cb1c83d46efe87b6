"""Settings in ``config.json`` of an encoder-decoder's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.compiler.model.language.activations import ACTIVATIONS
from edgekit.errors import ModelError
from edgekit.tensor_spec import Json


def activation(name: str, folder: Path) -> str:
    """Return the activation that transformers names so.

    Raises:
        ModelError: it is not supported.
    """
    if name not in ACTIVATIONS:
        raise ModelError(f"{folder}: config.json: activation {name[:40]!r} is not supported")
    return ACTIVATIONS[name]


def real(
    table: Mapping[str, Json], key: str, folder: Path, default: float, limits: tuple[float, float] = (0, 1)
) -> float:
    """Return a number from the first limit to the second.

    Raises:
        ModelError: it is not one.
    """
    value: Any = table.get(key, default)
    low, high = limits
    if type(value) not in (int, float) or not low <= value <= high:
        raise ModelError(
            f"{folder}: config.json: {key} is {str(value)[:20]}; it must be from {low:g} to {high:g}"
        )
    return float(value)


def number(table: Mapping[str, Json], key: str, folder: Path, default: int | None = None) -> int:
    """Return a whole number.

    Raises:
        ModelError: it is not one, or absent without a default.
    """
    value: Any = table.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int:
        raise ModelError(f"{folder}: config.json: {key} is {str(value)[:20]}; it must be a whole number")
    return value


def refuse_different(table: Mapping[str, Json], pairs: tuple[tuple[str, str], ...], folder: Path) -> None:
    """Check that settings are equal; the second of a pair may be absent.

    Raises:
        ModelError: they differ.
    """
    for first, second in pairs:
        if table.get(second) not in (None, table.get(first)):
            raise ModelError(f"{folder}: config.json: {first} and {second} differ, which is not supported")
