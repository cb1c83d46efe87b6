"""Static shapes for a model's dynamic dimensions: from its metadata, or a usual size with which it opens."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from edgekit.compiler.card_inference.facts import Declared, GraphFacts, UnopenedModel, read_facts
from edgekit.compiler.card_inference.recognized import ImageShape
from edgekit.errors import ModelError

SIZES = ((640, 640), (320, 320), (224, 224), (48, 320), (48, 192), (64, 256), (32, 128))
"""Height and width that are tried where the model leaves them open."""
TOKENS = 128
"""Length of a text where not fixed by the model; attention costs its square."""
STALE = 64
"""Height and width up to which a batch above 1 shows a shape that an exporter left behind: CenterFace's file
says 10x3x32x32, and takes any size."""
SILERO_STATE: Declared = (2, None, 128)
SILERO_WINDOW = 576
"""Silero VAD 5 and 6: what they declare of their state, and the samples of a run at 16 kHz."""
SMALLEST = 16
"""Least height and width of a picture; what is smaller is a table of features."""


class Size(NamedTuple):
    """The shape of an input, why, and whether it was guessed."""

    shape: tuple[int, ...]
    why: str
    guessed: bool


def open_static(
    source: UnopenedModel, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[GraphFacts, dict[str, Size]]:
    """Open a model, and the sizes that were chosen for it.

    Args:
        source: The model.
        shapes: Shapes by name that the user gives.

    Raises:
        ModelError: no usual size opens it.
    """
    refused: ModelError | None = None
    for chosen in _choices(source, shapes):
        try:
            facts = read_facts(source, {**{name: size.shape for name, size in chosen.items()}, **shapes})
        except ModelError as problem:
            refused = refused or problem
            continue
        fixed = {name: Size(tuple(shape), "set by --shape", False) for name, shape in shapes.items()}
        return facts, {**chosen, **fixed}
    assert refused is not None
    raise refused


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


def _choices(source: UnopenedModel, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, Size]]:
    fixed: dict[str, Size] = {}
    free: list[tuple[str, Declared]] = []
    for name, declared in source.inputs.items():
        if name in shapes or not declared:
            continue
        if as_image(name, declared) and is_free(declared):
            free.append((name, declared))
        elif declared == (None, None) and SILERO_STATE in source.inputs.values():
            fixed[name] = Size((1, SILERO_WINDOW), "Silero's at 16 kHz", False)
        elif declared == SILERO_STATE:
            fixed[name] = Size((2, 1, 128), "the batch is not fixed by the model", False)
        elif len(declared) == 2 and None in declared[1:]:
            fixed[name] = Size((1, TOKENS), "the length is not fixed by the model", True)
        elif declared[0] is None and None not in declared[1:]:
            shape = (1, *(d for d in declared[1:] if d))
            fixed[name] = Size(shape, "the batch is not fixed by the model", False)
    trained = _trained_size(source.metadata)
    sizes = [(trained, "the size it was trained for, by the model's metadata", False)] if trained else []
    for size, why, guessed in [*sizes, *((s, "not fixed by the model", True) for s in SIZES)]:
        chosen = dict(fixed)
        for name, declared in free:
            image = as_image(name, declared)
            assert image is not None
            chosen[name] = Size(resized(image, size, declared), why, guessed)
        yield chosen
        if not free:
            return


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
