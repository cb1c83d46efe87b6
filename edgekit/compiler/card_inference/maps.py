"""Recognition of outputs that are maps of the input picture."""

from __future__ import annotations

from typing import NamedTuple

from edgekit.compiler.card_inference.facts import GraphFacts
from edgekit.compiler.card_inference.recognized import ImageShape

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
