"""Class numbers of the names that labels use."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edgekit.errors import SampleError
from edgekit.processing.card import Card

NAMED = 5
"""Maximum number of names in a message."""


def class_numbers(names: Iterable[str], card: Card, origin: str) -> tuple[dict[str, int], list[str]]:
    """Return the class number of each name, and notes for the user.

    Names are those of the card's labels, or numbers. Case, spaces, ``_`` and ``-`` do not matter, and of a
    label such as ``tench, Tinca tinca`` each part is a name. If the card has no labels, other names are
    numbered in alphabetical order.

    Args:
        origin: Origin of the labels, for messages.

    Returns:
        Numbers of the names that the model knows, and a note if it does not know the others.

    Raises:
        SampleError: the model knows none of them.
    """
    distinct = sorted(set(names))
    labels = card.task.labels if card.task is not None else ()
    known = _names_of(labels)
    numbers = {name: known[_plain(name)] for name in distinct if _plain(name) in known}
    if not numbers and all(name.isdecimal() and len(name) < 10 for name in distinct):
        return {name: int(name) for name in distinct}, []
    if not labels:
        note = f"the card has no labels: {_some(distinct)} were numbered in alphabetical order"
        return {name: number for number, name in enumerate(distinct)}, [note]
    unknown = [name for name in distinct if name not in numbers]
    if not numbers:
        raise SampleError(
            f"{origin}: the model knows none of the classes {_some(unknown)}; its card has {_some(labels)}. "
            "Correct task.labels of the card, or the labels"
        )
    note = f"the card has no class {_some(unknown)}, so these labels were left out"
    return numbers, [note] if unknown else []


def _names_of(labels: Iterable[str]) -> dict[str, int]:
    """Return the class number of each label and of each of its parts that no other label has."""
    numbers: dict[str, int] = {}
    for number, label in enumerate(labels):
        for part in (*label.split(","), label):
            numbers[_plain(part)] = -1 if numbers.get(_plain(part), number) != number else number
    for number, label in enumerate(labels):
        numbers[_plain(label)] = number
    return {name: number for name, number in numbers.items() if name and number >= 0}


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _some(names: Iterable[str]) -> str:
    listed = [repr(name[:40]) for name in names]
    return ", ".join(listed[:NAMED]) + (f" and {len(listed) - NAMED} more" if len(listed) > NAMED else "")
