"""Usual sizes of dynamic dimensions, by what an input holds: an image, a text, a recording, a recurrent
state.

Names, element types and the nodes that read an input tell what it holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import onnx_ir as ir

from edgekit.compiler.model.input_shapes import CHANNELS, Dimension, picture_axes
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import ints_of

Sizes = tuple[int, ...]
"""A number, or an image's height and width."""
PICTURE_SIZES: tuple[Sizes, ...] = (
    *((side, side) for side in (640, 224, 320, 416, 512, 256, 384, 300, 299)),
    *((480, 640), (48, 320), (32, 320), (64, 256)),
    *((side, side) for side in (192, 160, 128, 112, 96, 64, 32, 28)),
)
"""Sizes that detectors, classifiers and readers of text lines take, the most common first."""
CLASSIFIER_SIZE = (224, 224)
TEXT_LINES: tuple[Sizes, ...] = ((48, 320), (32, 320), (64, 256), (32, 128))
"""Sizes for readers of text lines, whose layers reduce the height more than the width."""
TEXT_LINE_CLASSIFIER = (48, 192)
"""PaddleOCR's, for the direction of a text line."""
UPSCALED = (128, 128)
"""Size for a network whose output is a larger image."""
WINDOWS = (64, 128, 256, 320)
"""Counts that divide into halves, for the other side of an image whose height or width is fixed."""
TOKENS: tuple[Sizes, ...] = ((128,), (512,), (256,), (77,), (64,), (32,), (16,), (8,), (1,))
"""Tokens of a text, or vectors of one; 77 are CLIP's."""
CACHED: tuple[Sizes, ...] = ((127,), (15,), (7,), (1,))
"""Earlier tokens in a cache: one new token makes them 128, 16, 8 and 2."""
ONE_TOKEN: tuple[Sizes, ...] = ((1,), (16,))
"""New tokens of a decoder whose earlier ones are in a cache."""
EARLIER: tuple[Sizes, ...] = ((16,), (4,), (8,), (2,), (1,))
"""Earlier frames that a network for streams takes again."""
FRAMES: tuple[Sizes, ...] = ((100,), (128,), (64,), (32,), (16,), (3000,), (8,), (1,))
"""Feature vectors of a recording: a second has 100; 3000 are Whisper's."""
SOUND: tuple[Sizes, ...] = ((16000,), (512,), (128,), (100,), (80,), (64,), (32,), (16,), (8,), (1,))
"""Numbers of a recording or a series: a second at 16 kHz, then smaller ones."""
POINTS: tuple[Sizes, ...] = ((1024,), (512,), (128,), (16,), (1,))
COUNTS: tuple[Sizes, ...] = ((16,), (1,), (8,), (32,), (64,), (128,), (256,), (512,))
"""Counts of rows in a first dimension that is not a batch: frames, boxes, points."""
SILERO_STATE = (2, 128)
SILERO_WINDOW = 576
"""Silero VAD 5 and 6: layers and width of their state, and the samples of a run at 16 kHz. 64 of these are
the end of the run before (its README)."""

_PAST = re.compile(r"past|cache", re.IGNORECASE)
_FRAMES = re.compile(r"mel|fbank|feat|spec|mfcc|frame|chunk", re.IGNORECASE)
_POINTS = re.compile(r"point|cloud|vert|xyz", re.IGNORECASE)
_VECTORS = re.compile(r"hidden|embed|memory|encoder|tgt|token", re.IGNORECASE)
_LENGTH = re.compile(r"seq|len|token|past|cache|time|frame", re.IGNORECASE)
_FEATURES = (13, 20, 23, 26, 39, 40, 64, 80)
"""Numbers in a feature vector of audio."""
_MOVES = ("Identity", "Cast", "Slice", "Split", "Squeeze", "Unsqueeze", "Transpose", "Gather", "Reshape")
LEAST_PATCH, LEAST_PATCHES = 4, 16
"""Side of a patch, and patches of an image."""
_RECURRENT = ("LSTM", "GRU", "RNN")


EXAMPLE = "an example"


class UsualSizes(NamedTuple):
    """Sizes of a dimension, or of an image.

    Attributes:
        noun: Noun for a dimension without a name, e.g. ``length``.
        sizes: Sizes to try, the most plausible first.
    """

    noun: str
    sizes: tuple[Sizes, ...]
    reason: str = EXAMPLE


class Recurrent(NamedTuple):
    """Sizes of an initial state: layers times directions, and the width that the weights have."""

    layers: int
    width: int


def is_picture_side(value: ir.Value, dimension: Dimension) -> bool:
    """Return whether a dimension is a height or width. Attention masks, caches of attention heads and
    spectrograms have four dimensions too."""
    axes = picture_axes(value)
    if dimension.axis not in axes[1:]:
        return False
    channels = (value.shape or ())[axes[0]]
    named = _LENGTH.search(dimension.symbol) or _PAST.search(value.name or "")
    return not named and (not isinstance(channels, int) or channels <= 0 or channels in CHANNELS)


def picture_sizes(value: ir.Value, outputs: Sequence[ir.Value], nodes: Sequence[ir.Node]) -> UsualSizes:
    """Return the image sizes to try.

    Args:
        value: The input; one of its height and width may be static.
        outputs: Outputs of the model. One of two dimensions shows a classifier.
    """
    classifies = any(output.shape is not None and len(output.shape) == 2 for output in outputs)
    sizes = (CLASSIFIER_SIZE, *PICTURE_SIZES) if classifies else PICTURE_SIZES
    height_stride, width_stride = layer_strides(nodes)
    if height_stride > width_stride:
        sizes = (*((TEXT_LINE_CLASSIFIER,) if classifies else ()), *TEXT_LINES, *sizes)
    dims = [(value.shape or ())[axis] for axis in picture_axes(value)[1:]]
    height, width = (dim if isinstance(dim, int) and dim > 0 else None for dim in dims)
    fixed, fixed_axis = height or width, 0 if height else 1
    if fixed is not None:
        sides = [size[1 - fixed_axis] for size in sizes if size[fixed_axis] == fixed]
        sides += [fixed, *WINDOWS, *(size[0] for size in sizes)]
        sizes = tuple((height or side, width or side) for side in sides)
    side = 0 if fixed else patch_table_side(value, nodes)
    reason = "from the table of its patches' positions" if side else EXAMPLE
    return UsualSizes("", tuple(dict.fromkeys(((side, side), *sizes) if side else sizes)), reason)


def dimension_sizes(value: ir.Value, dimension: Dimension, inputs: Sequence[ir.Value]) -> UsualSizes:
    """Return the sizes to try of a dimension that is not a side of an image."""
    dims, axis = list(value.shape or ()), dimension.axis
    name = f"{value.name} {dimension.symbol}"
    state = initial_state(value) if len(dims) == 3 else None
    if len(dims) == 4 and picture_axes(value)[0] == axis:
        return UsualSizes("channels", tuple((number,) for number in CHANNELS))
    if state is not None:
        return UsualSizes("state", (((state.layers, 1, state.width)[axis],),), "from the layers that read it")
    if _is_silero(inputs):
        return UsualSizes("length", ((1,) if len(dims) == 3 else (SILERO_WINDOW,),), "Silero's at 16 kHz")
    if _PAST.search(name):
        return UsualSizes("length", CACHED if len(dims) == 4 else EARLIER)
    if value.dtype is not None and value.dtype.is_integer():
        cached = any(_PAST.search(input_value.name or "") for input_value in inputs)
        return UsualSizes("length", ONE_TOKEN + TOKENS if cached else TOKENS)
    if axis == 0 and len(dims) > 1:
        return UsualSizes("length", COUNTS)
    return UsualSizes("length", _float_sizes(value.name or "", dimension.symbol, dims, axis))


def _float_sizes(
    name: str, symbol: str, dims: Sequence[int | ir.SymbolicDim], axis: int
) -> tuple[Sizes, ...]:
    others = [dim for index, dim in enumerate(dims) if index and index != axis]
    if _POINTS.search(f"{name} {symbol}"):
        return POINTS
    if _FRAMES.search(name) or len(dims) == 4:
        return FRAMES
    if len(dims) == 3 and _VECTORS.search(name):
        return TOKENS
    if any(dim in _FEATURES for dim in others):
        return FRAMES
    is_sound = len(dims) < 3 or (axis == len(dims) - 1 and others == [1])
    return SOUND if is_sound else TOKENS


def initial_state(value: ir.Value) -> Recurrent | None:
    """Return the sizes of the recurrent state that an input is, by the layers that begin with it; or None."""
    waiting, visited = [value], {value}
    layers, width = 0, 0
    while waiting:
        for node, index in waiting.pop().uses():
            if node.op_type in _RECURRENT and index in (5, 6):
                weights = static_dims(node.inputs[2])
                if weights is None or len(weights) != 3:
                    return None
                layers, width = layers + weights[0], weights[2]
            elif node.op_type in _MOVES and index == 0:
                waiting += [output for output in node.outputs if output not in visited]
                visited.update(node.outputs)
    return Recurrent(layers, width) if layers else None


def layer_strides(nodes: Iterable[ir.Node]) -> tuple[int, int]:
    """Return the products of the strides of all convolutions and poolings, vertical and horizontal."""
    height = width = 1
    for node in nodes:
        strides = ints_of(node, "strides")
        if len(strides) == 2 and node.op_type != "ConvTranspose":
            height, width = height * strides[0], width * strides[1]
    return height, width


def patch_table_side(value: ir.Value, nodes: Sequence[ir.Node]) -> int:
    """Return the side of the image that a vision transformer was trained with; 0 for another network.

    Its first layer cuts the image into patches, and a table has a vector for each of them, and for up to
    two further tokens.
    """
    first = next((node for node in nodes if node.op_type == "Conv"), None)
    weights = static_dims(first.inputs[1]) if first is not None else None
    if first is None or weights is None or len(weights) != 4:
        return 0
    side, strides = weights[2], ints_of(first, "strides")
    if side < LEAST_PATCH or weights[3] != side or strides != [side, side]:
        return 0
    tables = {item for node in nodes for item in node.inputs if item is not None and item.is_initializer()}
    rows = [dims[1] for item in tables if (dims := static_dims(item)) and dims[::2] == (1, weights[0])]
    count = max(rows, default=0)
    return next((math.isqrt(count - extra) * side for extra in range(3) if _is_square(count - extra)), 0)


def _is_square(number: int) -> bool:
    return number >= LEAST_PATCHES and math.isqrt(number) ** 2 == number


def _is_silero(inputs: Sequence[ir.Value]) -> bool:
    shapes = [list(value.shape or ()) for value in inputs]
    return any(len(dims) == 3 and (dims[0], dims[2]) == SILERO_STATE for dims in shapes) and any(
        len(dims) == 2 for dims in shapes
    )
