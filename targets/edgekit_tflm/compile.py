"""Canonical model -> model.tflite for TFLite Micro, by the compiler of the target ``tflite``.

The file is in plain form, for interpreters without XNNPACK (a profile without that delegate), with integer
ends: the runner quantizes its inputs. Images are stored channels last if that saves a TRANSPOSE.

TFLite Micro itself checks the file with a run on zeros, if the interpreter is installed: its kernels support
fewer element types and forms than TFLite's, and name a node they can't prepare or run.

CAST takes no uint8, QUANTIZE and DEQUANTIZE do:

    x, uint8 -> Cast -> float      =>      x -> DequantizeLinear(scale 1, zero point 0) -> float

The same numbers. A QuantizeLinear after it becomes one QUANTIZE from uint8 to int8.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.integer_ends import IntegerEnds, with_integer_ends
from edgekit.compiler.lowering.io_layouts import INTEGERS, KEY, LAYOUTS, asks_for_integers
from edgekit.compiler.lowering.op_table import refuse
from edgekit.compiler.model.rewriting import add_constant, new_node, node_name, replace_node
from edgekit.diagnostics import Finding, as_lines, errors
from edgekit.errors import EngineError, MissingDependency, UnsupportedError
from edgekit.target import Artifact, TargetInfo, registry
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_tflm import run
from edgekit_tflm.joined_ends import with_joined_ends
from edgekit_tflm.kernels import KERNELS
from edgekit_tflm.quant_rules import rules
from edgekit_tflm.run import FILE
from edgekit_tflm.vela import estimate

PRECISIONS = ("fp32",)
WITHOUT_XNNPACK = "EK1101"
"""The finding about what XNNPACK leaves to plain kernels: here all kernels are plain."""
PREPARED = re.compile(
    r"Node (?P<op>\w+) \(number (?P<number>\d+)f?\) failed to (?:prepare|initialize|invoke)"
)
"""tensorflow/lite/micro/micro_interpreter_graph.cc."""
UNSIZED = re.compile(r"Op#(?P<number>\d+) \((?P<op>\w+)\) of subgraph 0 has dynamic tensor")
"""python/tflite_micro/interpreter_wrapper.cc, of what is sized at run time, and of what has no elements."""
SOURCE = re.compile(r"\S+\.(?:cc|h):\d+ ?")
"""Where in TFLM's code a condition stands: its text is what is told."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Find nodes that TFLite cannot express or TFLM has no kernel for, and data that is moved."""
    findings = registry.compiler("tflite").check_model(model, profile)
    if errors(findings):
        return findings
    relevant = [finding for finding in findings if finding.code != WITHOUT_XNNPACK]
    ends = _with_ends(model)
    return [*_refused(ends.model, _lowered(ends.model, profile), profile), *relevant]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model.

    Args:
        precision: ``fp32``; a model with Q/DQ pairs is computed on integers.

    Raises:
        UnsupportedError: TFLite cannot express some nodes, or TFLM has no kernel for them; all are named.
    """
    ends = _with_ends(model)
    if floats := _floats_at_ends(model, ends, profile):
        lines = "\n".join(as_lines(floats))
        raise UnsupportedError(f"{profile.name}: --io int8 can't be obeyed\n{lines}", floats)
    artifact = _lowered(ends.model, profile)
    refuse(profile.name, _refused(ends.model, artifact, profile), "no kernel in TFLite Micro")
    return Artifact(artifact.files, _options(artifact, ends, profile), _facts(artifact))


def _with_ends(model: ir.Model) -> IntegerEnds:
    return with_integer_ends(with_joined_ends(with_quantized_bytes(model)))


def _floats_at_ends(model: ir.Model, ends: IntegerEnds, profile: Profile) -> list[Finding]:
    if not any(node.op_type == "QuantizeLinear" for node in model.graph):
        return []  # a float variant
    findings = []
    for value in filter(asks_for_integers, (*model.graph.inputs, *model.graph.outputs)):
        name, maker = str(value.name), value.producer()
        if not ends.described(name):
            node, op = (name, "") if maker is None else (node_name(maker), maker.op_type)
            reason = f"{name} is not stored as 8-bit integers by one scale; build without --io {name}=int8"
            findings.append(Finding("EK1002", "error", profile.name, node, op, reason))
    return findings


def _lowered(model: ir.Model, profile: Profile) -> Artifact:
    """Compile in the layout that moves the fewest bytes: the source's, or channels last."""
    lower = registry.compiler("tflite").compile_model
    as_asked = lower(model, profile, "fp32")
    if not as_asked.facts["transposed_bytes"]:
        return as_asked
    copy = model.clone()
    for value in (*copy.graph.inputs, *copy.graph.outputs):
        if value.shape is not None and len(value.shape) == 4:
            value.metadata_props[KEY] = "nhwc"
    channels_last = lower(copy, profile, "fp32")
    return min(as_asked, channels_last, key=lambda artifact: int(artifact.facts["transposed_bytes"]))


def _refused(model: ir.Model, artifact: Artifact, profile: Profile) -> list[Finding]:
    if findings := compared_without_scales(model, profile.name):
        return findings
    nodes = [(str(code), str(node)) for code, node in artifact.facts["nodes"]]
    return refusals(artifact, nodes, profile.name)


def _options(artifact: Artifact, ends: IntegerEnds, profile: Profile) -> dict[str, Json]:
    named = {
        key: [{**entry, **ends.described(entry["name"])} for entry in artifact.options[key]]
        for key in ("inputs", "outputs")
    }
    accelerator = profile.facts.get("accelerator")
    stands_in_for = profile.title if accelerator is None else f"{profile.title} ({accelerator.value})"
    return {
        **named,
        "precision": artifact.options["precision"],
        "stands_in_for": stands_in_for,
        "kernels": list(artifact.facts["ops"]),
    }


def _facts(artifact: Artifact) -> dict[str, Json]:
    """Return the facts of ``tflite`` without XNNPACK's, the kernels to register, and the model's flash."""
    names = ("ops", "transposes", "transposed_bytes", "float_islands", "requantizations")
    facts = {key: artifact.facts[key] for key in names if key in artifact.facts}
    return {
        **facts,
        "kernels": [KERNELS[code] for code in artifact.facts["ops"]],
        "memory_bytes": {"flash": len(artifact.files[FILE])},
    }


TARGET = TargetInfo(PRECISIONS, io_layouts=(*LAYOUTS, INTEGERS), quantization_rules=rules, estimate=estimate)


def compared_without_scales(model: ir.Model, target: str) -> list[Finding]:
    """Return findings for Greater on int16: its kernel reads scales from memory even if there are none."""
    return [
        Finding(
            "EK1004", "error", target, node_name(node), "Greater",
            "TFLite Micro's GREATER compares int16 by its scale, and these have none",
        )
        for node in model.graph
        if node.op_type == "Greater" and (value := node.inputs[0]) and value.dtype == ir.DataType.INT16
    ]  # fmt: skip


def refusals(artifact: Artifact, nodes: Sequence[tuple[str, str]], target: str) -> list[Finding]:
    """Return a finding for each node that TFLM has no kernel for or rejects; empty if the file runs.

    ``nodes``: operator and ONNX node of each operator of the file, in order.
    """
    without = {node: code for code, node in nodes if code not in KERNELS}
    if without:
        return [
            Finding("EK1001", "error", target, node, code, f"TFLite Micro has no kernel for {code}")
            for node, code in without.items()
        ]
    try:
        run.try_once(bytes(artifact.files[run.FILE]), artifact.options["inputs"])
    except MissingDependency:
        return []
    except EngineError as problem:
        match = UNSIZED.search(str(problem)) or PREPARED.search(str(problem))
        if match is None or int(match["number"]) >= len(nodes):
            return []  # verification tells it
        code, node = nodes[int(match["number"])]
        if match.re is UNSIZED:
            reason = f"TFLite Micro's {code} has an empty input or output, which it does not support"
            return [Finding("EK1002", "error", target, node, code, reason)]
        message = SOURCE.sub("", str(problem)[: match.start()].partition(": ")[2]).strip()
        reason = f"TFLite Micro's {code} does not support it" + (f": {message}" if message else "")
        return [Finding("EK1002", "error", target, node, code, reason)]
    return []


def with_quantized_bytes(model: ir.Model) -> ir.Model:
    """Return a copy of the model with these forms, or the model itself if it has no such Cast."""
    if not any(map(_widens, model.graph)):
        return model
    copy = model.clone()
    scale = add_constant(copy, np.array(1, np.float32), "bytes/scale")
    zero_point = add_constant(copy, np.array(0, np.uint8), "bytes/zero_point")
    for node in filter(_widens, list(copy.graph)):
        replace_node(node, new_node(node, "DequantizeLinear", [node.inputs[0], scale, zero_point]))
    return copy


def _widens(node: ir.Node) -> bool:
    if node.op_type != "Cast" or node.domain or node.inputs[0] is None:
        return False
    return node.inputs[0].dtype == ir.DataType.UINT8 and node.outputs[0].dtype == ir.DataType.FLOAT
