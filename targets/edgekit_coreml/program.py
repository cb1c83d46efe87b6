"""Canonical model -> MIL program: inputs, nodes, outputs.

Core ML's interface has float32, float16 (iOS 16), int32 and int8 (iOS 26) arrays of rank 1 to 5. So booleans
and narrow integers cross it as int32, a scalar as an array of one element, and the first axes of a larger
rank as one; the runner turns them back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from threading import Lock
from typing import Any

import onnx_ir as ir

from edgekit.compiler.lowering.op_table import open_shapes
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import node_name, opset_of
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.diagnostics import Finding, Inexpressible
from edgekit.tensor_spec import Json
from edgekit_coreml.builder import MIL_DTYPES, RANK_LIMIT, Builder, lower
from edgekit_coreml.values import Value, stored_dtype
from edgekit_coreml.vendor import coremltools

CROSSING = {"float32": "float32", "float16": "float16", "int32": "int32", "bool": "int32", "int8": "int32",
            "uint8": "int32"}  # fmt: skip
"""Stored element type -> its type at the interface."""
INT8_ARRAYS_IOS = 26
"""The first with int8 arrays at the interface."""
PASSES = ("common::dead_code_elimination", "common::cast_optimization", "common::dead_code_elimination")
"""coremltools' passes that are applied: values nobody reads, and casts there and back. The canonical graph
needs none of the other ninety, and a Q/DQ model takes them up to fourteen seconds."""

_building = Lock()
"""coremltools builds through global state: names are counted, blocks are stacked."""


@dataclass
class Lowered:
    """Lowered program, with the names of its inputs and outputs.

    Attributes:
        program: coremltools' Program; None with an error among the findings.
        inputs: For each graph input its ``name``, ``mil`` name, ``dtype`` and ``shape`` at the interface.
        names: Name in MIL -> name of the value in ONNX, for every value that a node computes.
        origins: Name in MIL -> name of the node that it was built for, for all other names.
    """

    program: Any = None
    findings: list[Finding] = field(default_factory=list)
    inputs: list[dict[str, Json]] = field(default_factory=list)
    outputs: list[dict[str, Json]] = field(default_factory=list)
    names: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def exclusive_program() -> Iterator[None]:
    """Allow one program at a time, with names counted from zero and without coremltools' warnings: its pass
    on casts overflows, with a RuntimeWarning, where it compares the ranges of float16 and uint8."""
    coremltools()
    from coremltools.converters.mil.mil import Builder as MilBuilder

    with _building, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        MilBuilder.name_count.clear()
        yield


def lower_model(
    model: ir.Model, precision: str, ios: int, full: frozenset[str] = frozenset(), palette_bits: int = 0
) -> Lowered:
    """Lower a canonical model to MIL. On a copy, nodes that MIL lacks are written out and lowered again.

    Args:
        full: Nodes that compute in float32 whatever ``precision`` is.
        palette_bits: 4 or 6: large weights are indices into a table of 16 or 64 values. 0 means plain values.
    """

    def attempt(model: ir.Model) -> tuple[Lowered, list[Finding]]:
        if any(static_dims(value) is None for value in model.graph.inputs):
            return (lowered := Lowered(findings=open_shapes(model, lower.target))), lowered.findings
        with exclusive_program():
            lowered = _lowered(model, Builder(precision, ios, full, palette_bits))
        return lowered, lowered.findings

    return with_expansions(model, attempt)[0]


def _lowered(model: ir.Model, build: Builder) -> Lowered:
    from coremltools.converters.mil.mil import Builder as MilBuilder
    from coremltools.converters.mil.mil import Function, Program
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    lowered, ios = Lowered(), build.ios
    placeholders = {}
    for value in model.graph.inputs:
        try:
            entry = _crossing(value, build.unique(str(value.name)), ios)
        except Inexpressible as reason:
            lowered.findings.append(_finding(value, reason))
            entry = {"mil": build.unique(str(value.name)), "dtype": "float32", "shape": [1]}
        lowered.inputs.append(entry)
        placeholders[entry["mil"]] = MilBuilder.placeholder(
            shape=entry["shape"], dtype=_types(entry["dtype"])
        )
    with Function(placeholders, opset_version=_target(ios)) as function:
        for value, entry in zip(model.graph.inputs, lowered.inputs, strict=True):
            if "name" in entry:
                _take_input(build, value, function.inputs[entry["mil"]])
            else:
                build.bind_unknown(value)
        dynamic, opset = open_shapes(model, lower.target), opset_of(model.opset_imports.items())
        lowered.findings += lower.lower(build, model.graph, opset, dynamic)
        if not lowered.findings:
            outputs = []
            for value in model.graph.outputs:
                try:
                    entry = _crossing(value, "", ios)
                except Inexpressible as reason:
                    lowered.findings.append(_finding(value, reason))
                    continue
                outputs.append(_give_output(build, value, entry))
                lowered.outputs.append(entry)
        if lowered.findings:
            function.set_outputs([MilBuilder.const(val=0.0)])
            return lowered
        function.set_outputs(outputs)
    program = Program()
    program.add_function("main", function)
    for name in PASSES:
        PASS_REGISTRY[name](program)
    _keep_unread_inputs(function)
    lowered.program = program
    lowered.names, lowered.origins = dict(build.names), dict(build.origins)
    return lowered


def _take_input(build: Builder, value: ir.Value, var: Any) -> None:
    build.node = None
    x = build.value_of(var)
    x = build.cast(x, build.stored_dtype(value))
    build.put(value, build.reshape(x, static_dims(value) or ()))


def _give_output(build: Builder, value: ir.Value, entry: dict[str, Json]) -> Any:
    """Return a graph output as it crosses the interface: a value of its own with the source's name."""
    build.node = value.producer()
    x: Value = build.handle(value)
    x = build.cast(build.reshape(x, entry["shape"]), entry["dtype"])
    var, entry["mil"] = build.output(x, str(value.name))
    return var


def _keep_unread_inputs(function: Any) -> None:
    """Add an identity that reads each unread input: Core ML refuses an input that nothing reads."""
    from coremltools.converters.mil.mil import Builder as MilBuilder

    with function:
        for name, var in function.inputs.items():
            if not var.child_ops and var not in function.outputs:
                MilBuilder.identity(x=var, name=f"unread_{name}")


def _crossing(value: ir.Value, name: str, ios: int) -> dict[str, Json]:
    shape = static_dims(value) or ()
    if 0 in shape:
        raise Inexpressible(f"{value.name} is empty; Core ML does not support empty arrays")
    dtype = stored_dtype(value)
    return {
        "name": str(value.name),
        "mil": name,
        "dtype": dtype if dtype == "int8" and ios >= INT8_ARRAYS_IOS else CROSSING[dtype],
        "shape": list(_merged(shape)) or [1],
    }


def _merged(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Merge the first axes into one if there are more than the interface has. The runner reshapes."""
    more = len(shape) - RANK_LIMIT
    return shape if more <= 0 else (prod(shape[: more + 1]), *shape[more + 1 :])


def _finding(value: ir.Value, reason: Inexpressible) -> Finding:
    node = value.producer()
    name, op = (str(value.name), "") if node is None else (node_name(node), node.op_type)
    return Finding(reason.code, "error", lower.target, name, op, reason.reason, reason.fix)


def _types(dtype: str) -> Any:
    from coremltools.converters.mil.mil import types

    return types.string_to_builtin(MIL_DTYPES[dtype])


def _target(ios: int) -> Any:
    return getattr(coremltools().target, f"iOS{ios}")
