"""Canonical model -> an .mlpackage: lower, apply coremltools' own checks, serialize.

A model is checked by lowering it, so the check and the compilation cannot disagree.

float16 ends at 65504 and has 11 bits. These cases are known from the graph alone, without samples:

- a constant beyond its range that is not a mask: weights, a factor;
- operators whose result leaves the range for ordinary operands (FLOAT32_OPS).

Other overflows appear only at run time: the reference executor names the values that overflow.
A node in float32 runs on the CPU or the GPU, not on the Neural Engine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from edgekit._version import __version__
from edgekit.compiler.lowering.fp16_types import narrowed_floats
from edgekit.compiler.lowering.op_table import refuse
from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding, errors
from edgekit.errors import UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Array, Json
from edgekit_coreml import (  # noqa: F401  (importing the ops fills the table)
    ops_activation,
    ops_conv,
    ops_index,
    ops_logic,
    ops_math,
    ops_matmul,
    ops_norm,
    ops_quant,
    ops_recurrent,
    ops_reduce,
    ops_resize,
    ops_shape,
)
from edgekit_coreml.app import app_files
from edgekit_coreml.float32_regions import find_float32_regions
from edgekit_coreml.neural_engine import COMPUTES_IN_FLOAT32, judged, placement
from edgekit_coreml.package import FORMAT_OF_IOS, package_files
from edgekit_coreml.program import Lowered, lower_model
from edgekit_coreml.quant_rules import rules
from edgekit_coreml.shared_weights import share_weights
from edgekit_coreml.values import HALF_LIMIT

PALETTE_BITS: Mapping[str, int] = {"palette6": 6, "palette4": 4}
PRECISIONS = ("fp32", "fp16", "int8", "int8-weights", *PALETTE_BITS)
OLDEST_IOS, NEWEST_IOS = 15, 26
NODES_NAMED = 3
"""How many nodes a warning names after the first."""
IOS_AHEAD_OF_MACOS, SAME_NUMBER = 3, 26
"""macOS 13 came with iOS 16, macOS 15 with iOS 18; from 26 on the numbers are equal."""
QUANTIZED_IOS = 17
"""The first iOS with quantize and dequantize."""
PACKED_IOS = 16
"""The first iOS with constants that stay stored as integers."""
FLOAT32_OPS: Mapping[str, str] = {
    "CumSum": "a running sum loses the digits of what is added late",
    "Cosh": "exp leaves float16's range at 11.1",
    "Exp": "exp leaves float16's range at 11.1",
    "Pow": "powers leave float16's range",
    "ReduceL2": "squares leave float16's range at 256",
    "ReduceProd": "products leave float16's range",
    "ReduceSumSquare": "squares leave float16's range at 256",
    "Sinh": "exp leaves float16's range at 11.1",
}
"""Operator -> why it computes in float32."""
MASKING_OPS = frozenset({"Add", "Where", "Max", "Min", "Sum", "Clip", "Attention", "Pad"})
"""What takes a constant beyond the range as "as far as can be": it is clamped there."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Find nodes that Core ML cannot express, and reasons that keep nodes off the Neural Engine.

    Raises:
        MissingDependency: coremltools is not installed.
    """
    ios, full = _ios(model, profile), float32_nodes(model)
    lowered = lower_model(model, "fp16", ios, frozenset(full))
    findings = [replace(finding, target=profile.name) for finding in lowered.findings]
    return findings if errors(findings) else [*findings, *_warnings(model, lowered, full, ios, profile)]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model.

    Args:
        precision: ``fp32``; ``fp16``: weights and arithmetic in float16, except where that is known to fail;
            ``int8``: as fp16, for a model with Q/DQ pairs; ``int8-weights``: the same with pairs at weights
            only; ``palette6``, ``palette4``: as fp16, large weights palettized with 64 or 16 entries.

    Raises:
        UsageError: an unknown precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"coreml supports {', '.join(PRECISIONS)}, not {precision}")
    return _compiled(model, profile, precision, float32_nodes(model) if precision != "fp32" else {})


def refined_model(
    model: ir.Model,
    profile: Profile,
    precision: str,
    artifact: Artifact,
    samples: Sequence[Mapping[str, Array]],
) -> Artifact:
    """Refine an fp16 package with samples: nodes whose values overflow, or whose rounding costs too much
    accuracy, compute in float32. Returns the same package if there are none.

    ``samples``: the first two are used. Only ``fp16`` is refined.
    """
    if precision != "fp16":
        return artifact
    fixed = float32_nodes(model)
    regions = find_float32_regions(model, _ios(model, profile), samples, fixed)
    refined = artifact
    if regions.lowered is not None:
        refined = _written(model, profile, precision, {**fixed, **regions.reasons}, regions.lowered)
    return Artifact(refined.files, refined.options, {**refined.facts, "trace": regions.facts()})


def _compiled(model: ir.Model, profile: Profile, precision: str, full: Mapping[str, str]) -> Artifact:
    """Lower and write the model; ``full``: node -> reason that it computes in float32."""
    ios = _ios(model, profile)
    compute = "fp32" if precision == "fp32" else "fp16"
    lowered = lower_model(model, compute, ios, frozenset(full), PALETTE_BITS.get(precision, 0))
    wrong = [replace(finding, target=profile.name) for finding in errors(lowered.findings)]
    refuse(profile.name, wrong, "no form in Core ML")
    return _written(model, profile, precision, full, lowered)


def _written(
    model: ir.Model, profile: Profile, precision: str, full: Mapping[str, str], lowered: Lowered
) -> Artifact:
    ios = _ios(model, profile)
    renamed = {e["mil"]: e["name"] for e in (*lowered.inputs, *lowered.outputs) if e["mil"] != e["name"]}
    names = json.dumps({**lowered.names, **renamed}, sort_keys=True)
    metadata = {"edgekit": __version__, "edgekit.names": names}
    files = package_files(lowered.program, FORMAT_OF_IOS[ios], metadata)
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    executed = "int8" if quantized else "fp32" if precision == "fp32" else "fp16"
    options = {"precision": executed, "inputs": lowered.inputs, "outputs": lowered.outputs}
    return Artifact(files, options, _facts(lowered, ios, full))


def _ios(model: ir.Model, profile: Profile) -> int:
    """Return the iOS version to build for: the profile's, or the first that supports the model."""
    ios = min(max(_requested_ios(profile), OLDEST_IOS), NEWEST_IOS)
    for node in model.graph:
        if node.op_type == "QuantizeLinear":
            return max(ios, QUANTIZED_IOS)
        if node.op_type == "DequantizeLinear":
            stored = node.inputs[0] is not None and node.inputs[0].const_value is not None
            ios = max(ios, PACKED_IOS if stored else QUANTIZED_IOS)
    return ios


def _requested_ios(profile: Profile) -> int:
    """Return the iOS version of a profile, from "iOS 17" or, of the same year, "macOS 14"."""
    fact = profile.facts.get("os")
    name, _, version = str(fact.value).partition(" ") if fact else ("iOS", "", str(OLDEST_IOS))
    number = int(version.split(".")[0])
    return number + IOS_AHEAD_OF_MACOS if name == "macOS" and number < SAME_NUMBER else number


def _warnings(
    model: ir.Model, lowered: Lowered, full: Mapping[str, str], ios: int, profile: Profile
) -> list[Finding]:
    ops = {node_name(node): node.op_type for node in model.graph}
    notes = []
    for name, reason in full.items():
        text = f"it computes in float32, off the Neural Engine: {reason}"
        notes.append(Finding("EK1101", "warning", profile.name, name, ops[name], text))
    requested = _requested_ios(profile)
    if ios > requested:
        reason = f"quantize and dequantize need iOS {ios}; {profile.name} is iOS {requested}"
        notes.append(Finding("EK1103", "note", profile.name, "", "", reason, f"the package is for iOS {ios}"))
    makers = {str(o.name): node_name(node) for node in model.graph for o in node.outputs}
    grouped: dict[tuple[str, str], list[str]] = {}
    for op, rule in judged(lowered.program.functions["main"].operations):
        if rule is not None and rule.explanation != COMPUTES_IN_FLOAT32:
            name = str(op.outputs[0].name)
            node = makers.get(lowered.names.get(name, "")) or lowered.origins.get(name, name)
            grouped.setdefault((op.op_type, rule.text), []).append(node)
    for (kind, text), nodes in grouped.items():
        others = list(dict.fromkeys(nodes))[1:]
        more = f"; also {', '.join(others[:NODES_NAMED])}" if others else ""
        more += f" and {len(others) - NODES_NAMED} more" if len(others) > NODES_NAMED else ""
        notes.append(Finding("EK1101", "warning", profile.name, nodes[0], f"MIL {kind}", text + more))
    return [*notes, *narrowed_floats(model, profile.name)]


def _facts(lowered: Lowered, ios: int, full: Mapping[str, str]) -> dict[str, Json]:
    operations = lowered.program.functions["main"].operations
    kinds = Counter(op.op_type for op in operations)
    del kinds["const"]
    verdicts = Counter("eligible" if rule is None else rule.verdict for _, rule in judged(operations))
    return {
        "ops": dict(sorted(kinds.items())),
        "deployment_target": f"iOS {ios}",
        "neural_engine": dict(sorted(verdicts.items())),
        "float32_nodes": [{"node": name, "why": reason} for name, reason in full.items()],
        "notes": [placement(verdicts, list(full))],
    }


TARGET = TargetInfo(
    PRECISIONS,
    quantization_rules=rules,
    refine=refined_model,
    app_files=app_files,
    share_weights=share_weights,
)


def float32_nodes(model: ir.Model) -> dict[str, str]:
    """Return node name -> reason that it computes in float32 in a fp16 program."""
    reasons = {}
    for node in model.graph:
        if not any(o.dtype == ir.DataType.FLOAT for o in node.outputs):
            continue
        reason = FLOAT32_OPS.get(node.op_type) or _beyond(node)
        if reason:
            reasons[node_name(node)] = reason
    return reasons


def _beyond(node: ir.Node) -> str:
    if node.op_type in MASKING_OPS or node.op_type.endswith("QuantizeLinear"):
        return ""
    for value in node.inputs:
        if value is None or value.const_value is None or value.dtype != ir.DataType.FLOAT:
            continue
        array = value.const_value.numpy()
        largest = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
        if largest > HALF_LIMIT:
            return f"its constant {value.name} contains {largest:.4g}, but float16 ends at {HALF_LIMIT:g}"
    return ""
