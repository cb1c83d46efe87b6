"""Convert ONNX to Core AI by ``coreai-onnx``, and name every node that it refuses.

The converter stops at the first node that it can't lower. Such a node is cut out, its outputs become inputs
of the graph, and the rest is converted again:

    a -> b(refused) -> c -> d(refused)   =>   a;  c -> d(refused)   =>   a;  c

The same model gives the same bytes. Core AI names the weights in ``main.mlirb`` by a hash that each process
seeds anew. Only the string section holds these names:

    resource_5768467763020611406, resource_549412149714418614, ...  ->  resource_0, resource_1, ...

Format: https://mlir.llvm.org/docs/BytecodeFormat/
"""

from __future__ import annotations

import hashlib
import json
import re
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
from edgekit_coreai.run import MLIR, PACKAGE, PROGRAM

HASH, METADATA = f"{PACKAGE}/main.hash", f"{PACKAGE}/metadata.json"
REASON_LIMIT = 300
"""Longest reason that a finding repeats, in characters: MLIR prints whole operations."""
STRING_SECTION = 0
HAS_ALIGNMENT = 0x80
RESOURCE = re.compile(rb"resource_\d+")


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


def with_numbered_resources(content: bytes) -> bytes:
    """Return the bytecode with its resources named by their order.

    Raises:
        ValueError: it is not MLIR bytecode of the known form.
    """
    if not content.startswith(MLIR):
        raise ValueError("it does not start as MLIR bytecode")
    _, place = _read_varint(content, len(MLIR))
    place = content.index(b"\0", place) + 1
    written = [content[:place]]
    while place < len(content):
        start, kind = place, content[place]
        length, place = _read_varint(content, place + 1)
        if kind & HAS_ALIGNMENT:
            alignment, place = _read_varint(content, place)
            place = -(-place // alignment) * alignment
        end = place + length
        if end > len(content):
            raise ValueError("a section is longer than the file")
        if kind == STRING_SECTION:
            section = _renamed(content[place:end])
            written.append(bytes([kind]) + _varint(len(section)) + section)
            if any(content[offset] & HAS_ALIGNMENT for offset in _sections_after(content, end)):
                raise ValueError("a section behind the strings is aligned")
        else:
            written.append(content[start:end])
        place = end
    return b"".join(written)


def _sections_after(content: bytes, place: int) -> list[int]:
    """Return where the sections from ``place`` on start, up to the first aligned one."""
    starts = []
    while place < len(content):
        starts.append(place)
        if content[place] & HAS_ALIGNMENT:
            break
        length, place = _read_varint(content, place + 1)
        place += length
    return starts


def _renamed(section: bytes) -> bytes:
    """Return the string section with numbered resources: a count, the lengths from the last to the first
    with their terminating zeros, the strings."""
    count, place = _read_varint(section, 0)
    for _ in range(count):
        _, place = _read_varint(section, place)
    strings = section[place:].split(b"\0")[:-1]
    if len(strings) != count:
        raise ValueError("a string contains a zero")
    number = 0
    for index, string in enumerate(strings):
        if RESOURCE.fullmatch(string):
            strings[index] = b"resource_%d" % number
            number += 1
    lengths = b"".join(_varint(len(string) + 1) for string in reversed(strings))
    return _varint(count) + lengths + b"".join(string + b"\0" for string in strings)


def _read_varint(content: bytes, place: int) -> tuple[int, int]:
    first = content[place]
    more = 8 if first == 0 else (first & -first).bit_length() - 1
    end = place + 1 + more
    number = int.from_bytes(content[place:end], "little")
    return (number >> 8 if more == 8 else number >> (more + 1)), end


def _varint(number: int) -> bytes:
    for more in range(8):
        if number < 1 << (7 * (more + 1)):
            return (((number << 1) | 1) << more).to_bytes(more + 1, "little")
    return b"\0" + number.to_bytes(8, "little")
