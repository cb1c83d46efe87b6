"""Known facts about a model, before any guess: signature, metadata, and the last nodes of its graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from edgekit.compiler.card_inference.hugging_face_files import (
    LABELS_KEY,
    NO_FILES,
    HuggingFaceFiles,
    read_files,
)
from edgekit.compiler.card_inference.tflite_metadata import ultralytics_in
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.contract import Source as ModelSource
from edgekit.compiler.importers.conversion import as_source, import_source
from edgekit.compiler.model.onnx_file import open_bytes, open_model, signature
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.model.shape_inference import constant_tensor
from edgekit.tensor_spec import Array, TensorSpec

Declared = tuple[int | None, ...]
"""The shape of an input as the file has it; None where a dimension is open."""

THROUGH = (
    "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Cast", "Concat", "Slice",
    "DequantizeLinear", "QuantizeLinear",
)  # fmt: skip
"""Ops that move values and do not change them, but for rounding."""


@dataclass(frozen=True, eq=False)
class UnopenedModel:
    """Model file, read but not opened: shapes may be dynamic.

    Attributes:
        name: Name of the file, or the class of an object.
        folder: Folder of the ONNX file's external data; None if the model was imported.
        inputs: Declared shapes by name, of the inputs that are not weights.
        metadata: The model's own metadata, e.g. what Ultralytics writes.
        files: Content of the Hugging Face folder that the model is in.
    """

    name: str
    onnx: bytes
    folder: Path | None
    inputs: Mapping[str, Declared]
    metadata: Mapping[str, str]
    producer: str
    files: HuggingFaceFiles = NO_FILES


@dataclass(frozen=True, eq=False)
class GraphFacts:
    """Model with static shapes, and facts about its graph."""

    source: UnopenedModel
    model: ir.Model

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return signature(self.model)[0]

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return signature(self.model)[1]

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.source.metadata

    @property
    def is_ultralytics(self) -> bool:
        """Return whether Ultralytics' exporter wrote the model."""
        return self.metadata.get("author") == "Ultralytics"

    @property
    def is_paddle(self) -> bool:
        """Return whether paddle2onnx wrote the model, by its producer or the names of its outputs."""
        paddle = re.compile(r"(save_infer_model|fetch_name_|softmax_|sigmoid_|p2o\.)")
        named = any(paddle.match(spec.name) for spec in self.outputs)
        return named or self.source.producer == "PaddlePaddle"

    def activations(self, output: str) -> frozenset[str]:
        """Return the ops that compute an output's values, looked for behind the ops that only move them.

        For a concatenation those of all of its parts: ``{"Mul", "Sigmoid"}``.
        """
        start = next(value for value in self.model.graph.outputs if value.name == output)
        ops: set[str] = set()
        waiting: list[ir.Value] = [start]
        visited: set[ir.Value] = set()
        while waiting:
            value = waiting.pop()
            node = value.producer()
            if node is None or value in visited:
                continue
            visited.add(value)
            if node.op_type in THROUGH:
                waiting += [v for v in (node.inputs if node.op_type == "Concat" else node.inputs[:1]) if v]
            else:
                ops.add(node.op_type)
        return frozenset(ops)

    def quantization(self, name: str) -> tuple[float, int] | None:
        """Return scale and zero point of an integer input or output that the graph (de)quantizes, or None."""
        for value in self.model.graph.outputs:
            node = value.producer()
            if value.name == name and node is not None and node.op_type == "QuantizeLinear":
                return _scale_and_zero(node)
        for value in self.model.graph.inputs:
            if value.name == name:
                for node, _ in value.uses():
                    if node.op_type == "DequantizeLinear":
                        return _scale_and_zero(node)
        return None


def read_source(model: ModelSource | str, options: ImportOptions | None = None) -> UnopenedModel:
    """Read the declarations of a model, of any framework that an importer takes."""
    path, imported = as_source(model), import_source(model, options)
    if imported is not None:
        name, data, folder = imported.name, imported.onnx, None
    else:
        assert isinstance(path, Path)
        name, folder = path.name, path.parent
        data = path.read_bytes() if path.is_file() else b""
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError:
        proto = onnx.ModelProto()
    if not proto.graph.node and isinstance(path, Path):
        open_model(path)  # raises what is wrong with the file
    weights = {tensor.name for tensor in proto.graph.initializer}
    inputs = {
        value.name: tuple(d.dim_value if d.dim_value > 0 else None for d in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
        if value.name not in weights
    }
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    metadata = {**ultralytics_in(metadata), **metadata}
    files = read_files(path)
    if files.labels:
        metadata[LABELS_KEY] = repr(dict(files.labels))
    return UnopenedModel(name, data, folder, inputs, metadata, proto.producer_name, files)


def read_facts(source: UnopenedModel, shapes: Mapping[str, tuple[int, ...]]) -> GraphFacts:
    return GraphFacts(source, open_bytes(source.onnx, source.name, shapes, source.folder))


def constant_of(value: ir.Value | None) -> Array | None:
    """Return the array of a weight or of a Constant node; None for anything else."""
    if value is None:
        return None
    node = value.producer()
    if node is None or node.op_type != "Constant":
        return array_of(value)
    tensor = constant_tensor(node)
    return None if tensor is None else tensor.numpy()


def _scale_and_zero(node: ir.Node) -> tuple[float, int] | None:
    scale = constant_of(node.inputs[1])
    zero = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if scale is None or scale.size != 1:
        return None
    return float(scale.reshape(())), 0 if zero is None else int(zero.reshape(()))
