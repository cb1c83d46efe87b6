"""Quantize one model by another tool: run by bench_peers.py in the environment that has the tool.

    python peer_child.py MAKER MODEL SAMPLES OUT

MAKER is a key of MAKERS, SAMPLES a folder of ``.npz`` (one sample each, arrays by input name), OUT the folder
for the artifact, in the names that EdgeKit's runners take. Nothing of EdgeKit is imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

OPSET = 17
"""Models of an older opset are raised to this: per-channel Q/DQ needs 13."""


def samples_of(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            yield dict(arrays)


def raised(model: Path, out: Path) -> Path:
    """The model at OPSET, where it is of one before 13."""
    import onnx
    from onnx import version_converter

    loaded = onnx.load(model)
    if next(each.version for each in loaded.opset_import if each.domain in ("", "ai.onnx")) >= 13:
        return model
    path = out / "raised.onnx"
    onnx.save(version_converter.convert_version(loaded, OPSET), path)
    return path


def by_onnxruntime(model: Path, samples: Path, out: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            self._samples = samples_of(samples)

        def get_next(self) -> dict[str, Any] | None:
            return next(self._samples, None)

    prepared = out / "prepared.onnx"
    try:
        quant_pre_process(raised(model, out), prepared)
    except Exception:  # its symbolic shapes stumble over some operators; all shapes are static here
        quant_pre_process(raised(model, out), prepared, skip_symbolic_shape=True)
    quantize_static(
        prepared,
        out / "model.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )


def by_nncf_onnx(model: Path, samples: Path, out: Path, preset: str = "performance") -> None:
    import nncf
    import onnx

    found = list(samples_of(samples))
    quantized = nncf.quantize(
        onnx.load(raised(model, out)),
        nncf.Dataset(found),
        preset=nncf.QuantizationPreset(preset),
        subset_size=len(found),
    )
    onnx.save(quantized, out / "model.onnx")


def by_nncf_openvino(model: Path, samples: Path, out: Path, preset: str = "performance") -> None:
    import nncf
    import openvino

    found = list(samples_of(samples))
    quantized = nncf.quantize(
        openvino.Core().read_model(model),
        nncf.Dataset(found),
        preset=nncf.QuantizationPreset(preset),
        subset_size=len(found),
    )
    openvino.save_model(quantized, out / "model.xml", compress_to_fp16=False)


def uniquely_named(model: Path, out: Path) -> Path:
    """The ``.tflite`` with a number behind each tensor name that occurs again: the tool asks for that."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    tree = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model.read_bytes(), 0))
    for graph in tree.subgraphs:
        seen: set[bytes] = set()
        for number, tensor in enumerate(graph.tensors):
            if tensor.name in seen:
                tensor.name += f"/{number}".encode()
            seen.add(tensor.name)
    builder = flatbuffers.Builder(1024)
    builder.Finish(tree.Pack(builder), b"TFL3")
    path = out / "unique.tflite"
    path.write_bytes(builder.Output())
    return path


def by_ai_edge_quantizer(model: Path, samples: Path, out: Path, static: bool = True) -> None:
    """``model`` is our fp32 ``.tflite``; ``names.json`` beside it has the signature's names of its inputs."""
    from ai_edge_quantizer import qtyping, quantizer, recipe

    binding = json.loads((model.parent / "names.json").read_text("utf-8"))
    tool = quantizer.Quantizer(str(uniquely_named(model, out)))
    tool.load_quantization_recipe(recipe.static_wi8_ai8() if static else recipe.dynamic_wi8_afp32())
    for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
        tool.update_quantization_recipe(".*", end, algorithm_key="no_quantize")  # floats in and out
    ranges = None
    if static:
        shapes = binding["shapes"]
        feeds = [
            {
                binding["inputs"][name]: np.ascontiguousarray(array.reshape(shapes[name]))
                for name, array in sample.items()
            }
            for sample in samples_of(samples)
        ]
        ranges = tool.calibrate({binding["signature"]: feeds})
    tool.quantize(ranges).export_model(str(out / "model.tflite"), overwrite=True)


MAKERS: dict[str, Callable[[Path, Path, Path], None]] = {
    "onnxruntime": by_onnxruntime,
    "nncf-onnx": by_nncf_onnx,
    "nncf-openvino": by_nncf_openvino,
    "nncf-openvino-mixed": partial(by_nncf_openvino, preset="mixed"),
    "ai-edge-static": by_ai_edge_quantizer,
    "ai-edge-dynamic": partial(by_ai_edge_quantizer, static=False),
}

if __name__ == "__main__":
    MAKERS[sys.argv[1]](*map(Path, sys.argv[2:5]))
