"""Recognizes networks that answer with a map: classes of pixels, masks, depth, another picture."""

from __future__ import annotations

from typing import NamedTuple

from edgekit.compiler.card_inference.facts import Facts
from edgekit.compiler.card_inference.image_habits import MAPS, PICTURES, SEGMENTERS
from edgekit.compiler.card_inference.labels import names_in
from edgekit.compiler.card_inference.lines import Line
from edgekit.compiler.card_inference.recognized import ImageShape, Recognized

COARSEST = 32
"""Most pixels of the input for a cell of a map of classes."""
MOST_CLASSES = 256


class Map(NamedTuple):
    """An output as a map."""

    name: str
    layout: str
    channels: int
    height: int
    width: int
    integer: bool


def recognize_mask(facts: Facts, image: ImageShape) -> Recognized | None:
    """One map of one channel, a sigmoid at its end: foreground and background."""
    found = _the_map(facts)
    if found is None or found.channels != 1 or found.integer or not _like(found, image):
        return None
    if not facts.activations(found.name) & {"Sigmoid", "HardSigmoid", "Clip"}:
        return None
    why = "one map of the input's proportions with a sigmoid; of hair and other soft edges it may be a matte"
    return Recognized(
        "segment", "binary", {"scores": found.name}, why, MAPS, True,
        [Line("labels", ("background", "foreground"), "the two classes of a mask", guessed=True)],
    )  # fmt: skip


def recognize_picture(facts: Facts, image: ImageShape) -> Recognized | None:
    """One map with as many channels as the input, of a whole multiple of its size."""
    found = _the_map(facts)
    if found is None or found.channels != image.channels or found.integer or not _like(found, image):
        return None
    factor = found.height / image.height
    if factor < 1 or factor != int(factor) or (image.channels == 1 and factor == 1):
        return None
    if facts.activations(found.name) & {"Softmax"}:
        return None
    why = f"a picture, {factor:.0f} times as large" if factor > 1 else "a picture of the input's size"
    lines = [Line("layout", found.layout)] if found.layout != "NCHW" else []
    return Recognized("image-to-image", "picture", {"picture": found.name}, why, PICTURES, factor == 1, lines)


def recognize_class_map(facts: Facts, image: ImageShape) -> Recognized | None:
    """One map of integers, or of a score for each class."""
    found = _the_map(facts)
    if found is None or not _like(found, image) or found.channels > MOST_CLASSES:
        return None
    habits = SEGMENTERS
    if found.channels == 1:
        if not found.integer:
            return None
        return Recognized("segment", "classes", {"classes": found.name}, "a map of integers", habits)
    lines = [Line("layout", found.layout)] if found.layout != "NCHW" else []
    named = names_in(facts.metadata)
    if named and len(named[0]) == found.channels:
        lines.append(Line("labels", named[0], f"the model's metadata, {named[1]!r}"))
    why = f"scores of {found.channels} classes for each of {found.height}x{found.width} cells"
    return Recognized("segment", "scores", {"scores": found.name}, why, habits, lines=lines)


def recognize_depth(facts: Facts, image: ImageShape) -> Recognized | None:
    """One map of one channel without a sigmoid."""
    found = _the_map(facts)
    if found is None or found.channels != 1 or found.integer or not _like(found, image):
        return None
    why = "one map without a sigmoid: MiDaS and Depth Anything give larger values for what is nearer"
    return Recognized("depth", "inverse", {"depth": found.name}, why, SEGMENTERS, True)


def _the_map(facts: Facts) -> Map | None:
    """The first output as a map, where the others are as large or smaller: heads that only training needs."""
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


def _like(found: Map, image: ImageShape) -> bool:
    """Whether the map has the input's proportions and enough cells."""
    alike = abs(found.height * image.width - found.width * image.height) <= max(image.width, image.height)
    return alike and found.height * COARSEST >= image.height and found.height > 1
