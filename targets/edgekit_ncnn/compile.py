"""Make ncnn's ``model.param`` and ``model.bin``.

canonical graph
  -> layers, one function an op                                              ops_*.py
  -> what has no layer, in other operators, and again                        compiler.passes.expand_functions
  -> integers from one convolution to the next                               integer.py
  -> unread layers dropped, blobs split for their readers, written           network.py
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import onnx_ir as ir

from edgekit.compiler.lowering.op_table import open_shapes
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.diagnostics import Finding, as_lines, errors
from edgekit.errors import UnsupportedError, UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_ncnn import (  # noqa: F401  (importing the ops fills the table)
    ops_conv,
    ops_math,
    ops_matmul,
    ops_poles,
    ops_quant,
    ops_reduce,
    ops_resize,
    ops_shape,
)
from edgekit_ncnn.builder import Builder, lower, unheld
from edgekit_ncnn.integer import INT8_TERM, with_requantization
from edgekit_ncnn.network import Layer, live_layers, network_files
from edgekit_ncnn.quant_rules import rules
from edgekit_ncnn.run import BIN_FILE, PARAM_FILE

PRECISIONS = ("fp32", "fp16", "int8")
CANONICAL_OPSET = 23


@dataclass
class LoweredNetwork:
    """Layers of a model.

    Attributes:
        layers: In order, without those that nothing reads.
        inputs: Name of each input that is read -> its blob and the shape of that blob.
        outputs: Name of each output -> its blob.
    """

    layers: list[Layer]
    inputs: dict[str, Json]
    outputs: dict[str, Json]

    @property
    def output_blobs(self) -> list[str]:
        return [str(blob) for blob in self.outputs.values()]


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Find nodes that have no layers in ncnn."""
    return _lowered(model, profile)[1]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model.

    Args:
        precision: ``fp32``; ``fp16``: large weights are stored in float16 and widened at load; ``int8``: as
            fp32, for a model with Q/DQ pairs.

    Raises:
        UsageError: an unknown precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"ncnn supports {', '.join(PRECISIONS)}, not {precision}")
    lowered, findings = _lowered(model, profile)
    if errors(findings):
        lines = [line for finding in findings for line in as_lines([finding])]  # not grouped: all are named
        raise UnsupportedError("\n".join([f"{profile.name} can't run the model", *lines]), findings)
    integers = any(INT8_TERM in layer.params for layer in lowered.layers)
    with_requantization(lowered.layers, lowered.output_blobs)
    param, weights = network_files(lowered.layers, lowered.output_blobs, precision == "fp16")
    options: dict[str, Json] = {
        "precision": "int8" if integers else "fp32",
        "inputs": lowered.inputs,
        "outputs": lowered.outputs,
    }
    facts: dict[str, Json] = {"layers": dict(sorted(Counter(layer.kind for layer in lowered.layers).items()))}
    return Artifact({PARAM_FILE: param, BIN_FILE: weights}, options, facts)


def _lowered(model: ir.Model, profile: Profile) -> tuple[LoweredNetwork, list[Finding]]:
    def attempt(model: ir.Model) -> tuple[LoweredNetwork, list[Finding]]:
        build = Builder()
        inputs = {str(value.name): build.input(value) for value in model.graph.inputs}
        dynamic = open_shapes(model, profile.name)
        findings = lower.lower(build, model.graph, CANONICAL_OPSET, dynamic)
        problems = [replace(finding, target=profile.name) for finding in [*_ends(model, profile), *findings]]
        if problems:
            return LoweredNetwork([], {}, {}), problems
        outputs = {str(value.name): build.output(value).name for value in model.graph.outputs}
        layers = live_layers(build.layers, list(outputs.values()))
        used = {name for layer in layers for name in layer.inputs}
        ports: dict[str, Json] = {
            name: [value.name, list(value.stored)] for name, value in inputs.items() if value.name in used
        }
        live = [layer for layer in layers if layer.kind != "Input" or layer.outputs[0] in used]
        return LoweredNetwork(live, ports, dict(outputs)), []

    return with_expansions(model, attempt)


def _ends(model: ir.Model, profile: Profile) -> list[Finding]:
    findings = []
    for value in (*model.graph.inputs, *model.graph.outputs):
        is_read = value.is_graph_output() or bool(value.uses())
        if value.producer() is not None or not is_read:
            continue  # its node has the finding
        problem = unheld(value)
        if problem is not None:
            findings.append(
                Finding(problem.code, "error", profile.name, str(value.name), "", problem.reason, problem.fix)
            )
    return list(dict.fromkeys(findings))


TARGET = TargetInfo(PRECISIONS, quantization_rules=rules)
