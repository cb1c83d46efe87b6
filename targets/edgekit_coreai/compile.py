"""Make ``model.aimodel``: the canonical graph through ``coreai-onnx``, with EdgeKit's checks around it.

canonical graph
  -> forms of Resize that the converter refuses, as gathers and products   compiler.passes.write_out_resize
  -> what it has no lowering for, in other operators                       compiler.passes.expand_functions
  -> float16 by the types of the graph, but for fp32
  -> forms that it converts but answers wrongly are refused
  -> converted; refused nodes in other operators, and again                convert.py

All nodes compute in float16 except for those with a constant that float16 can't hold: beyond 65504, or a
quantization scale below 2^-14, where it has fewer digits. Inputs and outputs keep their types.

Source: https://developer.apple.com/documentation/coreml/mlcomputeunits

Forms that the converter takes and the runtime answers wrongly, or not at all:

    shapes that depend on data   those of the package are static
    GridSample, nearest          another point: 6 to 13 dB; written out with Gather if that is known
    Cast between int8 and uint8  it saturates, where ONNX keeps the bits; so of 16, 32 and 64 bits
    scatters of no element       the runtime ends the process

Seen on coreai-core 1.0.0b3, Linux.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.fp16_types import narrowed_floats, set_types
from edgekit.compiler.lowering.op_table import open_shapes
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.rewriting import array_of, dims_of, node_name, text_of
from edgekit.compiler.passes.decompositions.sampling import grid_sample
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.compiler.passes.write_out_resize import write_out_resize
from edgekit.diagnostics import Finding, cannot_run
from edgekit.errors import UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_coreai.convert import convert, converter
from edgekit_coreai.quant_rules import rules

PRECISIONS = ("fp32", "fp16", "int8", "int8-weights")
NARROW = (ir.DataType.INT8, ir.DataType.UINT8)
LARGEST, SMALLEST_NORMAL = 65504.0, 2.0**-14
PAIR = ("QuantizeLinear", "DequantizeLinear")
ELSEWHERE = "build it for ort"
OTHER_SIGN = {
    ir.DataType.INT8: ir.DataType.UINT8,
    ir.DataType.INT16: ir.DataType.UINT16,
    ir.DataType.INT32: ir.DataType.UINT32,
    ir.DataType.INT64: ir.DataType.UINT64,
}
SCATTERS = ("ScatterElements", "ScatterND")


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Find nodes that Core AI can't express, by converting the model.

    Raises:
        MissingDependency: coreai-onnx is not installed.
    """
    findings = _converted(model, profile, "fp32")[1]
    return findings or narrowed_floats(model, profile.name)


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model.

    Args:
        precision: ``fp32``; ``fp16``: weights and arithmetic in float16, except for constants beyond its
            range; ``int8``: as fp16, for a model with Q/DQ pairs; ``int8-weights``: the same with pairs at
            weights only.

    Raises:
        UsageError: an unknown precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"coreai supports {', '.join(PRECISIONS)}, not {precision}")
    files, findings = _converted(model, profile, precision)
    if findings:
        raise cannot_run(profile.name, findings)
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    options: dict[str, Json] = {
        "precision": "int8" if quantized else "fp32" if precision == "fp32" else "fp16",
        "inputs": [str(value.name) for value in model.graph.inputs],
        "outputs": [str(value.name) for value in model.graph.outputs],
    }
    wide = [] if precision == "fp32" else [str(node.name) for node in float32_nodes(model)]
    return Artifact(files, options, {"nodes": len(model.graph), "float32_nodes": wide})


def _converted(model: ir.Model, profile: Profile, precision: str) -> tuple[dict[str, bytes], list[Finding]]:
    import onnx

    lowered = converter().supported_ops()
    wrong = wrong_forms(model, profile.name)

    def attempt(model: ir.Model) -> tuple[dict[str, bytes], list[Finding]]:
        written = model if precision == "fp32" else with_float16(model)
        files, refused = convert(onnx.ModelProto.FromString(save_model(written)), profile.name)
        named = {finding.node for finding in wrong}
        findings = wrong + [finding for finding in refused if finding.node not in named]
        return ({} if findings else files), findings

    def absent(node: ir.Node) -> bool:
        key = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        return key not in lowered or _is_wide_or_scalar(node) or is_nearest_sample(node)

    if any(_is_refused_resize(node) for node in model.graph):
        model = model.clone()
        write_out_resize(model, _is_refused_resize)
    return with_expansions(model, attempt, absent)


def _is_refused_resize(node: ir.Node) -> bool:
    """Check for a Resize that is not one of the last two of four axes, nearest or linear, by a plain rule."""
    if node.op_type != "Resize" or node.domain:
        return False

    def text(name: str) -> str:
        return node.attributes[name].as_string() if name in node.attributes else ""

    x, y = node.inputs[0], node.outputs[0]
    if x is None or x.shape is None or y.shape is None or len(x.shape) != 4 or x.shape[:2] != y.shape[:2]:
        return True
    return bool(
        text("mode") == "cubic"
        or text("keep_aspect_ratio_policy") in ("not_larger", "not_smaller")
        or text("coordinate_transformation_mode") in ("tf_crop_and_resize", "half_pixel_symmetric")
        or ("antialias" in node.attributes and node.attributes["antialias"].as_int())
    )


def _is_wide_or_scalar(node: ir.Node) -> bool:
    """Check for a DequantizeLinear of int32 (a bias) or of a scalar, which the converter refuses."""
    value = node.inputs[0] if node.op_type == "DequantizeLinear" else None
    return value is not None and (value.dtype not in NARROW or value.shape is None or len(value.shape) == 0)


TARGET = TargetInfo(PRECISIONS, quantization_rules=rules)


def with_float16(model: ir.Model) -> ir.Model:
    """Return a copy of the model that computes in float16."""
    typed = model.clone()
    wide = set(float32_nodes(typed))
    set_types(typed, {node for node in typed.graph if node not in wide})
    return typed


def float32_nodes(model: ir.Model) -> list[ir.Node]:
    """Return the nodes that stay in float32."""
    return [node for node in model.graph if not _fits(node)]


def _fits(node: ir.Node) -> bool:
    for index, value in enumerate(node.inputs):
        array = array_of(value)
        if array is None or array.dtype != np.float32 or not array.size:
            continue
        sizes = np.abs(array[np.isfinite(array)])
        if sizes.max(initial=0.0) > LARGEST:
            return False
        if node.op_type in PAIR and index == 1 and sizes.min(initial=1.0) < SMALLEST_NORMAL:
            return False
    return True


def wrong_forms(model: ir.Model, target: str) -> list[Finding]:
    """Return a finding for each input and node that must not be built, before any is written out."""
    wrong = open_shapes(model, target)
    for node in model.graph:
        reason = "" if node.domain else _reason(node)
        if reason:
            wrong.append(Finding("EK1002", "error", target, node_name(node), node.op_type, reason, ELSEWHERE))
    return wrong


def is_nearest_sample(node: ir.Node) -> bool:
    """Check for a GridSample that takes the nearest point."""
    nearest = node.op_type == "GridSample" and text_of(node, "mode", "linear") == "nearest"
    return nearest and not node.domain


def _reason(node: ir.Node) -> str:
    if is_nearest_sample(node) and grid_sample(node) is None:
        return "mode nearest: Core AI takes another point where two are equally near"
    if node.op_type == "Cast" and _changes_sign(node) and not _is_of_a_shift(node):
        source, target = (str(value and value.dtype).lower() for value in (node.inputs[0], node.outputs[0]))
        return f"Core AI saturates a cast of {source} to {target}, where ONNX keeps the bits"
    if node.op_type in SCATTERS and any(0 in (dims_of(value) or ()) for value in node.inputs[1:]):
        return "it scatters no element, which ends the process of Core AI's runtime"
    return ""


def _changes_sign(node: ir.Node) -> bool:
    """Check for a Cast between the signed and the unsigned integers of one width."""
    source, target = node.inputs[0], node.outputs[0].dtype
    if source is None or source.dtype is None or target is None:
        return False
    return OTHER_SIGN.get(source.dtype) == target or OTHER_SIGN.get(target) == source.dtype


def _is_of_a_shift(node: ir.Node) -> bool:
    """Check for a Cast next to a BitShift of signed integers, which is written with non-negative ones."""
    source = node.inputs[0]
    producer = source.producer() if source is not None else None
    users = [use.node.op_type for use in node.outputs[0].uses()]
    behind = producer is not None and producer.op_type == "BitShift"
    return behind or (bool(users) and set(users) == {"BitShift"})
