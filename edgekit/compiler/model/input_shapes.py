"""Static shapes for a model's inputs: those that the user gives, or a batch of 1 if nothing else is open.

Targets compile fixed shapes, and exporters leave dimensions open (``batch x 3 x height x width``). In files 0
and -1 mean open too; in shapes that the user gives, 0 means 0.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

import onnx_ir as ir

from edgekit.compiler.model.node_checks import times
from edgekit.compiler.model.shape_sets import is_several
from edgekit.errors import ModelError, UsageError

MAX_INPUT_ELEMENTS = 2**31
THE_IMAGE = ""
"""Name of a shape that is given without one: that of the only input, or the only one of four dimensions."""

NOT_A_BATCH = re.compile(
    r"seq|len|token|time|frame|step|height|width|box|point|node|edge|word|char|audio|past|cache|head|[*+/-]|^[^NB]$",
    re.IGNORECASE,
)
"""Names of a first dimension that is not a batch: words, one letter other than N and B, and expressions."""

EXPRESSION_CHARS = 100
"""Longest name of a dimension that is read as an expression."""

CHANNELS = (3, 1, 4)
"""Numbers of channels of images, the most common first."""


class Dimension(NamedTuple):
    """An open dimension of an input.

    Attributes:
        symbol: Its name in the model; "" if it has none.
    """

    input: str
    axis: int
    symbol: str


def fix_shapes(inputs: Sequence[ir.Value], shapes: Mapping[str, Sequence[int]]) -> list[ir.Value]:
    """Set the user's shapes. Dimensions of other inputs with the same names get the same sizes; names may be
    expressions, e.g. ``past + 1``.

    Args:
        shapes: Shapes by input name; "" is the only input, or the only one with four dimensions.

    Returns:
        The inputs without a given shape.

    Raises:
        UsageError: an input does not exist, or has another number of dimensions.
    """
    by_name = {value.name or "": value for value in inputs}
    if several := [name for name, shape in shapes.items() if is_several(shape)]:
        raise UsageError(f"--shape {several[0]}: several shapes are for edgekit build; give one")
    fixed = _named(by_name, shapes)
    bound: dict[str, set[int]] = {}
    for name, shape in fixed.items():
        _check_given(by_name, name, shape)
        for dim, size in zip(by_name[name].shape or (), shape, strict=False):
            bound.setdefault(_symbol(dim), set()).add(size)
    # A name with two sizes is one that the exporter gave to unrelated dimensions.
    sizes = {symbol: min(dims) for symbol, dims in bound.items() if symbol and len(dims) == 1}
    for name, value in by_name.items():
        if name in fixed:
            value.shape = ir.Shape(tuple(fixed[name]))
        elif value.shape is not None:
            dims = [(dim, evaluated(_symbol(dim), sizes)) for dim in value.shape]
            value.shape = ir.Shape([dim if size is None else size for dim, size in dims])
    return [value for name, value in by_name.items() if name not in fixed]


def fix_open(inputs: Sequence[ir.Value], picture_size: tuple[int, int] | None) -> str:
    """Set the batch to 1, and an image's size to the one in the model's metadata; all or nothing.

    Args:
        picture_size: Height and width of the only image input; None if they are unknown.

    Returns:
        The sizes that were set, as text; "" if no dimension is dynamic, or others are too.
    """
    dimensions, batch = open_dimensions(inputs), batch_dimensions(inputs)
    sizes = dict.fromkeys(batch, 1)
    pictures = [value for value in inputs if picture_axes(value)]
    if picture_size is not None and len(pictures) == 1:
        for axis, size in zip(picture_axes(pictures[0])[1:], picture_size, strict=True):
            sizes |= {d: size for d in dimensions if d[:2] == (pictures[0].name, axis)}
    if not dimensions or set(dimensions) != set(sizes) or any(value.shape is None for value in inputs):
        return ""
    by_name = {value.name or "": value for value in inputs}
    for d in dimensions:
        shape = by_name[d.input].shape or ()
        by_name[d.input].shape = ir.Shape([sizes[d] if k == d.axis else dim for k, dim in enumerate(shape)])
    names = list(dict.fromkeys(d.input for d in dimensions if d in batch))
    notes = [f"batch 1 of {', '.join(names)}"] if names else []
    if set(sizes) != batch and picture_size is not None:
        notes.append(f"size {times(picture_size)} of {pictures[0].name} (imgsz in its metadata)")
    first = dimensions[0].input
    example = shape_option(first, tuple(by_name[first].shape or ()))
    return f"not fixed in the model, so these were assumed: {', '.join(notes)}; to choose them: {example}"


def recorded_picture_size(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """Return height and width as Ultralytics' exporter records them: ``imgsz`` is ``[height, width]``."""
    match = re.fullmatch(r"\[([1-9]\d{0,4}), ?([1-9]\d{0,4})\]", metadata.get("imgsz", "")[:20], re.ASCII)
    return (int(match[1]), int(match[2])) if match else None


def picture_axes(value: ir.Value) -> tuple[int, ...]:
    """Return (channels, height, width) of an input with four dimensions; () for others."""
    dims = list(value.shape or ())
    if len(dims) != 4:
        return ()
    return (3, 1, 2) if dims[3] in CHANNELS and dims[1] not in CHANNELS else (1, 2, 3)


def open_dimensions(inputs: Sequence[ir.Value]) -> list[Dimension]:
    """Return the open dimensions of inputs that have a rank."""
    dimensions = []
    for value in inputs:
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int):
                dimensions.append(Dimension(value.name or "", axis, _symbol(dim)))
            elif dim <= 0:
                dimensions.append(Dimension(value.name or "", axis, ""))
    return dimensions


def batch_dimensions(inputs: Sequence[ir.Value]) -> set[Dimension]:
    """Return the open dimensions that are the batch.

    That is dimension 0 of an input of two or more, unless its name says otherwise, and every dimension of
    the same name or one with ``batch`` in it: a recurrent state has it second.
    """
    dimensions = open_dimensions(inputs)
    rank = {value.name or "": len(value.shape or ()) for value in inputs}
    repeated = {
        d.symbol for d in dimensions if d.symbol and sum(o[::2] == d[::2] for o in dimensions) > 1
    }  # twice in one input: an adjacency matrix

    def may_be(dimension: Dimension) -> bool:
        return dimension.symbol not in repeated and not NOT_A_BATCH.search(dimension.symbol)

    first = {d for d in dimensions if d.axis == 0 and rank[d.input] > 1 and may_be(d)}
    symbols = {d.symbol for d in first if d.symbol}
    named = {d for d in dimensions if may_be(d) and (d.symbol in symbols or "batch" in d.symbol.lower())}
    return first | named


def check_sizes(inputs: Sequence[ir.Value]) -> None:
    """Raise ModelError if an input has more elements than engines support."""
    for value in inputs:
        dims = [dim for dim in value.shape or () if isinstance(dim, int)]
        if math.prod(dims) > MAX_INPUT_ELEMENTS:
            raise ModelError(f"input {value.name} is {times(dims)}: more than 2^31 elements")


def shape_option(name: str, shape: Sequence[object]) -> str:
    """Return the option that gives this shape, to paste into a shell."""
    sizes = "x".join(map(str, shape))
    return f"--shape {quote(f'{name}={sizes}')}"


def declared(value: ir.Value) -> str:
    """Return the declared shape of an input, e.g. ``Nx3x?x?``."""
    if value.shape is None:
        return "of unknown shape"
    return times([str(d) if isinstance(d, int) and d > 0 else _symbol(d) or "?" for d in value.shape])


def _symbol(dim: int | ir.SymbolicDim) -> str:
    """Return the name of a dimension; "" if it has none, or if it is ``?`` as some exporters write."""
    return "" if isinstance(dim, int) else (dim.value or "").strip("?")


def evaluated(symbol: str, sizes: Mapping[str, int]) -> int | None:
    """Return the size of a dimension by its name, which may be an expression of others: ``past + 1``.

    Returns:
        The size; None if the name says nothing.
    """
    if symbol in sizes or len(symbol) > EXPRESSION_CHARS:
        return sizes.get(symbol)
    try:
        size = _evaluated(ast.parse(symbol.strip(), mode="eval").body, sizes)
        return size if size > 0 else None
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluated(node: ast.AST, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluated(left, sizes), _evaluated(right, sizes)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
    raise ValueError("not an expression of sizes")


def _named(by_name: Mapping[str, ir.Value], shapes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return the shapes by input name. A shape without a name is assigned to its input."""
    named = {name: shape for name, shape in shapes.items() if name != THE_IMAGE}
    if THE_IMAGE in shapes:
        shape = shapes[THE_IMAGE]
        images = [
            name for name, value in by_name.items() if value.shape is not None and len(value.shape) == 4
        ]
        chosen = list(by_name) if len(by_name) == 1 else images
        if len(chosen) != 1:
            raise UsageError(
                f"--shape {times(shape)}: which input is it for? Write --shape NAME={times(shape)}; the "
                f"model's inputs are {_all(by_name)}"
            )
        named[chosen[0]] = shape
    return named


def _check_given(by_name: Mapping[str, ir.Value], name: str, shape: Sequence[int]) -> None:
    option = f"--shape {name}={times(shape)}"
    if name not in by_name:
        raise UsageError(f"{option}: the model has no input {name}; its inputs are {_all(by_name)}")
    model_shape = by_name[name].shape
    if model_shape is not None and len(model_shape) != len(shape):
        raise UsageError(
            f"{option}: has {len(shape)} dimensions but input {name} has {len(model_shape)}; the model's "
            f"inputs are {_all(by_name)}"
        )
    if any(d < 0 for d in shape) or math.prod(shape) > MAX_INPUT_ELEMENTS:
        raise UsageError(f"{option}: each dimension must be 0 or more, with at most 2^31 elements in total")


def _all(by_name: Mapping[str, ir.Value]) -> str:
    return "; ".join(f"{name} {declared(value)}" for name, value in by_name.items())
