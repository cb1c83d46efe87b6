"""What a recognizer finds: which decoder reads a model's outputs, and how its family is given pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.image_habits import Habits
from edgekit.compiler.card_inference.lines import Line


class ImageShape(NamedTuple):
    """An input that can be a picture."""

    name: str
    layout: str
    channels: int
    height: int
    width: int


@dataclass(frozen=True)
class Recognized:
    """A model's task.

    Attributes:
        kind, decode: As in a card.
        outputs: Role -> the output's name.
        why: What in the outputs says so.
        habits: How pictures are made for it.
        guessed: Whether another task has outputs of this form too.
        lines: Labels and options that differ from the decoder's defaults.
    """

    kind: str
    decode: str
    outputs: Mapping[str, str]
    why: str
    habits: Habits
    guessed: bool = False
    lines: Sequence[Line] = ()


Recognizer = Callable[[Facts, ImageShape], Recognized | None]
"""Looks at a model with one picture going in. None: these are not its outputs."""


def cells(image: ImageShape, strides: Sequence[int]) -> int:
    """How many cells grids of these strides have on the input."""
    return sum(-(-image.height // stride) * -(-image.width // stride) for stride in strides)
