"""Convert or quantize one model by another tool: run by makers.py in the environment that has the tool.

    python maker_child.py CALL MODEL SAMPLES OUT

CALL is a key of CALLS, SAMPLES a folder of ``.npz`` (one sample each, arrays by input name), OUT the folder
for the artifact, in the names that EdgeKit's runners take. Nothing of EdgeKit is imported, but for what
EdgeKit's own environment makes: folders of onnxruntime-genai, and files of llama.cpp.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

PICTURES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""Name of the file of pictures that onnx2tf looks for in its folder before it fetches it."""
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


def by_onnxruntime_dynamic(model: Path, samples: Path, out: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(raised(model, out), out / "model.onnx", per_channel=True)


def by_copy(model: Path, samples: Path, out: Path) -> None:
    shutil.copyfile(model, out / "model.onnx")


def by_openvino(model: Path, samples: Path, out: Path) -> None:
    import openvino

    openvino.save_model(openvino.convert_model(model), out / "model.xml", compress_to_fp16=False)


def by_nncf_onnx(model: Path, samples: Path, out: Path, preset: str = "performance") -> None:
    import nncf
    import onnx

    arrays = list(samples_of(samples))
    quantized = nncf.quantize(
        onnx.load(raised(model, out)),
        nncf.Dataset(arrays),
        preset=nncf.QuantizationPreset(preset),
        subset_size=len(arrays),
    )
    onnx.save(quantized, out / "model.onnx")


def by_nncf_openvino(model: Path, samples: Path, out: Path, preset: str = "performance") -> None:
    import nncf
    import openvino

    arrays = list(samples_of(samples))
    quantized = nncf.quantize(
        openvino.Core().read_model(model),
        nncf.Dataset(arrays),
        preset=nncf.QuantizationPreset(preset),
        subset_size=len(arrays),
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
    """Quantize EdgeKit's fp32 ``.tflite``, whose ``made.json`` has the signature's names of its inputs."""
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import qtyping, quantizer, recipe

    options = json.loads((model.parent / "made.json").read_text("utf-8"))["options"]
    tool = quantizer.Quantizer(str(uniquely_named(model, out)))
    tool.load_quantization_recipe(recipe.static_wi8_ai8() if static else recipe.dynamic_wi8_afp32())
    for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
        tool.update_quantization_recipe(".*", end, algorithm_key="no_quantize")  # floats in and out
    ranges = None
    if static:
        names = {entry["name"]: entry["signature_name"] for entry in options["inputs"]}
        details = Interpreter(str(model)).get_signature_runner(options["signature"]).get_input_details()
        feeds = [
            {
                names[name]: np.ascontiguousarray(array.reshape(details[names[name]]["shape"]))
                for name, array in sample.items()
            }
            for sample in samples_of(samples)
        ]
        ranges = tool.calibrate({options["signature"]: feeds})
    tool.quantize(ranges).export_model(str(out / "model.tflite"), overwrite=True)


def by_onnx2tf(model: Path, samples: Path, out: Path) -> None:
    """Convert to an int8 ``model.tflite`` of floats in and out; ``names.json`` has its signature."""
    import onnx
    import onnx2tf

    graph = onnx.load(model).graph
    inputs = [value.name for value in graph.input]
    arrays = list(samples_of(samples))
    ranges = []
    for number, name in enumerate(inputs):
        every = np.concatenate([sample[name] for sample in arrays])
        every = np.moveaxis(every, 1, -1) if every.ndim > 2 else every
        np.save(out / f"{number}.npy", every)
        channels = every.shape[-1]
        ranges.append([name, str(out / f"{number}.npy"), [0.0] * channels, [1.0] * channels])
    # It checks its conversion on these, and otherwise fetches pictures; they are not what it calibrates with.
    np.save(out / PICTURES, np.random.default_rng(0).random((20, 128, 128, 3), np.float32))
    os.chdir(out)
    onnx2tf.convert(
        input_onnx_file_path=str(model),
        output_folder_path=str(out / "tf"),
        output_integer_quantized_tflite=True,
        custom_input_op_name_np_data_path=ranges,
        non_verbose=True,
    )
    content = (out / "tf" / f"{model.stem}_integer_quant.tflite").read_bytes()
    sides = {"inputs": sized(graph.input), "outputs": sized(graph.output)}
    signed, names = with_signature(content, sides)
    (out / "model.tflite").write_bytes(signed)
    (out / "names.json").write_text(json.dumps(names), "utf-8")


def sized(values: Any) -> list[tuple[str, int]]:
    """Return the name and the number of elements of ONNX values of static shapes."""
    return [
        (value.name, int(np.prod([dim.dim_value for dim in value.type.tensor_type.shape.dim])))
        for value in values
    ]


def with_signature(content: bytes, sides: dict[str, list[tuple[str, int]]]) -> tuple[bytes, dict[str, Any]]:
    """Return the ``.tflite`` with a signature, and its name with the names and shapes of its values in the
    source's order.

    A value of the file is the source's if it has its name; else the first of its size that is left.

    Args:
        content: The file.
        sides: Name and number of elements of the source's ``inputs`` and ``outputs``.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    tree = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    graph = tree.subgraphs[0]
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = b"serving_default", 0
    names: dict[str, Any] = {"signature": "serving_default"}
    for side, sources in sides.items():
        rest = [int(index) for index in getattr(graph, side)]
        maps = []
        names[side] = []
        for number, (source, size) in enumerate(sources):
            named = [i for i in rest if letters(graph.tensors[i].name.decode()) == letters(source)]
            fits = [i for i in rest if int(np.prod(graph.tensors[i].shape)) == size]
            index = (named or fits or rest)[0]
            rest.remove(index)
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = f"{side}_{number}".encode(), index
            maps.append(entry)
            names[side].append((f"{side}_{number}", [int(d) for d in graph.tensors[index].shape]))
        setattr(signature, side, maps)
    tree.signatureDefs = [signature]
    builder = flatbuffers.Builder(1024)
    builder.Finish(tree.Pack(builder), b"TFL3")
    return bytes(builder.Output()), names


def letters(name: str) -> str:
    """Return the letters and digits of a name, without what TensorFlow puts around it."""
    return "".join(filter(str.isalnum, name.removeprefix("serving_default_").removesuffix(":0")))


def by_llama_cpp(model: Path, samples: Path, out: Path, kind: int | None) -> None:
    """Have llama.cpp quantize a GGUF file to a type of its ``llama_ftype``; with None it stays as it is."""
    import ctypes

    from tests.benchmarks.text_runners import llama_library

    if kind is None:
        shutil.copyfile(model, out / "model.gguf")
        return
    library = llama_library()
    parameters = library.llama_model_quantize_default_params()
    parameters.numbers[0], parameters.numbers[1], parameters.flags[0] = 1, kind, True  # threads, type, again
    paths = (str(path).encode() for path in (model, out / "model.gguf"))
    if library.llama_model_quantize(*paths, ctypes.byref(parameters)):
        sys.exit("llama_model_quantize failed")


def by_genai_folder(model: Path, samples: Path, out: Path, precision: str) -> None:
    """Write EdgeKit's weights and nodes as onnxruntime-genai takes them."""
    from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
    from tests.benchmarks.bench_generate import weights_of
    from tests.benchmarks.genai_folder import write_genai_folder
    from tests.benchmarks.text_runners import CONTEXT

    opened = open_gguf_model(model)
    write_genai_folder(opened, weights_of(opened, precision), CONTEXT, out)


def by_openvino_genai(model: Path, samples: Path, out: Path, kind: str) -> None:
    """Keep openvino-genai's conversion of the GGUF file of a kind, as llama.cpp's maker has left it."""
    import openvino_genai

    model = next(out.parent.glob(f"llama.cpp {kind}, *")) / "model.gguf"
    shutil.copyfile(model, out / model.name)
    openvino_genai.LLMPipeline(str(out / model.name), "CPU", enable_save_ov_model=True)
    (out / model.name).unlink()


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide what is made."""
    names = {
        *("onnxruntime", "nncf", "openvino", "onnx", "ai-edge-quantizer", "ai-edge-litert"),
        *("onnx2tf", "tensorflow", "openvino-genai"),
    }
    found = {entry.metadata["Name"]: entry.version for entry in metadata.distributions()}
    return {name: found[name] for name in sorted(names & found.keys())}


CALLS: dict[str, Callable[[Path, Path, Path], None]] = {
    "copy": by_copy,
    "openvino": by_openvino,
    "onnx2tf": by_onnx2tf,
    "onnxruntime": by_onnxruntime,
    "onnxruntime-dynamic": by_onnxruntime_dynamic,
    "nncf-onnx": by_nncf_onnx,
    "nncf-openvino": by_nncf_openvino,
    "nncf-openvino-mixed": partial(by_nncf_openvino, preset="mixed"),
    "ai-edge-static": by_ai_edge_quantizer,
    "ai-edge-dynamic": partial(by_ai_edge_quantizer, static=False),
    "llama.cpp-Q8_0": partial(by_llama_cpp, kind=7),
    "llama.cpp-Q4_1": partial(by_llama_cpp, kind=None),
    "llama.cpp-Q4_K_M": partial(by_llama_cpp, kind=15),
    "llama.cpp-Q4_0": partial(by_llama_cpp, kind=2),
    "genai-int8": partial(by_genai_folder, precision="int8"),
    "genai-int4": partial(by_genai_folder, precision="int4"),
    "openvino-genai-Q8_0": partial(by_openvino_genai, kind="Q8_0"),
    "openvino-genai-Q4_1": partial(by_openvino_genai, kind="Q4_1"),
}

if __name__ == "__main__":
    (Path(sys.argv[4]) / "versions.json").write_text(json.dumps(versions()), "utf-8")
    CALLS[sys.argv[1]](*map(Path, sys.argv[2:5]))
