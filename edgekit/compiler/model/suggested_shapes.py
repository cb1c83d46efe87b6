"""Suggested sizes of a model's dynamic dimensions, for the option that an error message offers to paste.

Usual sizes are tried first. Where a node of the graph refuses them, the size that it needs is tried, then
other usual ones. The same model gives the same suggestion: trials are limited by the number of inferred
nodes, never by time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from edgekit.compiler.model.input_shapes import (
    Dimension,
    batch_dimensions,
    evaluated,
    open_dimensions,
    picture_axes,
    shape_option,
)
from edgekit.compiler.model.node_checks import times
from edgekit.compiler.model.shape_trials import Attempt, Trial
from edgekit.compiler.model.usual_sizes import (
    EXAMPLE,
    PICTURE_SIZES,
    UPSCALED,
    Sizes,
    UsualSizes,
    dimension_sizes,
    initial_state,
    is_picture_side,
    picture_sizes,
)
from edgekit.errors import ModelError

TRIAL_NODES = 10_000
"""Nodes that all trials together may infer; 300 take 0.1 s. A trial ends at the node that does not fit."""
ALTERNATIVES = 3


class DimensionGroup(NamedTuple):
    """Dynamic dimensions that are chosen together: those of one name, or an image's height and width.

    Attributes:
        title: For messages, e.g. ``height and width``.
        positions: For each, which number of a size it takes.
    """

    title: str
    dimensions: tuple[Dimension, ...]
    positions: tuple[int, ...]
    usual_sizes: UsualSizes


class SuggestedShapes(NamedTuple):
    """Shapes for a model's dynamic inputs, and the source of each number.

    Attributes:
        reasons: Lines such as ``height and width (dimensions 2 and 3 of x): 640x640, an example``.
        by_input: The same by name of input, on one line: ``batch 1, height and width 640x640 (an example)``.
        examples: Inputs with a size that is only an example.
        alternatives: Other shapes that the graph may take too, with other sizes if those in ``shapes`` are
            examples.
    """

    shapes: Mapping[str, tuple[int, ...]]
    reasons: tuple[str, ...]
    by_input: Mapping[str, str]
    examples: frozenset[str]
    alternatives: tuple[Mapping[str, tuple[int, ...]], ...]

    @property
    def option(self) -> str:
        return " ".join(shape_option(name, shape) for name, shape in self.shapes.items())

    def __str__(self) -> str:
        return "\n".join(f"  {line}" for line in (self.option, *self.reasons))


class DynamicShapesError(ModelError):
    """A model has dynamic dimensions that nothing fixes."""

    def __init__(self, suggested: SuggestedShapes, name: str = "") -> None:
        prefix = f"{name}: " if name else ""
        super().__init__(
            f"{prefix}has dimensions that are not fixed; add a shape, with your numbers:\n{suggested}"
        )
        self.suggested = suggested


def suggest_shapes(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], nodes: Sequence[ir.Node], trial: Trial
) -> SuggestedShapes:
    """Return shapes for the inputs, with which the graph can be inferred if such shapes are found.

    Args:
        inputs: The model's inputs that the user gave no shape, with at least one dynamic dimension.
        outputs: The model's, as the file declares them.
    """
    ranked = [value for value in inputs if value.shape is not None]
    groups = _groups(ranked, outputs, nodes)
    search = _Search(inputs, outputs, groups, trial)
    if len(ranked) == len(inputs):
        search.run()
    lines, by_input = [], dict[str, list[str]]()
    for group in groups:
        numbers = times([search.chosen[group][index] for index in sorted(set(group.positions))])
        places, reason = ", ".join(_places(group.dimensions)), search.reasons[group]
        lines.append(f"{group.title} ({places}): {numbers}" + (reason and f", {reason}"))
        for name in dict.fromkeys(dimension.input for dimension in group.dimensions):
            by_input.setdefault(name, []).append(f"{group.title} {numbers}" + (reason and f" ({reason})"))
    for name in (value.name or "" for value in inputs if value.shape is None):
        lines.append(f"input {name} has no shape; this is an example")
        by_input[name] = ["an example, since it has no shape"]
    short = {name: ", ".join(parts) for name, parts in by_input.items()}
    free = [group for group in groups if search.reasons[group] == EXAMPLE]
    examples = frozenset(dimension.input for group in free for dimension in group.dimensions)
    shapes, others = search.shapes_of(search.chosen), tuple(search.alternatives())
    return SuggestedShapes(shapes, tuple(lines), short, examples, others)


class _Search:
    """Search for a size of each group with which the graph can be inferred."""

    def __init__(
        self,
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        groups: Sequence[DimensionGroup],
        trial: Trial,
    ) -> None:
        self.inputs, self.outputs, self.groups, self.trial = inputs, outputs, groups, trial
        self.chosen = {group: group.usual_sizes.sizes[0] for group in groups}
        self.reasons = {group: group.usual_sizes.reason for group in groups}
        self.left = TRIAL_NODES

    def run(self) -> None:
        best = self._attempt(self.chosen)
        for group in self.groups:
            best = self._improved(group, best)
        for group in self.groups:
            if self.reasons[group] == EXAMPLE and self._is_upscaled(group, best):
                smaller = self._attempt({**self.chosen, group: UPSCALED})
                if self._score(smaller) >= self._score(best):
                    self.chosen[group] = UPSCALED

    def _is_upscaled(self, group: DimensionGroup, attempt: Attempt) -> bool:
        if len(self.chosen[group]) < 2:
            return False
        pictures = [dims for dims in attempt.outputs or () if dims is not None and len(dims) == 4]
        return any(max(dims) > max(self.chosen[group]) for dims in pictures)

    def _improved(self, group: DimensionGroup, best: Attempt) -> Attempt:
        tried = {self.chosen[group]}
        refused = best.outputs is None
        needed = dict.fromkeys(_needed(self.chosen[group], best.ratio))
        waiting = [*needed, *group.usual_sizes.sizes]
        while waiting and self.left > 0 and not self._is_right(best):
            size = waiting.pop(0)
            if size in tried:
                continue
            tried.add(size)
            attempt = self._attempt({**self.chosen, group: size})
            if attempt.outputs is None and attempt.ratio:
                more = [option for option in _needed(size, attempt.ratio) if option not in tried]
                needed |= dict.fromkeys(more)
                waiting = [*more, *waiting]
            if self._score(attempt) > self._score(best):
                best, self.chosen[group] = attempt, size
                by_outputs = attempt.outputs is not None and not refused
                self.reasons[group] = (
                    "from the shapes of the outputs"
                    if by_outputs
                    else "from the constants of the graph"
                    if size in needed
                    else "a common size that fits"
                )
        return best

    def _attempt(self, chosen: Mapping[DimensionGroup, Sizes]) -> Attempt:
        attempt = self.trial(self.shapes_of(chosen))
        self.left -= attempt.nodes
        return attempt

    def _score(self, attempt: Attempt) -> tuple[bool, int]:
        if attempt.outputs is None:
            return False, attempt.nodes
        return True, self._matches(attempt)[0]

    def _is_right(self, attempt: Attempt) -> bool:
        if attempt.outputs is None:
            return False
        matched, total = self._matches(attempt)
        return matched == total

    def _matches(self, attempt: Attempt) -> tuple[int, int]:
        """Return how many of the outputs' properties an attempt has, and how many there are: a known shape,
        and the sizes that the file declares."""
        matched = total = 0
        for dims, value in zip(attempt.outputs or (), self.outputs, strict=True):
            sizes = [d if isinstance(d, int) and d > 0 else -1 for d in value.shape or ()]
            total += 1 + sum(size > 0 for size in sizes)
            if dims is not None and (value.shape is None or len(dims) == len(sizes)):
                matched += -1 not in dims
                matched += sum(size == dim for size, dim in zip(sizes, dims, strict=False) if size > 0)
        return matched, total

    def shapes_of(self, chosen: Mapping[DimensionGroup, Sizes]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all dynamic inputs by name; sizes that others determine are computed."""
        sizes = {
            (d.input, d.axis): size[position]
            for group, size in chosen.items()
            for d, position in zip(group.dimensions, group.positions, strict=True)
        }
        symbols = {d.symbol: sizes[d[:2]] for g in chosen for d in g.dimensions if d.symbol}
        shapes = {}
        for value in self.inputs:
            name, dims = value.name or "", list(value.shape or (1, 3, *PICTURE_SIZES[0]))
            symbol = {d.axis: d.symbol for d in open_dimensions([value])}
            if value.shape is None or symbol:
                shapes[name] = tuple(
                    dim
                    if isinstance(dim, int) and dim > 0
                    else sizes.get((name, axis)) or evaluated(symbol[axis], symbols) or 1
                    for axis, dim in enumerate(dims)
                )
        return shapes

    def alternatives(self) -> Iterator[dict[str, tuple[int, ...]]]:
        free = [g for g in self.groups if self.reasons[g] == EXAMPLE and len(g.usual_sizes.sizes) > 1]
        for number in range(ALTERNATIVES if free else 0):
            other = dict(self.chosen)
            for group in free:
                sizes = [size for size in group.usual_sizes.sizes if size != self.chosen[group]]
                other[group] = sizes[number % len(sizes)]
            yield self.shapes_of(other)


def _needed(size: Sizes, ratio: float) -> list[Sizes]:
    """Return the sizes that have ``ratio`` times as many elements: rounded as usual, then exactly."""
    if not ratio or ratio == 1:
        return []
    if len(size) == 1:
        exact = max(size[0] * ratio, 1.0)
        unit = 10 ** max(math.floor(math.log10(exact)) - 1, 0)
        return [(round(exact / unit) * unit,), (round(exact),)]
    sides = [side * math.sqrt(ratio) for side in size]
    return [tuple(max(round(side / step), 1) * step for side in sides) for step in (32, 16, 14, 8, 1)]


def _groups(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], nodes: Sequence[ir.Node]
) -> list[DimensionGroup]:
    """Return the dynamic dimensions by what determines them; those that others determine are left out."""
    by_name = {value.name or "": value for value in inputs}
    dimensions = open_dimensions(inputs)
    states = {value.name for value in inputs if initial_state(value) is not None}  # their first axis: layers
    batch = {d for d in batch_dimensions(inputs) if d.axis or d.input not in states}
    groups = []
    if batch:
        batched = tuple(d for d in dimensions if d in batch)
        groups.append(DimensionGroup("batch", batched, (0,) * len(batched), UsualSizes("batch", ((1,),), "")))
    names = {d.symbol: 2 for d in dimensions if d.symbol.isidentifier()}
    rest: dict[tuple[str, ...], list[Dimension]] = {}
    for d in (d for d in dimensions if d not in batch):
        if d.symbol not in names and evaluated(d.symbol, names):
            continue
        key = ("symbol", d.symbol) if d.symbol else ("axis", d.input, str(d.axis))
        rest.setdefault(("picture", d.input) if is_picture_side(by_name[d.input], d) else key, []).append(d)
    for (kind, *_), of_group in rest.items():
        first = next((d for d in of_group if d.input in states), of_group[0])
        value, positions = by_name[first.input], (0,) * len(of_group)
        if kind == "picture":
            positions = tuple(picture_axes(value).index(d.axis) - 1 for d in of_group)
            sizes = picture_sizes(value, outputs, nodes)
            title = " and ".join(("height", "width")[side] for side in positions)
        else:
            sizes = dimension_sizes(value, first, inputs)
            title = first.symbol or sizes.noun
        groups.append(DimensionGroup(title, tuple(of_group), positions, sizes))
    return groups


def _places(dimensions: Sequence[Dimension]) -> list[str]:
    axes: dict[str, list[int]] = {}
    for dimension in dimensions:
        axes.setdefault(dimension.input, []).append(dimension.axis)
    inputs: dict[tuple[int, ...], list[str]] = {}
    for name, indices in axes.items():
        inputs.setdefault(tuple(indices), []).append(name)
    return [
        f"dimension{'s' if len(indices) > 1 else ''} {' and '.join(map(str, indices))} of {', '.join(names)}"
        for indices, names in inputs.items()
    ]
