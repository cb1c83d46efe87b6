"""Checks of untrusted JSON values, composed from smaller checks and declared as data.

    point = record({"x": whole(0), "y": whole(0), "name": nothing_or(text)})
    point(value, "points[3]")                 # ManifestError: points[3].x: "a" where a whole number ...

A check is a function ``(value, where) -> None`` that raises :class:`ManifestError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError, brief
from edgekit.tensor_spec import Json

Check = Callable[[Json, str], None]


class ManifestError(ValueError):
    """Mismatch in a manifest, with its place. The caller knows the file and makes a BundleError of it."""


def text(value: Json, location: str) -> None:
    """Check that a value is a text of Unicode without lone surrogates."""
    if not isinstance(value, str):
        raise ManifestError(f"{location}: {brief(value)} where a text is expected")
    try:
        strict_json.check_text(value, location)
    except JsonError as problem:
        raise ManifestError(str(problem)) from None


def text_that(fits: Callable[[str], bool], expected: str) -> Check:
    """Return a check for a text that fits; ``expected`` names such a text in the error."""

    def check(value: Json, location: str) -> None:
        text(value, location)
        if not fits(value):
            raise ManifestError(f"{location}: {brief(value)} is not {expected}")

    return check


def whole(low: int, high: int = (1 << 63) - 1) -> Check:
    """Return a check for a whole number from ``low`` to ``high``; a bool is refused."""

    def check(value: Json, location: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ManifestError(
                f"{location}: {brief(value)} where a whole number from {low} to {high} is expected"
            )

    return check


def exactly(expected: Json) -> Check:
    """Return a check for this value, of this type."""

    def check(value: Json, location: str) -> None:
        if type(value) is not type(expected) or value != expected:
            raise ManifestError(f"{location}: {brief(value)} where {expected!r} is expected")

    return check


def list_of(check_item: Check, limit: int) -> Check:
    """Return a check for a list of at most ``limit`` items, each checked."""

    def check(value: Json, location: str) -> None:
        if not isinstance(value, list):
            raise ManifestError(f"{location}: {brief(value)} where a list is expected")
        if len(value) > limit:
            raise ManifestError(f"{location}: {len(value)} items; the limit is {limit}")
        for i, item in enumerate(value):
            check_item(item, f"{location}[{i}]")

    return check


def map_of(check_key: Check, check_item: Check, limit: int) -> Check:
    """Return a check for an object of at most ``limit`` entries, names and values checked."""

    def check(value: Json, location: str) -> None:
        if not isinstance(value, dict):
            raise ManifestError(f"{location}: {brief(value)} where an object is expected")
        if len(value) > limit:
            raise ManifestError(f"{location}: {len(value)} items; the limit is {limit}")
        for key, item in value.items():
            check_key(key, f"{location}, name")
            check_item(item, f"{location}[{brief(key)}]")

    return check


def record(fields: Mapping[str, Check], *, is_open: bool = False, optional: Iterable[str] = ()) -> Check:
    """Return a check for an object of these fields; others are refused unless it ``is_open``."""

    may_lack = frozenset(optional)

    def check(value: Json, location: str) -> None:
        if not isinstance(value, dict):
            raise ManifestError(f"{location or 'manifest'}: {brief(value)} where an object is expected")
        for key, check_field in fields.items():
            if key in value:
                check_field(value[key], f"{location}.{key}" if location else key)
            elif key not in may_lack:
                raise ManifestError(f"{location or 'manifest'}: {key!r} is missing")
        unknown = sorted(set(value) - set(fields))
        if unknown and not is_open:
            raise ManifestError(f"{location or 'manifest'}: key {brief(unknown[0])} is unknown")

    return check


def nothing_or(check_value: Check) -> Check:
    """null, or what is checked."""

    def check(value: Json, location: str) -> None:
        if value is not None:
            check_value(value, location)

    return check
