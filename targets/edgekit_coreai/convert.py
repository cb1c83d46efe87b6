"""Convert ONNX to Core AI by ``coreai-onnx``, and name every node that it refuses.

The converter stops at the first node that it can't lower. Such a node is cut out, its outputs become inputs
of the graph, and the rest is converted again:

    a -> b(refused) -> c -> d(refused)   =>   a;  c -> d(refused)   =>   a;  c
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import onnx

from edgekit.compiler.lowering.node_probes import probes
from edgekit.compiler.model.rewriting import PART_OF
from edgekit.diagnostics import Finding
from edgekit.errors import MissingDependency
from edgekit.system.redirection import without_lines
from edgekit_coreai.bytecode import with_numbered_resources
from edgekit_coreai.run import PACKAGE, PROGRAM

HASH, METADATA = f"{PACKAGE}/main.hash", f"{PACKAGE}/metadata.json"
REASON_LIMIT = 300
"""Longest reason that a finding repeats, in characters: MLIR prints whole operations."""


def converter() -> Any:
    """Import the package coreai-onnx.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        import coreai_onnx
    except ImportError as problem:
        if problem.name is None or problem.name.partition(".")[0] not in ("coreai", "coreai_onnx"):
            raise
        raise MissingDependency("coreai-onnx", "writing an .aimodel", extra="coreai") from None
    return coreai_onnx


def convert(model: onnx.ModelProto, target: str) -> tuple[dict[str, bytes], list[Finding]]:
    """Return the files of the .aimodel, or none and a finding for each node that Core AI can't express.

    Raises:
        MissingDependency: coreai-onnx is not installed.
    """
    package = converter()
    left, finding_by_node = model, dict[str, Finding]()
    while True:
        refused: dict[str, tuple[str, str]] = {}
        try:
            files = _files(package, left)
            break
        except package.UnsupportedOpError as problem:
            for names in problem.missing.values():
                refused |= dict.fromkeys(names, ("EK1001", "Core AI's converter does not support it"))
        except package.ConversionError as problem:
            refused[problem.node_name] = ("EK1002", plain(problem.__cause__ or problem))
        except Exception as problem:  # the converter's checks and MLIR raise many classes, without a node
            refused = _refused_alone(package, left)
            if not refused:
                finding_by_node[""] = Finding("EK1002", "error", target, "", "", plain(problem))
                break
        nodes = [node for node in left.graph.node if node.name in refused or refused.keys() & set(node.input)]
        if not nodes:  # a name of a node that the converter made from several
            finding_by_node[""] = Finding(
                "EK1002", "error", target, "", "", "; ".join(reason for _, reason in refused.values())
            )
            break
        for node in nodes:
            key = next(name for name in (node.name, *node.input) if name in refused)  # or of a weight
            code, reason = refused[key]
            name = source_name(node)
            op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            finding_by_node.setdefault(name, Finding(code, "error", target, name, op, reason))
        left = _without(left, {node.name for node in nodes})
    return ({}, list(finding_by_node.values())) if finding_by_node else (files, [])


def source_name(node: onnx.NodeProto) -> str:
    """Return the name that the user knows: of the node that this one was written out from."""
    return next((entry.value for entry in node.metadata_props if entry.key == PART_OF), node.name)


def plain(problem: BaseException) -> str:
    """Return an exception's text in one line."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return text if len(text) <= REASON_LIMIT else f"{text[:REASON_LIMIT]} ..."


def _files(package: Any, model: onnx.ModelProto) -> dict[str, bytes]:
    """Convert; the same model gives the same bytes: without a date, and with numbered weights."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with without_lines(b""):
            package.convert(model).save_asset(Path(folder) / PACKAGE)
        program = with_numbered_resources((Path(folder) / PROGRAM).read_bytes())
        metadata = json.loads((Path(folder) / METADATA).read_text("utf-8"))
    del metadata["creationDate"]
    return {
        PROGRAM: program,
        HASH: hashlib.sha256(program).digest(),
        METADATA: json.dumps(metadata, indent=2, sort_keys=True).encode(),
    }


def _refused_alone(package: Any, model: onnx.ModelProto) -> dict[str, tuple[str, str]]:
    refused = {}
    for node, probe in probes(model):
        try:
            _files(package, probe)
        except Exception as problem:  # see convert
            refused[node.name] = ("EK1002", plain(problem.__cause__ or problem))
    return refused


def _without(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """Return the model without some nodes, whose outputs become inputs of the graph."""

    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    graph = rest.graph
    cut = [node for node in graph.node if node.name in names]
    types = {value.name: value for value in [*graph.value_info, *graph.output]}
    remaining = [node for node in model.graph.node if node.name not in names]
    del graph.node[:]
    graph.node.extend(remaining)
    cut_outputs = {name for node in cut for name in node.output if name}
    graph.input.extend(types[name] for name in cut_outputs if name in types)
    for value in [value for value in graph.output if value.name in cut_outputs]:
        graph.output.remove(value)
    if not graph.output:
        graph.output.extend(types[name] for node in remaining[-1:] for name in node.output if name in types)
    return rest
