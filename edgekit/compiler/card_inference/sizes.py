"""Static shapes for a model's dynamic dimensions: from its metadata or the files beside it, or suggested."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from edgekit.compiler.card_inference.facts import Declared, GraphFacts, UnopenedModel, read_facts
from edgekit.compiler.card_inference.recognized import ImageShape
from edgekit.compiler.model.suggested_shapes import DynamicShapesError

STALE = 64
"""Height and width up to which a batch above 1 shows a shape that an exporter left behind: CenterFace's file
says 10x3x32x32, and takes any size."""
USUAL = (640, 640)
"""Height and width in the place of stale ones."""
SMALLEST = 16
"""Least height and width of a picture; what is smaller is a table of features."""


class Size(NamedTuple):
    """The shape of an input, why, and whether it was guessed."""

    shape: tuple[int, ...]
    reason: str
    guessed: bool


def open_static(
    source: UnopenedModel, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[GraphFacts, dict[str, Size]]:
    """Open a model, and the sizes that were chosen for it."""
    sizes = _stated(source, shapes)
    fixed = {**{name: size.shape for name, size in sizes.items()}, **shapes}
    try:
        facts = read_facts(source, fixed)
    except DynamicShapesError as problem:
        suggested = problem.suggested
        facts = read_facts(source, {**fixed, **suggested.shapes})
        for name, shape in suggested.shapes.items():
            subject = "" if as_image(name, source.inputs[name]) else "the length is "
            sizes[name] = Size(shape, f"{subject}not fixed by the model", name in suggested.examples)
    for spec in facts.inputs:
        if spec.name not in sizes and None in source.inputs[spec.name]:
            sizes[spec.name] = Size(spec.shape, "the batch is not fixed by the model", False)
    fixed_sizes = {name: Size(tuple(shape), "set by --shape", False) for name, shape in shapes.items()}
    return facts, {**sizes, **fixed_sizes}


def is_free(declared: Declared) -> bool:
    """Return whether a picture's height and width are dynamic, or come from a stale shape."""
    if len(declared) != 4:
        return False
    stale = (declared[0] or 1) > 1 and all(d is not None and d <= STALE for d in declared[2:])
    return stale or None in declared[1:]


def as_image(name: str, shape: Declared) -> ImageShape | None:
    """Return an input with four dimensions and one or three channels as a picture; None for other inputs.

    Open sizes count as large enough.
    """
    if len(shape) != 4:
        return None
    for layout, channels, height, width in (
        ("NCHW", shape[1], shape[2], shape[3]),
        ("NHWC", shape[3], shape[1], shape[2]),
    ):
        large = all(d is None or d >= SMALLEST for d in (height, width))
        if channels in (1, 3) and large:
            return ImageShape(name, layout, channels, height or 0, width or 0)
    return None


def resized(image: ImageShape, size: tuple[int, int], declared: Declared) -> tuple[int, ...]:
    """Return the input's shape; this height and width replace dynamic or stale ones."""
    fixed = as_image(image.name, declared) if None in declared[1:] else None
    height = (fixed and fixed.height) or size[0]
    width = (fixed and fixed.width) or size[1]
    return (
        (1, image.channels, height, width) if image.layout == "NCHW" else (1, height, width, image.channels)
    )


def _stated(source: UnopenedModel, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Size]:
    """Return a batch of 1, and the sizes of pictures that metadata or a file beside the model state, or in
    the place of stale ones."""
    size, reason = _trained_size(source.metadata), "the size it was trained for, by the model's metadata"
    guessed, habits = False, source.files.habits
    if size is None and habits is not None:
        size, reason, guessed = habits.size, habits.doubt or habits.origin, bool(habits.doubt)
    sizes = {}
    for name, declared in source.inputs.items():
        image = as_image(name, declared)
        if habits is not None and declared[1:] == (None, None, None):
            image = ImageShape(name, "NCHW", 3, 0, 0)
        if name in shapes:
            continue
        if len(declared) > 1 and declared[0] is None and None not in declared[1:]:
            one = (1, *(d for d in declared[1:] if d))
            sizes[name] = Size(one, "the batch is not fixed by the model", False)
        if image is None or not is_free(declared):
            continue
        if size is None and None not in declared[1:]:
            sizes[name] = Size(resized(image, USUAL, declared), "not fixed by the model", True)
        elif size is not None:
            sizes[name] = Size(resized(image, size, declared), reason, guessed)
    return sizes


def _trained_size(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """Return Ultralytics' ``imgsz``: [height, width]."""
    try:
        size = ast.literal_eval(metadata.get("imgsz", ""))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(size, int):
        size = [size, size]
    fits = isinstance(size, list | tuple) and len(size) == 2
    return (size[0], size[1]) if fits and all(isinstance(d, int) and 0 < d < 1 << 14 for d in size) else None
