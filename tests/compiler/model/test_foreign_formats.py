from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import open_model
from edgekit.errors import ModelError
from tests.fixtures.bundles import small_bundle

BRING = "pass the model that it was made from (.pt2, .keras, .tflite or .onnx)"
COREML = f"a Core ML model, which EdgeKit writes but does not read: {BRING}"
TENSORRT = (
    "it is a TensorRT engine, compiled for one GPU and one version of TensorRT: pass the .onnx file that it "
    "was built from, with -t tensorrt"
)
TO_TFLITE = "convert it in TensorFlow to TFLite, which EdgeKit reads: tf.lite.TFLiteConverter"


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as error:
        open_model(path)
    start = f"{path.name}: is not an ONNX model: "
    assert str(error.value).startswith(start)
    return str(error.value).removeprefix(start)


def test_a_bundle(tmp_path: Path) -> None:
    path = small_bundle().save(tmp_path / "m.onnx")
    assert refusal(path) == "it is an EdgeKit bundle: edgekit inspect shows what is in it"


def test_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({}))
    assert refusal(tmp_path / "model.pt") == (
        "it is a zip archive, but not one written by PyTorch (torch.export.save, torch.jit.save, "
        "torch.save) or Keras 3"
    )


def test_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((2).to_bytes(8, "little") + b'{"')
    assert refusal(path) == (
        "it is safetensors, which has weights but no graph: pass the module to edgekit.build, or the "
        "model's folder if it is a language model"
    )


def test_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert (
        refusal(tmp_path / "x.npy") == "it is a NumPy array: pass the model here, and this file as --samples"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:",
            "it is a Git LFS pointer: run git lfs pull to fetch the model",
        ),
        (b"<!DOCTYPE html><html>", "it is a web page: download the model file itself"),
        (
            b'<?xml version="1.0"?><net>',
            "it is XML, probably an OpenVINO model: pass the .onnx file it was made from",
        ),
        (
            b"\x1c\0\0\0TFL3\x14\0 \0",
            "it is a TFLite model: pass it to edgekit build, or convert it to ONNX with edgekit model import",
        ),
        (
            b"\x89HDF\r\n\x1a\n",
            'it is HDF5, the format of Keras 2: load it in Keras 3 and call model.save("model.keras")',
        ),
        (pickle.dumps({"a": 1}, protocol=2), "it is a Python pickle that does not contain a model"),
        (
            b"\x20\0\0\0ET12" + bytes(99),
            "it is an ExecuTorch program, compiled for one backend: pass the exported program that it was "
            'made from, saved with torch.export.save(exported, "model.pt2")',
        ),
        (b"ftrt" + bytes(99), TENSORRT),
        (b"# My model\n\tsee below\r\n", "it is a text file: pass the file of the model"),
        (
            b"\xff\xff\xff",
            "it is not valid protobuf, or it is truncated (3 bytes): export or download it again",
        ),
    ],
)
def test_what_a_file_is(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    assert refusal(tmp_path / "m.onnx").startswith(why)


def test_a_language_model(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + bytes(64))
    assert refusal(path) == "it is a language model in GGUF: pass it to edgekit build as it is"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        # What Core ML writes for a specification of version 1 with one input: read as ONNX, it has no graph.
        ("m.mlmodel", b"\x08\x01\x12\x09\x0a\x07\x0a\x01x\x1a\x02*\0\xa2\x1f\0", f"it is {COREML}"),
        ("m.engine", b'\x20\0\0\0{"task": 1}ftrt', TENSORRT),  # Ultralytics puts its metadata first
        ("m.plan", bytes(99), TENSORRT),
        ("saved_model.pb", b"\x08\x01\x12\x02\x12\0", f"it is a TensorFlow graph: {TO_TFLITE}"),
        ("frozen.pb", b"\xff\xff\xff", f"it is a TensorFlow graph: {TO_TFLITE}"),
    ],
)
def test_formats_that_are_known_by_their_suffix(name: str, content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path / name) == why


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (["Data/com.apple.CoreML/model.mlmodel", "Manifest.json"], COREML),
        (["coremldata.bin"], f"a compiled Core ML model: {BRING}"),
        (["saved_model.pb", "variables/a"], f"a TensorFlow SavedModel: {TO_TFLITE}.from_saved_model"),
        (["saved_model.pb", "keras_metadata.pb"], f"a Keras 2 model: {TO_TFLITE}.from_keras_model"),
        (
            ["config.json", "metadata.json", "model.weights.h5"],
            "an unpacked .keras file: pass the file that it was unpacked from, or save the model with "
            'model.save("model.keras")',
        ),
        (
            ["config.json", "pytorch_model.bin"],
            "a Hugging Face model with pickled weights: load it in Python, and pass the module to "
            "edgekit.build; or save it with save_pretrained, which writes safetensors, if it is a language "
            "model",
        ),
    ],
)
def test_what_a_folder_is(files: list[str], why: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(ModelError) as error:
        open_model(tmp_path)
    assert str(error.value) == f"{tmp_path}: is {why}"
