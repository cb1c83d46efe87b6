"""What a .tflite file says of its use is in the ONNX model's ``metadata_props``."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from edgekit_tflite import metadata as written
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.importer import metadata
from edgekit_tflite.importer.convert import convert
from edgekit_tflite.records import Record

from edgekit.compiler.importers.contract import Converted, ImportOptions
from tests.fixtures.tflite_files import TfliteFile, edited


def plain() -> bytes:
    file = TfliteFile()
    x = file.input((1, 4, 4, 3), "uint8", TensorQuantization((0.5,), (7,)), name="serving_default_image:0")
    (y,) = file.op("RELU", [x], ((1, 4, 4, 3), "uint8", TensorQuantization((0.5,), (7,))))
    file.graph.tensors[y].name = "scores"
    return file.content(y)


def with_metadata(content: bytes) -> bytes:
    def add(model: Any) -> None:
        model.metadata = [Record("Metadata", name=written.NAME, buffer=len(model.buffers))]
        model.buffers.append(Record("Buffer", data=np.frombuffer(content, np.uint8)))

    return edited(plain(), add)


def with_files(data: bytes, **files: bytes) -> bytes:
    held = io.BytesIO()
    held.write(data)
    with zipfile.ZipFile(held, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return held.getvalue()


def props(converted: Converted) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.ModelProto.FromString(converted.onnx).metadata_props}


FULL = written.model(
    "Birds", "What bird it is",
    [written.tensor(
        "image", "A bird", written.image(written.RGB, 4, 4),
        [written.normalization(np.array([127.5]), np.array([128.0]))],
        written.stats(np.array([-1.0]), np.array([1.0])),
    )],
    [written.tensor("probability", "Of each", written.feature(),
                    files=[written.associated_file("labels.txt", "Names", written.LABELS_OF_AXIS)])],
    version="v3", author="A", licence="Apache-2.0",
)  # fmt: skip


def test_everything_that_is_written_is_read() -> None:
    converted = convert(with_files(with_metadata(FULL), labels__txt=b"wren\nkite\n"), ImportOptions())
    found = props(converted)
    assert converted.notes == ()
    assert found[f"{metadata.FILE_KEY}labels.txt"] == "wren\nkite\n"
    assert json.loads(found[metadata.METADATA_KEY]) == {
        "name": "Birds",
        "description": "What bird it is",
        "version": "v3",
        "author": "A",
        "license": "Apache-2.0",
        "inputs": {
            "serving_default_image:0": {
                "name": "image",
                "description": "A bird",
                "content": {"type": "image", "color_space": "RGB", "default_size": [4, 4]},
                "steps": [{"type": "normalization", "mean": [127.5], "std": [128.0]}],
                "min": [-1.0],
                "max": [1.0],
            }
        },
        "outputs": {
            "scores": {
                "name": "probability",
                "description": "Of each",
                "content": {"type": "feature"},
                "files": [{"name": "labels.txt", "description": "Names", "type": "TENSOR_AXIS_LABELS"}],
            }
        },
    }


def test_scales_and_names_of_the_signature() -> None:
    found = json.loads(props(convert(plain(), ImportOptions()))[metadata.TENSORS_KEY])
    assert found == {
        "inputs": {
            "serving_default_image:0": {
                "signature_name": "serving_default_image:0", "scale": 0.5, "zero_point": 7,
            }
        },
        "outputs": {"scores": {"signature_name": "scores", "scale": 0.5, "zero_point": 7}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"nothing of the kind", "it does not say M001 in bytes 4 to 8"),
        (FULL[:40], "the metadata is outside the file, which has 40 bytes: it is damaged"),
    ],
)
def test_damaged_metadata_is_left_out_with_a_note(content: bytes, why: str) -> None:
    converted = convert(with_metadata(content), ImportOptions())
    assert list(props(converted)) == [metadata.TENSORS_KEY]
    assert converted.notes == (f"its metadata could not be read: {why}",)


def test_files_that_are_large_or_no_text_are_left_out() -> None:
    data = with_files(
        plain(), big__txt=b"a" * (metadata.MAX_FILE_BYTES + 1), raw__bin=b"\0\1", ok__txt=b"yes"
    )
    found = props(convert(data, ImportOptions()))
    assert [key for key in found if key.startswith(metadata.FILE_KEY)] == [f"{metadata.FILE_KEY}ok.txt"]


def test_a_damaged_archive_is_left_out_with_a_note(tmp_path: Path) -> None:
    whole = plain()
    data = bytearray(with_files(whole, labels__txt=b"wren\nkite\nowl\n" * 50))
    data[len(whole) + 45] ^= 255
    converted = convert(bytes(data), ImportOptions())
    assert list(props(converted)) == [metadata.TENSORS_KEY]
    (note,) = converted.notes
    assert note.startswith("the files that come with it could not be read: ")
