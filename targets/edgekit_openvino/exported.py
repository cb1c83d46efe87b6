"""Names, types and shapes of an OpenVINO IR, read from its ``.xml`` without OpenVINO."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from edgekit.errors import ModelError
from edgekit.target.contract import ExportedFile
from edgekit.tensor_spec import TensorSpec
from edgekit_openvino.run import BIN_FILE, XML_FILE, XML_LIMIT_BYTES

DTYPES = {
    "FP64": "float64", "FP32": "float32", "FP16": "float16", "BOOL": "bool", "BOOLEAN": "bool",
    **{f"{kind}{bits}": f"{name}{bits}" for kind, name in (("I", "int"), ("U", "uint"))
       for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Precision of a port -> numpy name."""


def read_exported(path: Path) -> ExportedFile:
    """Read an IR's inputs and outputs; the weights are the ``.bin`` next to it.

    Raises:
        ModelError: a file is missing or damaged, or a shape is not static.
    """
    weights = path.with_suffix(".bin")
    try:
        if not weights.is_file():
            raise ModelError(f"{path}: {weights.name} is not next to it; an OpenVINO model has both files")
        if path.stat().st_size > XML_LIMIT_BYTES:
            raise ModelError(f"{path} is larger than {XML_LIMIT_BYTES >> 20} MiB")
        content = path.read_text("utf-8")
        if "<!DOCTYPE" in content:  # entities can grow without bound
            raise ModelError(f"{path} is not an OpenVINO model: it has a document type")
        network = ElementTree.fromstring(content)
        layers = {layer.attrib["id"]: layer for layer in network.iterfind("layers/layer")}
        sources = {
            edge.attrib["to-layer"]: (edge.attrib["from-layer"], edge.attrib["from-port"])
            for edge in network.iterfind("edges/edge")
        }
        inputs = [_spec(layer, path) for layer in layers.values() if layer.attrib["type"] == "Parameter"]
        results = [key for key, layer in layers.items() if layer.attrib["type"] == "Result"]
        outputs = [_spec(layers[sources[key][0]], path, sources[key][1]) for key in results]
    except (ElementTree.ParseError, KeyError, ValueError, StopIteration) as problem:
        raise ModelError(
            f"{path} is not an OpenVINO model: {type(problem).__name__} {problem}; export it again"
        ) from None
    except OSError as problem:
        raise ModelError(f"{path} can't be read: {problem.strerror}") from None
    if not inputs or not outputs:
        raise ModelError(f"{path} is not an OpenVINO model: it has no inputs or no outputs")
    return ExportedFile({XML_FILE: path, BIN_FILE: weights}, inputs, outputs)


def _spec(layer: ElementTree.Element, path: Path, port_id: str = "") -> TensorSpec:
    """Return a layer's output; "" means its first one. A tensor without a name has that of its layer."""
    port = next(p for p in layer.iterfind("output/port") if port_id in ("", p.attrib["id"]))
    name = port.attrib.get("names", layer.attrib["name"]).split(",")[0]
    shape = tuple(int(dimension.text or "") for dimension in port.iterfind("dim"))
    if min(shape, default=0) < 0:
        raise ModelError(
            f"{path}: {name} has a dimension without a size; reshape the model in OpenVINO and save it again"
        )
    return TensorSpec(name, DTYPES[port.attrib["precision"]], shape)
