"""Images as bytes: ``--io uint8``. An image input takes uint8 [1, H, W, C] as a camera gives it, in RGB.

    pixels [1,3,H,W], float, as the card says -> Conv(W, b)
        =>   bytes [1,H,W,3] -> Transpose -> Cast -> Conv(W', b')

    colour    W's input channels in the other order
    std       W / std: exact at padded borders too, since zero stays zero
    mean      b - sum of W' * mean, only if no Conv pads: what is padded is zero after the mean is subtracted,
              so it would have to be the mean before. Else a Sub of the mean stays

What can't be folded stays as operators in front of the model. The source model gets all of it as operators,
the same as in ``processing/image_preparation.py``, so that it can be run on the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    free_name,
    input_of,
    int_of,
    ints_of,
    text_of,
)
from edgekit.compiler.model.rewriting import opset_of as opset_in
from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.image_preparation import LIMITS
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Array

BYTES = "uint8"
ROUND_SINCE = 11
"""ONNX opset that has Round, which cards of integer inputs need."""


def find_byte_input(requested: str | Mapping[str, str] | None, card: Card | None) -> ImageInput | None:
    """Return the card's image input that takes bytes; None if the user does not request bytes.

    Args:
        requested: Layouts like for ``io_layouts.lay_out``; without a name: the card's image input.

    Raises:
        UsageError: there is no card, or the named input is not one of its image inputs.
    """
    by_name = {"": requested} if isinstance(requested, str) else dict(requested or {})
    names = [name for name, layout in by_name.items() if layout == BYTES]
    if not names:
        return None
    if card is None:
        raise UsageError(
            "--io uint8 folds the card's image preparation into the model, so it needs a card; build with "
            "--card card.toml (edgekit model card MODEL -o card.toml drafts one)"
        )
    images = {name: entry for name, entry in card.inputs.items() if isinstance(entry, ImageInput)}
    if not images:
        raise UsageError(
            f"--io uint8 needs an image input, and {card.title} does not describe one; build without it"
        )
    for name in names:
        if name and name not in images:
            raise UsageError(f"--io {name}=uint8: not an image input; {card.title} has {', '.join(images)}")
    return images[names[0] or next(iter(images))]


def byte_card(card: Card, name: str) -> Card:
    """Return the card of the same model with bytes: the same images, without normalization."""
    image = card.inputs[name]
    assert isinstance(image, ImageInput)
    shape = (1, image.height, image.width, image.channels)
    mean, std = (0.0,) * image.channels, (1.0,) * image.channels
    byte_image = replace(image, shape=shape, layout="NHWC", dtype="uint8", mean=mean, std=std)
    if image.colour == "BGR":
        byte_image = replace(byte_image, colour="RGB")
    return replace(card, inputs={**card.inputs, name: byte_image})


def take_bytes(model: ir.Model, image: ImageInput) -> None:
    """Make the input take bytes: add the card's preprocessing as operators in front of the model, in place.

    Raises:
        UsageError: the input is an output too, or the preparation needs an operator that the opset lacks.
    """
    value = _input(model, image.name)
    if value.is_graph_output():
        raise UsageError(f"--io uint8: input {image.name} is also an output; build without it")
    rounds = image.dtype in LIMITS and not image.plain
    if rounds and opset_in(model.opset_imports.items()) < ROUND_SINCE:
        raise UsageError(
            f"--io uint8: {image.name} is {image.dtype}, which needs Round, and opset "
            f"{opset_in(model.opset_imports.items())} does not have it; export the model with a newer opset"
        )
    model.ir_version = max(model.ir_version, 4)  # older ones list constants among the inputs
    uses, dtype = list(value.uses()), value.dtype
    assert dtype is not None
    value.type = ir.TensorType(ir.DataType.UINT8)  # not value.dtype: copies share the type
    value.shape = ir.Shape((1, image.height, image.width, image.channels))
    front = _Front(model, value, image)
    if image.colour == "BGR":
        order = add_constant(model, np.array([2, 1, 0], np.int64), f"{image.name}/order")
        front.add("Gather", order, axis=3)
    if image.layout == "NCHW":
        front.add("Transpose", perm=[0, 3, 1, 2])
        front.last.shape = ir.Shape(image.shape)
    if image.plain:
        front.cast(dtype)
    else:
        front.cast(ir.DataType.FLOAT)
        if any(image.mean):
            front.add("Sub", front.per_channel(image.mean, "mean"))
        if any(std != 1 for std in image.std):
            front.add("Div", front.per_channel(image.std, "std"))
        if rounds:
            low, high = LIMITS[image.dtype]
            front.add("Round")
            front.add("Max", front.number(low, "least"))
            front.add("Min", front.number(high, "greatest"))
        front.cast(dtype)
    for use in uses:
        use.node.replace_input_with(use.idx, front.last)


def fold_bytes(model: ir.Model, image: ImageInput) -> None:
    """Take bytes like ``take_bytes``, folding all that can be folded exactly into the first Convs."""
    value = _input(model, image.name)
    image = _without_transpose(value, image)
    convs = _first_convs(value) if image.layout == "NCHW" else []
    take_bytes(model, _folded(model, convs, image) if convs else image)
    for name, constant in list(model.graph.initializers.items()):
        if not constant.uses() and not constant.is_graph_output() and not constant.is_graph_input():
            del model.graph.initializers[name]


@dataclass
class _Front:
    model: ir.Model
    last: ir.Value
    image: ImageInput

    def __post_init__(self) -> None:
        self.graph = self.model.graph
        self.anchor = self.graph[0] if len(self.graph) else None

    def add(self, op: str, *inputs: ir.Value, **attributes: int | list[int]) -> None:
        name = free_name(self.model, f"{self.image.name}/{op.lower()}")
        node = ir.node(op, [self.last, *inputs], attributes=attributes, name=name)
        output = node.outputs[0]
        output.name, output.type, output.shape = name, self.last.type, self.last.shape
        if self.anchor is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.anchor, node)
        self.last = output

    def cast(self, dtype: ir.DataType) -> None:
        if self.last.dtype != dtype:
            self.add("Cast", to=int(dtype))
            self.last.type = ir.TensorType(dtype)

    def number(self, number: float, name: str) -> ir.Value:
        return add_constant(self.model, np.array(number, np.float32), f"{self.image.name}/{name}")

    def per_channel(self, numbers: tuple[float, ...], name: str) -> ir.Value:
        """Return one number if all are the same."""
        if len(set(numbers)) == 1:
            return self.number(numbers[0], name)
        array = np.array(numbers, np.float32)
        array = array.reshape(-1, 1, 1) if self.image.layout == "NCHW" else array
        return add_constant(self.model, array, f"{self.image.name}/{name}")


def _input(model: ir.Model, name: str) -> ir.Value:
    return next(value for value in model.graph.inputs if value.name == name)


def _without_transpose(value: ir.Value, image: ImageInput) -> ImageInput:
    uses = list(value.uses())
    if image.layout != "NHWC" or not uses:
        return image
    for use in uses:
        node, output = use.node, use.node.outputs[0]
        if node.op_type != "Transpose" or ints_of(node, "perm") != [0, 3, 1, 2] or output.is_graph_output():
            return image
    for use in uses:
        use.node.outputs[0].replace_all_uses_with(value)
        assert use.node.graph is not None
        use.node.graph.remove(use.node, safe=True)
    value.shape = ir.Shape((1, image.channels, image.height, image.width))
    return replace(image, layout="NCHW", shape=(1, image.channels, image.height, image.width))


def _first_convs(value: ir.Value) -> list[ir.Node]:
    convs = []
    for node, index in value.uses():
        weight = array_of(input_of(node, 1)) if node.op_type == "Conv" and not node.domain else None
        bias = input_of(node, 2) if weight is not None else None
        if index != 0 or weight is None or weight.dtype.kind != "f":
            return []
        if bias is not None and array_of(bias) is None:
            return []
        convs.append(node)
    return convs


def _folded(model: ir.Model, convs: list[ir.Node], image: ImageInput) -> ImageInput:
    """Fold preprocessing into the Convs, in float64, rounded once. Return the part that remains."""
    mean, std = np.array(image.mean), np.array(image.std)
    swaps = image.colour == "BGR" and all(int_of(conv, "group", 1) == 1 for conv in convs)
    shifts = not any(_pads(conv) for conv in convs)
    constants = [_new_constants(conv, mean if shifts else np.zeros_like(mean), std, swaps) for conv in convs]
    if not all(np.isfinite(weight).all() and np.isfinite(bias).all() for weight, bias in constants):
        return image  # outside the range of float16
    for conv, (weight, bias) in zip(convs, constants, strict=True):
        conv.replace_input_with(1, add_constant(model, weight, f"{conv.name}/weight"))
        if shifts and mean.any():
            conv.resize_inputs(3)
            conv.replace_input_with(2, add_constant(model, bias, f"{conv.name}/bias"))
    left = tuple(0.0 for _ in image.mean) if shifts else image.mean
    return replace(
        image,
        colour="RGB" if swaps else image.colour,
        mean=left[::-1] if swaps else left,
        std=tuple(1.0 for _ in image.std),
    )


def _new_constants(conv: ir.Node, mean: Array, std: Array, swaps: bool) -> tuple[Array, Array]:
    """Return weight and bias of a Conv that reads pixels instead of (pixels - mean) / std."""
    weight, bias = array_of(conv.inputs[1]), array_of(input_of(conv, 2))
    assert weight is not None
    scaled = weight.astype(np.float64) / _along_inputs(conv, weight, std)
    shift = (scaled * _along_inputs(conv, weight, mean)).reshape(len(weight), -1).sum(axis=1)
    total = (0.0 if bias is None else bias.astype(np.float64)) - shift
    scaled = scaled[:, ::-1] if swaps else scaled
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(scaled).astype(weight.dtype), total.astype(weight.dtype)


def _along_inputs(conv: ir.Node, weight: Array, numbers: Array) -> Array:
    """Reshape numbers [input channels] to match the weight's input channels, group by group."""
    group = int_of(conv, "group", 1)
    rows = np.repeat(numbers.reshape(group, -1), len(weight) // group, axis=0)
    return rows.reshape(*rows.shape, *[1] * (weight.ndim - 2))


def _pads(conv: ir.Node) -> bool:
    return any(ints_of(conv, "pads")) or text_of(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")
