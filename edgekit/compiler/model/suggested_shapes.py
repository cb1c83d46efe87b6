"""Suggested sizes of a model's dynamic dimensions, for the option that an error message offers to paste.

Sizes are found by trial: shapes are inferred for common sizes. A size is the model's own if no other fits the
graph, or no other gives the declared output sizes. Other sizes are marked as examples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from edgekit.compiler.model.input_shapes import (
    CHANNELS,
    Dimension,
    batch_dimensions,
    open_dimensions,
    picture_axes,
    shape_option,
)
from edgekit.compiler.model.node_checks import times
from edgekit.errors import ModelError

Sizes = tuple[int, ...]
"""A number, or a picture's height and width."""
PICTURE_SIZES: tuple[Sizes, ...] = (
    *((side, side) for side in (640, 224, 320, 416, 512, 256, 384, 300, 299)),
    *((480, 640), (48, 320), (32, 320), (64, 256)),
    *((side, side) for side in (192, 160, 128, 112, 96, 64, 32, 28)),
)
"""What detectors and classifiers take, and readers of text lines; the most common first."""
COUNTS: tuple[Sizes, ...] = ((16,), (1,), (8,), (32,), (64,), (128,), (256,), (512,))
"""Counts of rows in a first dimension that is not a batch: frames, boxes, points."""
CLASSIFIER_SIZE = (224, 224)
SEQUENCE_LENGTHS: tuple[Sizes, ...] = ((128,), (512,), (256,), (77,), (64,), (32,), (16,), (8,), (1,))
"""Tokens of a text; 77 are CLIP's."""
SIGNAL_LENGTHS: tuple[Sizes, ...] = ((16000,), (512,), (128,), (100,), (80,), (64,), (32,), (16,), (8,), (1,))
"""Numbers of a sound or a series: a second at 16 kHz, then smaller ones."""
TRIALS_LIMIT = 48
TRIAL_SECONDS = 3.0
"""CPU time for all trials; a network of 300 nodes takes 0.1 s each."""

Trial = Callable[[Mapping[str, tuple[int, ...]]], Sequence[tuple[int, ...]] | None]
"""Shapes of all inputs by name -> shapes of the outputs, -1 where unknown; None where they do not fit."""


class DimensionGroup(NamedTuple):
    """Open dimensions that are chosen together: those of one name, or a picture's height and width.

    Attributes:
        title: For the error, e.g. ``height and width``.
        dimensions: All of them.
        at: For each, which number of a size it takes.
        sizes: To try, the most plausible first.
    """

    title: str
    dimensions: tuple[Dimension, ...]
    at: tuple[int, ...]
    sizes: tuple[Sizes, ...]


def suggestion(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], trial: Trial) -> str:
    """Return the option to paste and the source of each number in it, as lines of an error.

    Args:
        inputs: The model's, with at least one open dimension.
        outputs: The model's, as the file declares them.
        trial: Infers the shapes.
    """
    wanted = [_static(value) for value in outputs]
    groups = _groups([value for value in inputs if value.shape is not None], outputs)
    chosen = {group: group.sizes[0] for group in groups}
    why = dict.fromkeys(groups, "an example")
    left, until = TRIALS_LIMIT, time.thread_time() + TRIAL_SECONDS
    for group in groups if all(value.shape is not None for value in inputs) else ():
        fits: dict[Sizes, int] = {}
        for size in group.sizes if len(group.sizes) > 1 else ():
            if not left or time.thread_time() > until:
                break
            left -= 1
            found = _tried(trial, _shapes(inputs, {**chosen, group: size}))
            if found is not None:
                fits[size] = sum(_same(dims, want) for dims, want in zip(found, wanted, strict=True))
        if not fits:
            continue
        best = max(fits.values())
        chosen[group] = next(size for size in fits if fits[size] == best)
        if best and list(fits.values()).count(best) == 1:
            why[group] = "from the shapes of the outputs" if len(fits) > 1 else "a common size that fits"
        elif len(fits) == 1:
            why[group] = "a common size that fits"
    options = [_option(value, chosen) for value in inputs if _is_open(value)]
    lines = [f"  {' '.join(options)}"]
    for group in groups:
        where = ", ".join(_places(group.dimensions))
        reason = "" if len(group.sizes) == 1 else f", {why[group]}"
        numbers = times([chosen[group][at] for at in sorted(set(group.at))])
        lines.append(f"  {group.title} ({where}): {numbers}{reason}")
    lines += [
        f"  input {value.name} has no shape; this is an example" for value in inputs if value.shape is None
    ]
    return "\n".join(lines)


def _groups(inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> list[DimensionGroup]:
    """Return the dynamic dimensions; those that determine others come first."""
    by_name = {value.name or "": value for value in inputs}
    dimensions = open_dimensions(inputs)
    batch = batch_dimensions(inputs)
    groups = []
    if batch:
        found = tuple(d for d in dimensions if d in batch)
        groups.append(DimensionGroup("batch", found, (0,) * len(found), ((1,),)))
    rest: dict[tuple[str, ...], list[Dimension]] = {}
    for d in (d for d in dimensions if d not in batch):
        of_picture = d.axis in picture_axes(by_name[d.input])[1:]
        key = ("symbol", d.symbol) if d.symbol else ("axis", d.input, str(d.axis))
        rest.setdefault(("picture", d.input) if of_picture else key, []).append(d)
    return [*groups, *(_group(found, by_name, outputs) for found in rest.values())]


def _group(
    dimensions: Sequence[Dimension], by_name: Mapping[str, ir.Value], outputs: Sequence[ir.Value]
) -> DimensionGroup:
    value, first = by_name[dimensions[0].input], dimensions[0]
    axes = picture_axes(value)
    if first.axis in axes[1:]:
        titles = [("height", "width")[axes.index(d.axis) - 1] for d in dimensions]
        at = tuple(axes.index(d.axis) - 1 for d in dimensions)
        return DimensionGroup(" and ".join(titles), tuple(dimensions), at, _picture_sizes(outputs))
    title, sizes = first.symbol or "length", SIGNAL_LENGTHS
    if axes and first.axis == axes[0]:
        title, sizes = "channels", tuple((number,) for number in CHANNELS)
    elif value.dtype is not None and value.dtype.is_integer():
        sizes = SEQUENCE_LENGTHS
    elif first.axis == 0 and len(value.shape or ()) > 1:
        sizes = COUNTS
    elif len(value.shape or ()) == 3 and first.axis == 1 and len(by_name) > 1:
        sizes = ((1,), *SIGNAL_LENGTHS)  # the second dimension of a recurrent state is mostly its batch
    return DimensionGroup(title, tuple(dimensions), (0,) * len(dimensions), tuple(dict.fromkeys(sizes)))


def _picture_sizes(outputs: Sequence[ir.Value]) -> tuple[Sizes, ...]:
    """Return the picture sizes to try. A model with an output of two dimensions is taken for a classifier."""
    classifies = any(value.shape is not None and len(value.shape) == 2 for value in outputs)
    return tuple(dict.fromkeys((CLASSIFIER_SIZE, *PICTURE_SIZES))) if classifies else PICTURE_SIZES


def _shapes(inputs: Sequence[ir.Value], chosen: Mapping[DimensionGroup, Sizes]) -> dict[str, tuple[int, ...]]:
    sizes = {
        (d.input, d.axis): size[at]
        for group, size in chosen.items()
        for d, at in zip(group.dimensions, group.at, strict=True)
    }
    return {
        value.name or "": tuple(
            sizes.get((value.name or "", axis), dim if isinstance(dim, int) else 1)
            for axis, dim in enumerate(value.shape or ())
        )
        for value in inputs
    }


def _tried(trial: Trial, shapes: Mapping[str, tuple[int, ...]]) -> Sequence[tuple[int, ...]] | None:
    try:
        return trial(shapes)
    except ModelError:
        return None


def _option(value: ir.Value, chosen: Mapping[DimensionGroup, Sizes]) -> str:
    if value.shape is None:
        return shape_option(value.name or "", (1, 3, *PICTURE_SIZES[0]))
    return shape_option(value.name or "", _shapes([value], chosen)[value.name or ""])


def _is_open(value: ir.Value) -> bool:
    return value.shape is None or bool(open_dimensions([value]))


def _static(value: ir.Value) -> tuple[int, ...]:
    """Return the declared shape, with -1 for dynamic dimensions."""
    return tuple(d if isinstance(d, int) and d > 0 else -1 for d in value.shape or ())


def _same(shape: Sequence[int], declared: Sequence[int]) -> int:
    """Count the declared dimensions that the inferred shape matches."""
    if len(shape) != len(declared):
        return 0
    return sum(want > 0 and dim == want for dim, want in zip(shape, declared, strict=True))


def _places(dimensions: Sequence[Dimension]) -> list[str]:
    """Format ``dimensions 2 and 3 of images``, for all inputs that share the dimension."""
    axes: dict[str, list[int]] = {}
    for dimension in dimensions:
        axes.setdefault(dimension.input, []).append(dimension.axis)
    inputs: dict[tuple[int, ...], list[str]] = {}
    for name, found in axes.items():
        inputs.setdefault(tuple(found), []).append(name)
    return [
        f"dimension{'s' if len(found) > 1 else ''} {' and '.join(map(str, found))} of {', '.join(names)}"
        for found, names in inputs.items()
    ]
