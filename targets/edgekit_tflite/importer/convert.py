"""A .tflite file -> an ONNX file: read, operator by operator written in ONNX."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from edgekit.compiler.importers.contract import Converted, ImportOptions
from edgekit.errors import ModelError, UsageError
from edgekit_tflite.graph import Graph, Op
from edgekit_tflite.importer import (  # noqa: F401  (importing them fills the table)
    read_activation,
    read_conv,
    read_detection,
    read_index,
    read_math,
    read_quant,
    read_recurrent,
    read_shape,
)
from edgekit_tflite.importer.file import read_file
from edgekit_tflite.importer.metadata import metadata_props
from edgekit_tflite.importer.onnx_graph import OnnxGraph
from edgekit_tflite.importer.read_conv import DYNAMIC_RANGE
from edgekit_tflite.importer.readers import find_reader, read

MAX_BYTES = 2**31 - 1
"""Largest file: flatbuffers end there, and so does an ONNX file."""


def convert_file(path: Path, options: ImportOptions) -> Converted:
    """Convert a .tflite file to ONNX.

    Raises:
        ModelError: the file is damaged, or holds operators that have no form in ONNX; all are named.
        UsageError: another shape than the file's is asked for: the shapes in it are fixed.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ModelError(f"is {size / 2**30:.1f} GB; the limit is 2 GB")
        return convert(path.read_bytes(), options)
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None
    except ModelError as problem:
        raise ModelError(f"{path.name}: {problem}") from problem.__cause__


def convert(data: bytes, options: ImportOptions) -> Converted:
    """Convert the content of a .tflite file to ONNX; see :func:`convert_file`."""
    file = read_file(data)
    _refuse_unknown(file.graph.ops)
    _refuse_other_shapes(file.graph, options)
    graph = OnnxGraph(file, len(data))
    for index, op in enumerate(file.graph.ops):
        read(graph, index, op)
    props, notes = metadata_props(file, data)
    precision = "int8-dynamic" if DYNAMIC_RANGE in graph.notes else ""
    return Converted(graph.model(props), (*graph.notes, *notes), precision)


def _refuse_unknown(ops: list[Op]) -> None:
    unknown = [op for op in ops if find_reader(op) is None]
    counts = Counter(op.options.get("custom_code", op.code) for op in unknown)
    first: dict[str, Op] = {}
    for op in unknown:
        first.setdefault(str(op.options.get("custom_code", op.code)), op)
    lines = [
        f"  {op.node}" + (", which is custom" if op.code == "CUSTOM" else "")
        + (f", and {counts[name] - 1} more" if counts[name] > 1 else "")
        for name, op in first.items()
    ]  # fmt: skip
    if lines:
        raise ModelError(
            "has operators that cannot be expressed in ONNX, or are not supported:\n" + "\n".join(lines)
        )


def _refuse_other_shapes(graph: Graph, options: ImportOptions) -> None:
    shapes = {graph.tensors[i].name: graph.tensors[i].shape for i in graph.inputs}
    for key, shape in options.shapes.items():
        name = key or (next(iter(shapes)) if len(shapes) == 1 else "")
        if name in shapes and shapes[name] != tuple(shape):
            fixed, requested = ("x".join(map(str, dims)) for dims in (shapes[name], shape))
            raise UsageError(
                f"--shape {name}={requested}: shapes in a .tflite file are fixed, and this one is {fixed}; "
                "export the model again with the new shape"
            )
