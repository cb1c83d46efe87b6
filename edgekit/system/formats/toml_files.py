"""TOML files, on every Python that is supported."""

from __future__ import annotations

from typing import Any

from edgekit.errors import MissingDependency


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
