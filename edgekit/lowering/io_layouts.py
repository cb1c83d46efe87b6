"""How an artifact stores its own inputs and outputs, for those who run it without our runtime.

    nchw    as in the source model (any rank, any meaning of the axes)
    nhwc    axis 1 last: N, C, H, W is stored as N, H, W, C, as cameras and TFLite's own tools have it
    uint8   of an image input with a card: bytes, [1, H, W, C] in RGB (byte_input.py)

A Session takes and gives the source's layout whatever the artifact holds, but bytes where they are asked for.
Layouts travel on the values of the model, through the copies of it, to the compilers that can obey them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.lowering.byte_input import BYTES

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.target.build_target import BuildTarget

LAYOUTS = ("nchw", "nhwc", BYTES)
KEY = "edgekit.layout"
EVERY = ""
"""The name that means every input and output of four axes that is not named itself."""


def lay_out(
    model: ir.Model,
    requested: str | Mapping[str, str] | None,
    targets: Sequence[BuildTarget],
    byte_input: str = "",
) -> dict[str, str]:
    """Note on the inputs and outputs of ``model`` how artifacts are to store them.

    Args:
        model: Canonical, with static shapes; its values are marked.
        requested: A layout for every input and output of four axes, or layouts by name (``EVERY`` for the
            rest).
        targets: What is built for.
        byte_input: The input that ``byte_input.find_byte_input`` found.

    Returns:
        The layout of each input and output that is not stored as in the source.

    Raises:
        UsageError: a layout or a name is unknown, a value has not four axes, or a target can't obey.
    """
    by_name = {EVERY: requested} if isinstance(requested, str) else dict(requested or {})
    values = {str(v.name): v for v in (*model.graph.inputs, *model.graph.outputs)}
    for name, layout in by_name.items():
        if layout not in LAYOUTS:
            raise UsageError(f"unknown layout {layout!r}; available: {', '.join(LAYOUTS)}")
        if name != EVERY and name not in values:
            raise UsageError(f"the model has no input or output {name!r}; it has {', '.join(values)}")
        if layout == "nhwc" and name != EVERY and _rank(values[name]) != 4:
            raise UsageError(f"{name} has {_rank(values[name])} axes, and nhwc is a layout of four")
    every = "nchw" if by_name.get(EVERY) == BYTES else by_name.get(EVERY, "nchw")
    found = {name: by_name.get(name, every) for name, value in values.items() if _rank(value) == 4}
    if byte_input:
        found[byte_input] = BYTES
    if every == "nhwc" and not found:
        raise UsageError("no input or output of the model has four axes, and nhwc is a layout of four")
    moved = {name: layout for name, layout in found.items() if layout != "nchw"}
    for target in targets if moved else ():
        if byte_input and BYTES not in target.info.io_layouts:
            raise UsageError(
                f"{target.profile.name} takes no images as bytes; build it without --io uint8, "
                "into a bundle of its own"
            )
        if "nhwc" in moved.values() and "nhwc" not in target.info.io_layouts:
            raise UsageError(
                f"{target.profile.name} takes inputs and gives outputs in the source's layout only; "
                "build the targets that have nhwc without it"
            )
    for name, layout in moved.items():
        if layout == "nhwc":
            values[name].metadata_props[KEY] = layout
    return moved


def is_channels_last(value: ir.Value) -> bool:
    """Whether an artifact is to store this input or output with axis 1 last."""
    return value.metadata_props.get(KEY) == "nhwc"


def _rank(value: ir.Value) -> int:
    return 0 if value.shape is None else len(value.shape)
