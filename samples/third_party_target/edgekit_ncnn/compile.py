"""Make ncnn's ``model.param`` and ``model.bin`` by the pnnx program."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from edgekit.compiler.lowering.node_probes import probes
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.rewriting import PART_OF
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.diagnostics import Finding, as_lines
from edgekit.errors import UnsupportedError, UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit.tensor_spec import Json
from edgekit_ncnn.converter import ConversionError, Network, convert
from edgekit_ncnn.float_network import FloatNetwork, float_network
from edgekit_ncnn.limits import beyond_limits
from edgekit_ncnn.run import BIN_FILE, PARAM_FILE

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.target.profile import Profile

PRECISIONS = ("fp32", "fp16")
TARGET = TargetInfo(PRECISIONS)
WRITTEN_OUT = ("Slice",)
"""Ops that are always decomposed. A Slice of several axes ends as a layer of ncnn's that splits evenly; one
with steps (the Focus of YOLOX) has none."""
ALWAYS_TAKEN = ("Add", "Clip", "Concat", "Conv", "HardSwish", "Mul", "Relu", "Sigmoid")
ALL_CONSTANTS = 2**31
PROBE_SECONDS = 60
"""How long pnnx is asked about nodes one by one, to say which it refuses: 0.4 s each."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Nodes that have no form in ncnn, found by converting the model.

    Raises:
        MissingDependency: pnnx is not installed.
    """
    return _converted(model, profile, False)[1]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """The canonical model as ncnn's two files; in fp16 its weights take half the bytes, and are
    widened at load: sums are float32.

    Raises:
        UsageError: an unknown precision.
        UnsupportedError: nodes that have no form in ncnn; all are named.
        MissingDependency: pnnx is not installed.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"ncnn compiles {', '.join(PRECISIONS)}, not {precision}")
    made, found = _converted(model, profile, precision == "fp16")
    if found or made is None:
        raise UnsupportedError("\n".join([f"{profile.name} can't run the model", *as_lines(found)]), found)
    floats, network = made
    options: dict[str, Json] = {}
    for each, ports in (("inputs", floats.inputs), ("outputs", floats.outputs)):
        options[each] = {
            name: [blob, network.batch_axes.get(blob, 0), list(shape)]
            for name, (blob, shape) in ports.items()
        }
    files = {PARAM_FILE: network.param, BIN_FILE: network.weights}
    return Artifact(files, options, {"layers": int(network.param.split()[1])})


def _converted(
    model: ir.Model, profile: Profile, half: bool
) -> tuple[tuple[FloatNetwork, Network] | None, list[Finding]]:
    """The network and what ncnn has no form for; a node that is refused is decomposed where that is possible,
    and the model is converted again."""

    def attempt(model: ir.Model) -> tuple[tuple[FloatNetwork, Network] | None, list[Finding]]:
        floats = float_network(model)
        found = beyond_limits(floats.model, profile.name)
        if found:
            return None, found
        content = save_model(floats.model)
        try:
            return (floats, convert(content, half)), []
        except ConversionError as problem:
            return None, _refused_nodes(content, profile.name, str(problem))

    return with_expansions(model, attempt, unsupported=lambda node: node.op_type in WRITTEN_OUT)


def _refused_nodes(content: bytes, target: str, message: str) -> list[Finding]:
    """A finding for each node that pnnx does not convert alone, of those that PROBE_SECONDS suffice for."""
    import onnx

    model = onnx.ModelProto.FromString(content)
    until = time.monotonic() + PROBE_SECONDS
    found = []
    refusals: dict[bytes, str] = {}
    for node, alone in probes(model, ALL_CONSTANTS):
        if node.op_type in ALWAYS_TAKEN:
            continue
        key = alone.SerializeToString(deterministic=True)
        if key not in refusals:
            if time.monotonic() > until:
                break
            refusals[key] = _refusal(key)
        if refusals[key]:
            name = next((entry.value for entry in node.metadata_props if entry.key == PART_OF), node.name)
            op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            found.append(Finding("EK1001", "error", target, name, op, refusals[key]))
    if found:
        return list(dict.fromkeys(found))  # a decomposed node counts once, however many nodes became of it
    last = model.graph.node[-1]
    return [
        Finding("EK1002", "error", target, last.name or last.output[0], last.op_type, f"the model: {message}")
    ]


def _refusal(alone: bytes) -> str:
    try:
        convert(alone, False)
    except ConversionError as problem:
        return str(problem)
    return ""
