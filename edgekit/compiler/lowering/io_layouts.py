"""Layouts of an artifact's own inputs and outputs, for users who run it without EdgeKit's runtime.

    nchw    as in the source model (any rank, any meaning of the axes)
    nhwc    axis 1 last: N, C, H, W is stored as N, H, W, C, like in cameras and TFLite's own tools
    uint8   an image input with a card takes bytes, [1, H, W, C] in RGB (byte_input.py)
    int8    a float value of an int8 variant is stored as the integers that the model computes on, with the
            scale in the artifact; the variant is rejected if a node reads or returns floats there

``nhwc@pixel,rpi5`` is a layout for these targets of the build only; the others store the source's.

A Session keeps the source's layout whatever the artifact stores, except for bytes if they are requested.
Layouts are metadata on the model's values. Copies of the model keep them, and compilers apply them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from edgekit.compiler.lowering.byte_input import BYTES
from edgekit.diagnostics import Finding
from edgekit.errors import UsageError
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact, Compiler
from edgekit.target.profile import Profile

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
        requested: Layout of every input and output with four axes, or layouts by name (``EVERY`` for the
            rest). Each may end in ``@`` and the targets that it is for.

    Returns:
        The layout of each input and output that is not stored as in the source, with its targets.

    Raises:
        UsageError: a layout, name or target is unknown, a value does not have four axes, or a target lacks
            support.
    """
    texts = {EVERY: requested} if isinstance(requested, str) else dict(requested or {})
    by_name = {name: text.partition("@")[0] for name, text in texts.items()}
    chosen = {name: _chosen(text, targets) for name, text in texts.items()}
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
    for target in targets:
        needed = {k for name, k in changed.items() if target in chosen.get(name, chosen.get(EVERY, targets))}
        for layout in sorted(needed - {*target.info.io_layouts}):
            advice = f"it supports {', '.join(target.info.io_layouts)}"
            if len(targets) > 1:
                advice = "build it without, into a separate bundle"
                if layout != BYTES:
                    advice = f"name the targets that do behind it, --io {layout}@TARGET"
            raise UsageError(f"{target.profile.name} does not support --io {layout}; {advice}")
    for name, layout in changed.items():
        if layout == "nhwc":
            values[name].metadata_props[KEY] = layout
        if layout == INTEGERS:
            values[name].metadata_props[INTEGERS_KEY] = layout
    return {
        name: layout if layout == BYTES else texts.get(name, texts.get(EVERY, layout))
        for name, layout in changed.items()
    }


def _chosen(text: str, targets: Sequence[BuildTarget]) -> Sequence[BuildTarget]:
    layout, separator, names = text.partition("@")
    if not separator:
        return targets
    if layout == BYTES:
        raise UsageError(
            f"--io {text}: bytes are the input of the whole bundle; write --io {BYTES}, for all targets"
        )
    by_name = {name: target for target in targets for name in (target.name, target.profile.name)}
    for name in names.split(","):
        if name not in by_name:
            raise UsageError(f"--io {text}: the build has no target {name!r}; it has {', '.join(by_name)}")
    return [t for t in targets if {t.name, t.profile.name} & {*names.split(",")}]


def by_target(layouts: Mapping[str, str], targets: Sequence[BuildTarget]) -> list[BuildTarget]:
    """Return targets whose compilers see only their own layouts, of those that ``lay_out`` returned."""
    result = []
    for target in targets:
        others = frozenset(name for name, text in layouts.items() if target not in _chosen(text, targets))
        compiler: Compiler = _OwnLayouts(target.compiler, others) if others else target.compiler
        result.append(replace(target, compiler=compiler))
    return result


class _OwnLayouts:
    """A target's compiler on models without the marks of some inputs and outputs."""

    def __init__(self, compiler: Compiler, others: frozenset[str]) -> None:
        self._compiler, self._others = compiler, others
        refine = compiler.TARGET.refine
        refined = None if refine is None else lambda model, *more: refine(self._unmarked(model), *more)
        self.TARGET = compiler.TARGET._replace(refine=refined)

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        return self._compiler.check_model(self._unmarked(model), profile)

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        return self._compiler.compile_model(self._unmarked(model), profile, precision)

    def _unmarked(self, model: ir.Model) -> ir.Model:
        copy = model.clone()
        for value in (*copy.graph.inputs, *copy.graph.outputs):
            if value.name in self._others:
                value.metadata_props.pop(KEY, None)
                value.metadata_props.pop(INTEGERS_KEY, None)
        return copy


def refuse_integers_in_float(layouts: Mapping[str, str], on_integers: bool) -> None:
    """Raise UsageError if integers are requested but no variant of the build computes on them."""
    if any(text.partition("@")[0] == INTEGERS for text in layouts.values()) and not on_integers:
        raise UsageError("--io int8 needs int8 variants; build with --precision int8 and --samples")


def asks_for_integers(value: ir.Value) -> bool:
    """Return whether an artifact that computes on integers stores this input or output as int8."""
    return INTEGERS_KEY in value.metadata_props


def is_channels_last(value: ir.Value) -> bool:
    """Return whether an artifact stores this input or output with axis 1 last."""
    return value.metadata_props.get(KEY) == "nhwc"


def _rank(value: ir.Value) -> int:
    return 0 if value.shape is None else len(value.shape)
