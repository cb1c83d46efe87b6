"""Make ``model.rknn`` through rknn-toolkit2, in its environment.

    canonical graph  opset 23
      -> operators that came after opset 19 written with older ones     compiler.passes.expand_functions
      -> forms that the toolkit computes wrongly, as others             quantized_forms
      -> Q/DQ pairs so that the NPU has the chosen integers             quantized_forms
      -> opset 19                                                       compiler.lowering.opset_downgrade
      -> built in a child process                                       npu_child
      -> nodes that it refuses alone written with others, and again     compiler.passes.expand_functions

``model.onnx`` is kept next to it: the simulator runs what it builds, not a .rknn file.

Its errors rarely name nodes, or it crashes: to find the refused ones, each node is built as its own model.
Nodes of Q/DQ pairs, and those that multiply by dequantized weights, are left out, because they mean something
else alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx_ir as ir

from edgekit.compiler.lowering.node_probes import probes
from edgekit.compiler.lowering.opset_downgrade import nodes_changed_since, with_opset
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.rewriting import node_name
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.compiler.toolchains.child import ToolchainChild
from edgekit.compiler.toolchains.environment import Environment
from edgekit.diagnostics import Finding, cannot_run
from edgekit.errors import EngineError, UsageError, reason_of
from edgekit.system.formats import strict_json
from edgekit.target import Artifact, TargetInfo
from edgekit.target.cost_estimate import CostEstimate, NodeEstimate
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Content, Json
from edgekit_rknn import simulator, toolchain
from edgekit_rknn.quant_rules import rules
from edgekit_rknn.quantized_forms import refused_forms, write_forms, write_pairs
from edgekit_rknn.run import LAYERS_FILE, MODEL_FILE, SOURCE_FILE
from edgekit_rknn.toolchain import VERSION

PRECISIONS = ("fp32", "fp16")
"""The NPU has no float32: floats are float16 in both, and in a model with pairs too."""
OPSET = 19
"""load_onnx: "Unsupport onnx opset 20, need <= 19!"."""
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
SUBGRAPHS = ("If", "Loop", "Scan")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
SAID = re.compile(r"^E (?:RKNN: \[[^\]]*\] )?(.*\w.*)$", re.MULTILINE)
PAIR = ("QuantizeLinear", "DequantizeLinear")
EVERY_CONSTANT = 1 << 40
"""Weights go into a probe too: a Conv that reads them from an input is another node."""
SECONDS = 120.0
"""For one node; most take less than one second."""
TABLE = "Network Layer Information Table"
ROW = re.compile(
    r"\]\s+(\d+)\s+(\S+)\s+(\S+)\s+(NPU|CPU|GPU)\s+(\S+)\s+(\S+)\s+(\d+)/(\d+)/(\d+)\s+(\d+)\s+(\S+)\s*$"
)
MEMORY = re.compile(r"Total (Internal|Weight) Memory Size:\s*([\d.]+)KB")
LIMIT_BYTES = 8 << 20


def read_layers(log: str) -> dict[str, Json]:
    """Read the layers and memory sizes from the verbose log of a build.

    Returns:
        ``layers``: ``{op, dtype, device, cycles, name}`` each; ``internal_kb`` and ``weight_kb``.

    >>> line = "D RKNN: [08:04:02.949] 1 ConvClip INT8 NPU (1,3,9,9),(8) (1,8,9,9) 23/112/112 151 Conv:/stem"
    >>> read_layers(f"{TABLE}\\n{line}\\nTotal Weight Memory Size: 6.5KB")
    ... # doctest: +NORMALIZE_WHITESPACE
    {'layers': [{'op': 'ConvClip', 'dtype': 'INT8', 'device': 'NPU', 'cycles': 112, 'name': '/stem'}],
     'weight_kb': 6.5}
    """
    table = log.rpartition(TABLE)[2]
    rows = [match for match in map(ROW.search, table.splitlines()) if match is not None]
    layers: list[Json] = [
        {
            "op": row[2],
            "dtype": row[3],
            "device": row[4],
            "cycles": int(row[9]),
            "name": row[11].partition(":")[2] or row[11],
        }
        for row in rows
    ]
    sizes: dict[str, Json] = {f"{kind.lower()}_kb": float(size) for kind, size in MEMORY.findall(table)}
    return {"layers": layers, **sizes}


def estimate(files: Mapping[str, Content], profile: Profile) -> CostEstimate | None:
    """Return the compiler's cost estimate for the files it made; None if it gave none."""
    report = strict_json.decode(bytes(files[LAYERS_FILE]), LAYERS_FILE, LIMIT_BYTES)
    rows = [row for row in report["layers"] if row["op"] not in ("InputOperator", "OutputOperator")]
    if not rows:
        return None
    nodes = [
        NodeEstimate(
            row["name"],
            row["op"],
            row["device"],
            row["cycles"] if row["device"] == "NPU" else None,
            "" if row["device"] == "NPU" else "the compiler gives it to the CPU",
        )
        for row in rows
    ]
    memory = {
        name: int(1024 * report[key])
        for name, key in (("internal", "internal_kb"), ("weights", "weight_kb"))
        if key in report
    }
    notes = [
        "cycles are the larger of memory's and the NPU's, layer by layer; layers on the CPU are not in them"
    ]
    cycles = sum(node.cycles or 0 for node in nodes) or None  # of tiny networks it says 0
    return CostEstimate(VERSION, profile.facts["accelerator"].value, cycles, None, memory, nodes, notes)


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Find nodes that opset 19 can't express, subgraphs, and inputs and outputs that are not floats. The
    compiler may reject more, but runs only in a build."""
    return with_expansions(model, lambda graph_model: _emitted(graph_model, profile), _is_broken)[1]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model to ``model.rknn``, with the ONNX file that it was made from.

    Raises:
        UsageError: an unknown precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"rknn supports {', '.join(PRECISIONS)}, not {precision}")
    if findings := check_model(model, profile):
        raise cannot_run(profile.name, findings)
    environment = toolchain.environment(f"compiling for {profile.name}")
    files, findings = with_expansions(
        model, lambda graph_model: _built(graph_model, profile, environment), _is_broken
    )
    if findings:
        raise cannot_run(profile.name, findings)
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    options: dict[str, Json] = {
        "precision": "int8" if quantized else "fp16",
        "platform": profile.facts["accelerator"].value,
        "inputs": [str(value.name) for value in model.graph.inputs],
    }
    layers = strict_json.decode(files[LAYERS_FILE], LAYERS_FILE, LIMIT_BYTES)
    return Artifact(files, options, {"layers": len(layers["layers"]), "compiler": VERSION})


def _is_broken(node: ir.Node) -> bool:
    """LayerNormalization: a rule of the compiler's own fails on it, whatever its axes are."""
    return node.op_type == "LayerNormalization" and not node.domain


def _built(
    model: ir.Model, profile: Profile, environment: Environment
) -> tuple[dict[str, bytes], list[Finding]]:
    """Return the files, or none and a finding for each node that can't be written or that the compiler
    refuses."""
    written, findings = _emitted(model, profile)
    if findings:
        return {}, findings
    platform, content = profile.facts["accelerator"].value, save_model(written)
    with ToolchainChild(environment, simulator.CHILD) as child:
        (child.folder / SOURCE_FILE).write_bytes(content)
        request = {"do": "build", "platform": platform, "simulate": False}
        try:
            child.ask(request, simulator.BUILD_SECONDS)
        except EngineError as problem:
            refused = _refused(written, profile, problem, _log(child))
        else:
            compiled, layers = (child.folder / MODEL_FILE).read_bytes(), read_layers(_log(child))
            files = {MODEL_FILE: compiled, SOURCE_FILE: content, LAYERS_FILE: strict_json.encode(layers)}
            return files, []
    return {}, refused_alone(written, profile, environment) or refused


def _emitted(model: ir.Model, profile: Profile) -> tuple[ir.Model, list[Finding]]:
    graph = model.clone()
    write_pairs(graph)
    write_forms(graph)
    findings = [*_unfit_ends(graph, profile), *_subgraphs(graph, profile)]
    findings += refused_forms(graph, profile.name)
    older = with_opset(graph, OPSET)
    if older is not None:
        return older, findings
    named = {finding.node for finding in findings}
    text = f"opset {OPSET}, the newest that {VERSION} reads, does not have this form of it"
    for node in nodes_changed_since(graph, OPSET):
        if node_name(node) not in named:
            findings.append(Finding("EK1002", "error", profile.name, node_name(node), node.op_type, text))
    return graph, findings


def _unfit_ends(model: ir.Model, profile: Profile) -> list[Finding]:
    text = "the NPU supports float inputs and outputs only"
    findings = []
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.dtype not in FLOATS:
            maker = value.producer()
            row = (str(value.name), "") if maker is None else (node_name(maker), maker.op_type)
            findings.append(Finding("EK1004", "error", profile.name, *row, f"{value.dtype}: {text}"))
        elif value.is_graph_input() and value.shape is not None and len(value.shape) == 0:
            reason = "the simulator does not support inputs without axes; use the shape [1]"
            findings.append(Finding("EK1002", "error", profile.name, str(value.name), "", reason))
    return findings


def _subgraphs(model: ir.Model, profile: Profile) -> list[Finding]:
    return [
        Finding("EK1001", "error", profile.name, node_name(node), node.op_type, "no subgraphs on this NPU")
        for node in model.graph
        if node.op_type in SUBGRAPHS
    ]


def _log(child: ToolchainChild) -> str:
    return ESCAPES.sub("", child.output_end().replace("\\x1b", "\x1b"))


def _refused(model: ir.Model, profile: Profile, problem: EngineError, log: str) -> list[Finding]:
    lines = [" ".join(line.split()) for line in SAID.findall(log)]
    words = next((line for line in lines if "rror" in line or "nsupport" in line), reason_of(problem))[:300]
    named = [node for node in model.graph if node.name and any(str(node.name) in line for line in lines)]
    rows = [(node_name(node), node.op_type) for node in named] or [("", "")]
    return [Finding("EK1002", "error", profile.name, *row, f"{VERSION} rejects it: {words}") for row in rows]


TARGET = TargetInfo(PRECISIONS, quantization_rules=rules, reference_executor=simulator, estimate=estimate)


def refused_alone(model: ir.Model, profile: Profile, environment: Environment) -> list[Finding]:
    """Return a finding for each node that the compiler rejects alone; empty if it accepts all of them.
    ``model`` is the model as given to the compiler."""
    import onnx

    proto = onnx.ModelProto.FromString(save_model(model))
    constants = {tensor.name for tensor in proto.graph.initializer}
    from_constants = {
        node.output[0] for node in proto.graph.node if node.op_type in PAIR and node.input[0] in constants
    }
    names = {node.name: node_name(node) for node in model.graph}
    platform = profile.facts["accelerator"].value
    refused: dict[bytes, bool] = {}
    findings: dict[str, Finding] = {}
    child = ToolchainChild(environment, simulator.CHILD)
    try:
        for node, probe in probes(proto, EVERY_CONSTANT):
            if node.op_type in PAIR or from_constants.intersection(node.input):
                continue
            content = probe.SerializeToString(deterministic=True)
            if content not in refused:
                try:
                    (child.folder / SOURCE_FILE).write_bytes(content)
                    child.ask({"do": "build", "platform": platform, "simulate": False}, SECONDS)
                    refused[content] = False
                except EngineError:  # a child that has died can't be asked again
                    refused[content] = True
                    child.close()
                    child = ToolchainChild(environment, simulator.CHILD)
            if refused[content]:
                name = names.get(node.name, node.name)
                text = f"{VERSION} refuses this form of it"
                findings[name] = Finding("EK1002", "error", profile.name, name, node.op_type, text)
    finally:
        child.close()
    return list(findings.values())
