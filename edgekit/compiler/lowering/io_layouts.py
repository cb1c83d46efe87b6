"""Layouts of an artifact's own inputs and outputs, for users who run it without EdgeKit's runtime.

    nchw    as in the source model (any rank, any meaning of the axes)
    nhwc    axis 1 last: N, C, H, W is stored as N, H, W, C, like in cameras and TFLite's own tools
    uint8   an image input with a card takes bytes, [1, H, W, C] in RGB (byte_input.py)
    int8    a float value of an int8 variant is stored as the integers that the model computes on, with the
            scale in the artifact; the variant is rejected if a node reads or returns floats there

A Session keeps the source's layout whatever the artifact stores, except for bytes where they are requested.
Layouts are metadata on the model's values. Copies of the model keep them, and compilers apply them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from edgekit.compiler.lowering.byte_input import BYTES
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.target.build_target import BuildTarget

LAYOUTS = ("nchw", "nhwc", BYTES)
INTEGERS = "int8"
KEY = "edgekit.layout"
INTEGERS_KEY = "edgekit.integers"
EVERY = ""
"""Name that stands for every input and output with four axes that is not named itself."""


def lay_out(
    model: ir.Model,
    requested: str | Mapping[str, str] | None,
    targets: Sequence[BuildTarget],
    byte_input: str = "",
) -> dict[str, str]:
    """Mark the inputs and outputs of ``model`` with the layouts in which artifacts store them.

    Args:
        model: Canonical model with static shapes; its values are marked.
        requested: Layout of every input and output with four axes, or layouts by name (``EVERY`` for the
            rest).
        targets: Targets of the build.
        byte_input: The input that ``byte_input.find_byte_input`` returned.

    Returns:
        The layout of each input and output that is not stored as in the source.

    Raises:
        UsageError: a layout or name is unknown, a value does not have four axes, or a target lacks support.
    """
    by_name = {EVERY: requested} if isinstance(requested, str) else dict(requested or {})
    values = {str(v.name): v for v in (*model.graph.inputs, *model.graph.outputs)}
    for name, layout in by_name.items():
        if layout not in (*LAYOUTS, INTEGERS):
            raise UsageError(f"unknown layout {layout!r}; available: {', '.join((*LAYOUTS, INTEGERS))}")
        if name != EVERY and name not in values:
            raise UsageError(f"the model has no input or output {name!r}; it has {', '.join(values)}")
        if layout == "nhwc" and name != EVERY and _rank(values[name]) != 4:
            raise UsageError(f"{name} has {_rank(values[name])} axes; nhwc needs four")
        if layout == INTEGERS and name != EVERY and values[name].dtype != ir.DataType.FLOAT:
            raise UsageError(f"{name} is {values[name].dtype}; int8 needs float32")
    every = "nchw" if by_name.get(EVERY) in (BYTES, INTEGERS) else by_name.get(EVERY, "nchw")
    layouts = {name: by_name.get(name, every) for name, value in values.items() if _rank(value) == 4}
    for name, value in values.items():
        if by_name.get(name, by_name.get(EVERY)) == INTEGERS and value.dtype == ir.DataType.FLOAT:
            layouts[name] = INTEGERS
    if byte_input:
        layouts[byte_input] = BYTES
    if every == "nhwc" and not layouts:
        raise UsageError("the model has no input or output with four axes, which nhwc needs")
    changed = {name: layout for name, layout in layouts.items() if layout != "nchw"}
    for target in targets if changed else ():
        if byte_input and BYTES not in target.info.io_layouts:
            raise UsageError(
                f"{target.profile.name} does not support --io uint8; build it without, into a separate bundle"
            )
        if INTEGERS in changed.values() and INTEGERS not in target.info.io_layouts:
            raise UsageError(
                f"{target.profile.name} does not support --io int8; build it without, into a separate bundle"
            )
        if "nhwc" in changed.values() and "nhwc" not in target.info.io_layouts:
            raise UsageError(
                f"{target.profile.name} supports the source's layout only; build it without --io nhwc, into "
                "a separate bundle"
            )
    for name, layout in changed.items():
        if layout == "nhwc":
            values[name].metadata_props[KEY] = layout
        if layout == INTEGERS:
            values[name].metadata_props[INTEGERS_KEY] = layout
    return changed


def refuse_integers_in_float(layouts: Mapping[str, str], on_integers: bool) -> None:
    """Raise UsageError if integers are requested but no variant of the build computes on them."""
    if INTEGERS in layouts.values() and not on_integers:
        raise UsageError("--io int8 needs int8 variants; build with --precision int8 and --samples")


def asks_for_integers(value: ir.Value) -> bool:
    """Return whether an artifact that computes on integers stores this input or output as int8."""
    return INTEGERS_KEY in value.metadata_props


def is_channels_last(value: ir.Value) -> bool:
    """Return whether an artifact stores this input or output with axis 1 last."""
    return value.metadata_props.get(KEY) == "nhwc"


def _rank(value: ir.Value) -> int:
    return 0 if value.shape is None else len(value.shape)
