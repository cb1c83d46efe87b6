"""What a recognizer finds: which decoder reads a model's outputs, and how its family is given pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.image_habits import Habits
from edgekit.compiler.card_inference.lines import Line
from edgekit.tensor_spec import TensorSpec


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
        reads_pairs: Whether its text is mostly one text and another.
    """

    kind: str
    decode: str
    outputs: Mapping[str, str]
    why: str
    habits: Habits
    guessed: bool = False
    lines: Sequence[Line] = ()
    reads_pairs: bool = False


class Draftable(NamedTuple):
    """A model of sounds or texts.

    Attributes:
        inputs: Lines by input name.
        task: Its task.
        states: An input -> the output that it is at the next call.
    """

    inputs: dict[str, list[Line]]
    task: Recognized
    states: dict[str, str]


class TextOutputs(NamedTuple):
    """Float outputs of a model of texts.

    Attributes:
        vectors: [1, n].
        pooled: Those of the vectors that are as long as embeddings.
        sequences: [1, tokens, n].
    """

    vectors: Sequence[TensorSpec]
    pooled: Sequence[TensorSpec]
    sequences: Sequence[TensorSpec]


class Recognizers(NamedTuple):
    """How ``edgekit card`` finds a task in a model: place in the order -> recognizer, by what goes in.

    The first recognizer that knows the outputs names the task, over all tasks, the lowest place first. A form
    that few models have comes before one that many share: 100 to 199 are outputs of one family of models,
    200 to 299 forms of several families, 300 to 399 maps, from 400 on rows of numbers.

    Attributes:
        pictures: (facts, the picture's shape) -> the task, for models that one picture goes into.
        texts: (facts, its outputs) -> the task, for models whose inputs are the parts of a text.
        sounds: facts -> the inputs and the task, for all others.
    """

    pictures: Mapping[int, Callable[[Facts, ImageShape], Recognized | None]] = {}
    texts: Mapping[int, Callable[[Facts, TextOutputs], Recognized | None]] = {}
    sounds: Mapping[int, Callable[[Facts], Draftable | None]] = {}


def cells(image: ImageShape, strides: Sequence[int]) -> int:
    """How many cells grids of these strides have on the input."""
    return sum(-(-image.height // stride) * -(-image.width // stride) for stride in strides)
