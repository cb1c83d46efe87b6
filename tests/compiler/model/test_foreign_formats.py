from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import open_model
from edgekit.errors import ModelError
from tests.fixtures.bundles import small_bundle


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
