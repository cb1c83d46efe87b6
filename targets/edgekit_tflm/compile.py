"""Canonical model -> model.tflite for TFLite Micro, by the compiler of the target ``tflite``.

The file is in plain form, for interpreters without XNNPACK (a profile without that delegate), with integer
ends: the runner quantizes its inputs. Images are stored channels last if that saves a TRANSPOSE.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.lowering.integer_ends import IntegerEnds, with_integer_ends
from edgekit.compiler.lowering.io_layouts import INTEGERS, KEY, LAYOUTS, asks_for_integers
from edgekit.compiler.lowering.op_table import refuse
from edgekit.compiler.model.rewriting import node_name
from edgekit.diagnostics import Finding, as_lines, errors
from edgekit.errors import UnsupportedError
from edgekit.target import Artifact, TargetInfo, registry
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_tflm.acceptance import compared_without_scales, refusals
from edgekit_tflm.byte_casts import with_quantized_bytes
from edgekit_tflm.joined_ends import with_joined_ends
from edgekit_tflm.kernels import KERNELS
from edgekit_tflm.quant_rules import rules
from edgekit_tflm.run import FILE
from edgekit_tflm.vela import estimate

PRECISIONS = ("fp32",)
WITHOUT_XNNPACK = "EK1101"
"""The finding about what XNNPACK leaves to plain kernels: here all kernels are plain."""


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
