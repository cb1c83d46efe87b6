"""Recognition of files and folders that are not ONNX models, with advice on getting the model."""

from __future__ import annotations

from pathlib import Path

NO_ZIP = "not one written by PyTorch (torch.export.save, torch.jit.save, torch.save) or Keras 3"
BRING = "pass the model that it was made from (.pt2, .keras, .tflite or .onnx)"
COREML = f"a Core ML model, which EdgeKit writes but does not read: {BRING}"
TENSORRT = (
    "a TensorRT engine, compiled for one GPU and one version of TensorRT: pass the .onnx file that it was "
    "built from, with -t tensorrt"
)
EXECUTORCH = (
    "an ExecuTorch program, compiled for one backend: pass the exported program that it was made from, saved "
    'with torch.export.save(exported, "model.pt2")'
)
TO_TFLITE = "convert it in TensorFlow to TFLite, which EdgeKit reads: tf.lite.TFLiteConverter"
KINDS: tuple[tuple[int, bytes, str], ...] = (
    # offset, bytes there, what it is and what to do
    (0, b"EDGEKIT\0", "it is an EdgeKit bundle: edgekit inspect shows what is in it"),
    (0, b"GGUF", "it is a language model in GGUF: pass it to edgekit build as it is"),
    (
        4,
        b"TFL3",
        ("it is a TFLite model: pass it to edgekit build, or convert it to ONNX with edgekit model import"),
    ),
    (4, b"ORTM", "it is in ONNX Runtime's own format (.ort): pass the .onnx file it was made from"),
    (4, b"ET", f"it is {EXECUTORCH}"),
    (0, b"ftrt", f"it is {TENSORRT}"),
    (0, b"PK\3\4", f"it is a zip archive, but {NO_ZIP}"),
    (0, b"\x80\2", "it is a Python pickle that does not contain a model"),
    (
        0,
        b"\x89HDF",
        'it is HDF5, the format of Keras 2: load it in Keras 3 and call model.save("model.keras")',
    ),
    (
        8,
        b'{"',
        "it is safetensors, which has weights but no graph: pass the module to edgekit.build, or the "
        "model's folder if it is a language model",
    ),
    (0, b"\x93NUMPY", "it is a NumPy array: pass the model here, and this file as --samples"),
    (0, b"version https://git-lfs", "it is a Git LFS pointer: run git lfs pull to fetch the model"),
    (0, b"<?xml", "it is XML, probably an OpenVINO model: pass the .onnx file it was made from"),
    (0, b"<", "it is a web page: download the model file itself"),
)
SUFFIXES = {
    ".mlmodel": COREML, ".engine": TENSORRT, ".plan": TENSORRT, ".trt": TENSORRT, ".pte": EXECUTORCH,
    ".pb": f"a TensorFlow graph: {TO_TFLITE}",
}  # fmt: skip
"""Formats without a signature of their own, some of which start like an ONNX file."""
FOLDERS: tuple[tuple[str, str], ...] = (
    # a file that the folder has, what it is and what to do
    ("Data/com.apple.CoreML", COREML),
    ("coremldata.bin", f"a compiled Core ML model: {BRING}"),
    ("keras_metadata.pb", f"a Keras 2 model: {TO_TFLITE}.from_keras_model"),
    ("saved_model.pb", f"a TensorFlow SavedModel: {TO_TFLITE}.from_saved_model"),
    (
        "model.weights.h5",
        'an unpacked .keras file: pass the file that it was unpacked from, or save the model with model.save('
        '"model.keras")',
    ),
    (
        "pytorch_model.bin",
        "a Hugging Face model with pickled weights: load it in Python, and pass the module to edgekit.build; "
        "or save it with save_pretrained, which writes safetensors, if it is a language model",
    ),
)  # fmt: skip
TEXT = frozenset(b"\t\n\r") | frozenset(range(32, 127))
TEXT_BYTES = 4096
"""Bytes at the start of a file by which text is recognized."""


def describe_format(content: bytes, suffix: str = "") -> str:
    """Return the format of a file that could not be read as ONNX, and what to do about it.

    >>> describe_format(b"version https://git-lfs.github.com/spec/v1")
    'it is a Git LFS pointer: run git lfs pull to fetch the model'
    """
    for offset, magic, description in KINDS:
        if content[offset : offset + len(magic)] == magic:
            return description
    if suffix in SUFFIXES:
        return f"it is {SUFFIXES[suffix]}"
    if content and all(byte in TEXT for byte in content[:TEXT_BYTES]):
        return "it is a text file: pass the file of the model"
    return f"it is not valid protobuf, or it is truncated ({len(content)} bytes): export or download it again"


def describe_folder(folder: Path) -> str:
    """Return what a folder without a language model is, and what to pass instead."""
    description = next((description for name, description in FOLDERS if (folder / name).exists()), None)
    if description is not None:
        return f"is {description}"
    onnx_file = next(iter(sorted(folder.glob("*.onnx"))), None)
    return f"is a folder; pass the model's file{f', e.g. {onnx_file}' if onnx_file else ''}"
