"""Results of recognizers: the decoder for a model's outputs, and the image preprocessing of its family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.image_habits import Habits
from edgekit.compiler.card_inference.lines import CardLine
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
    """Recognized task of a model.

    Attributes:
        outputs: Output names by role.
        guessed: Whether another task has outputs of this form too.
        lines: Labels and options that differ from the decoder's defaults.
        reads_pairs: Whether the model usually reads pairs of texts.
    """

    kind: str
    decode: str
    outputs: Mapping[str, str]
    evidence: str
    habits: Habits
    guessed: bool = False
    lines: Sequence[CardLine] = ()
    reads_pairs: bool = False


class Draftable(NamedTuple):
    """Recognized model of sounds or texts.

    Attributes:
        states: For each state input, the output whose value it takes at the next call.
    """

    inputs: dict[str, list[CardLine]]
    task: Recognized
    states: dict[str, str]


class TextOutputs(NamedTuple):
    """Float outputs of a text model.

    Attributes:
        vectors: Outputs of shape [1, n].
        pooled: Those of the vectors that are as long as embeddings.
        sequences: Outputs of shape [1, tokens, n].
    """

    vectors: Sequence[TensorSpec]
    pooled: Sequence[TensorSpec]
    sequences: Sequence[TensorSpec]


class Recognizers(NamedTuple):
    """Task recognizers of ``edgekit model card``, by kind of input: priority -> recognizer.

    The first recognizer that knows the outputs determines the task, over all tasks, lowest priority number
    first. Rare forms come before common ones: 100 to 199 are outputs of one family of models, 200 to 299
    forms of several families, 300 to 399 maps, from 400 on rows of numbers.

    Attributes:
        pictures: (facts, the picture's shape) -> the task, for models with one picture as input.
        texts: (facts, its outputs) -> the task, for models whose inputs are the parts of a tokenized text.
        sounds: facts -> the inputs and the task, for all others.
    """

    pictures: Mapping[int, Callable[[GraphFacts, ImageShape], Recognized | None]] = {}
    texts: Mapping[int, Callable[[GraphFacts, TextOutputs], Recognized | None]] = {}
    sounds: Mapping[int, Callable[[GraphFacts], Draftable | None]] = {}


def cells(image: ImageShape, strides: Sequence[int]) -> int:
    """Count the cells of grids with these strides over the input."""
    return sum(-(-image.height // stride) * -(-image.width // stride) for stride in strides)


COARSEST = 32
"""Most pixels of the input for a cell of a map of classes."""


class Map(NamedTuple):
    """Output with one vector of channels per cell of the picture."""

    name: str
    layout: str
    channels: int
    height: int
    width: int
    integer: bool


def the_map(facts: GraphFacts) -> Map | None:
    """Return the first output as a map, if the others have its rank and axis 1: heads only training needs."""
    output = facts.outputs[0]
    shape = output.shape
    integer = output.dtype.startswith(("int", "uint", "bool"))
    if len(facts.outputs) > 1 and any(
        len(o.shape) != len(shape) or o.shape[1:2] != shape[1:2] for o in facts.outputs
    ):
        return None
    if len(shape) == 3 and shape[0] == 1:
        return Map(output.name, "NCHW", 1, *shape[1:], integer)
    if len(shape) != 4 or shape[0] != 1:
        return None
    # Channels are fewer than cells along a side, but for very coarse maps.
    if shape[3] < shape[1]:
        return Map(output.name, "NHWC", shape[3], shape[1], shape[2], integer)
    return Map(output.name, "NCHW", *shape[1:], integer)


def like(output_map: Map, image: ImageShape) -> bool:
    """Return whether the map has the input's proportions and enough cells."""
    alike = abs(output_map.height * image.width - output_map.width * image.height) <= max(
        image.width, image.height
    )
    return alike and output_map.height * COARSEST >= image.height and output_map.height > 1
