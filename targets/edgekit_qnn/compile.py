"""Make ``model.onnx`` and, for a device whose NPU is known, the context binary that it loads without
compiling.

    canonical graph  opset 23
      -> every node between Q/DQ pairs or in float16          htp_types
      -> opset 21, or newer if an operator needs it           edgekit.compiler.lowering.opset_downgrade
      -> compiled by Qualcomm's compiler with the CPU switched off: what it takes is on the NPU
      -> context.onnx, context_qnn.bin                        if the profile has ``accelerator``

The same graph gives the same bytes, in another process and another folder too. A context binary is for one
version of the NPU; on another one, or under an older library, the runner compiles ``model.onnx``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import onnx
import onnx_ir as ir

from edgekit.compiler.lowering.node_probes import probes
from edgekit.compiler.lowering.opset_downgrade import with_opset
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.rewriting import PART_OF
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.diagnostics import Finding, cannot_run, errors
from edgekit.errors import EngineError, UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_qnn.htp_types import PAIRS, refused_forms, with_htp_types
from edgekit_qnn.quant_rules import rules
from edgekit_qnn.run import CONTEXT_FILE, DEFAULT_ARCH, MODEL_FILE, PROVIDER, open_session, placement

PRECISIONS = ("fp32", "int8")
"""Floats are computed in float16, whichever was asked for. int8 is for models with Q/DQ pairs."""
OPSETS = (21, 22)
"""The first opset with Q/DQ in 16 bits, and the next. 23 if they lack an operator."""


class _Written(NamedTuple):
    content: bytes
    context: dict[str, bytes]
    nodes: int
    float_nodes: list[str]


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Return a finding for each node that the NPU does not take, by running Qualcomm's compiler.

    Raises:
        MissingDependency: onnxruntime-qnn is not installed.
    """
    return with_expansions(model, lambda graph_model: _written(graph_model, profile, with_context=False))[1]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model to ``model.onnx``, with a context binary if the profile names its NPU.

    Raises:
        UsageError: an unknown precision.
        ModelError: the model is over 2 GB.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"qnn supports {', '.join(PRECISIONS)}, not {precision}")
    written, findings = with_expansions(
        model, lambda graph_model: _written(graph_model, profile, with_context=True)
    )
    if errors(findings):
        raise cannot_run(profile.name, findings)
    quantized = any(node.op_type in PAIRS for node in model.graph)
    options: dict[str, Json] = {"precision": "int8" if quantized else "fp16"}
    if npu := npu_of(profile):
        options["htp_arch"] = npu
    facts: dict[str, Json] = {"nodes": written.nodes, "accelerator": f"v{npu or DEFAULT_ARCH}"}
    if quantized and written.float_nodes:
        facts["float16_nodes"] = list(written.float_nodes)
    return Artifact({MODEL_FILE: written.content, **written.context}, options, facts)


def npu_of(profile: Profile) -> str:
    """Return the version of a profile's NPU, e.g. ``73``, or "" if the profile names none."""
    fact = profile.facts.get("accelerator")
    return str(fact.value).lower().removeprefix("hexagon v") if fact is not None else ""


def _written(model: ir.Model, profile: Profile, with_context: bool) -> tuple[_Written, list[Finding]]:
    if findings := refused_forms(model, profile.name):
        return _Written(b"", {}, 0, []), findings
    typed, float_nodes = with_htp_types(model)
    content = save_model(next((old for opset in OPSETS if (old := with_opset(typed, opset))), typed))
    npu = npu_of(profile)
    try:
        context = _context(content, npu) if npu and with_context else {}
        if not context:
            open_session(content, npu or DEFAULT_ARCH)
    except EngineError as problem:
        findings = refused_nodes(content, profile, str(problem), _source_names(model))
        return _Written(content, {}, len(typed.graph), float_nodes), findings
    return _Written(content, context, len(typed.graph), float_nodes), []


def _context(content: bytes, npu: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        model, context = Path(folder, MODEL_FILE), Path(folder, "compiled", CONTEXT_FILE)
        context.parent.mkdir()
        model.write_bytes(content)
        command = [sys.executable, "-m", "edgekit_qnn.write_context", str(model), npu, str(context)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            message = done.stderr.strip().split("\n")[-1].removeprefix("refused: ")
            raise EngineError(message or f"Qualcomm's compiler ended with status {done.returncode}")
        return {path.name: path.read_bytes() for path in sorted(context.parent.iterdir())}


def _source_names(model: ir.Model) -> dict[str, str]:
    """Return node -> the node of the model before expansions that it is a part of."""
    return {str(node.name): node.metadata_props.get(PART_OF, str(node.name)) for node in model.graph}


def refused_nodes(
    content: bytes, profile: Profile, message: str, original_names: Mapping[str, str]
) -> list[Finding]:
    """Return a finding for each node that is not on the NPU.

    Args:
        message: The error for the whole model; the finding if each node alone is accepted.
        original_names: Node before types were set -> its name for the user; casts between types are
            not named.
    """
    arch = npu_of(profile) or DEFAULT_ARCH
    proto = onnx.ModelProto.FromString(content)
    ops = {node.name: node.op_type for node in proto.graph.node}
    try:
        session = open_session(content, arch, whole=False)
    except EngineError:  # it takes each node, and fails to compile them
        names = [] if any(op in PAIRS for op in ops.values()) else _failing(proto, arch)
        reason = "Qualcomm's compiler fails with it in float16"
    else:
        names = [name for provider, ids in placement(session).items() if provider != PROVIDER for name in ids]
        reason = f"not supported by the NPU (Hexagon v{arch})"
    unique = {
        original_names[name]: ops[name] for name in reversed(names) if name in ops and name in original_names
    }
    findings = [Finding("EK1001", "error", profile.name, *row, reason) for row in reversed(unique.items())]
    return findings or [Finding("EK1002", "error", profile.name, "", "", message)]


def _failing(model: onnx.ModelProto, arch: str) -> list[str]:
    compiles: dict[bytes, bool] = {}
    names = []
    for node, probe in probes(model):
        content = probe.SerializeToString(deterministic=True)
        if content not in compiles:
            try:
                open_session(content, arch, whole=False)
                compiles[content] = True
            except EngineError:
                compiles[content] = False
        if not compiles[content]:
            names.append(node.name)
    return names


TARGET = TargetInfo(PRECISIONS, quantization_rules=rules)
