"""Signatures of exported IRs, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgekit_openvino.exported import read_exported

from edgekit.errors import ModelError
from edgekit.tensor_spec import TensorSpec

XML = """<?xml version="1.0"?><net name="n" version="11"><layers>
<layer id="0" name="in" type="Parameter"><output>
<port id="0" precision="U8" names="image,other"><dim>1</dim><dim>3</dim></port></output></layer>
<layer id="1" name="split" type="Split"><output>
<port id="1" precision="FP32"><dim>9</dim></port>
<port id="2" precision="FP16"><dim>1</dim></port></output></layer>
<layer id="2" name="out" type="Result"/></layers>
<edges><edge from-layer="1" from-port="2" to-layer="2" to-port="0"/></edges></net>"""


def written(folder: Path, text: str) -> Path:
    path = folder / "m.xml"
    path.write_text(text, "utf-8")
    path.with_suffix(".bin").touch()
    return path


def test_the_output_is_the_port_that_the_result_reads(tmp_path: Path) -> None:
    found = read_exported(written(tmp_path, XML))
    assert found.inputs == [TensorSpec("image", "uint8", (1, 3))]
    assert found.outputs == [TensorSpec("split", "float16", (1,))]
    assert found.files == {"model.xml": tmp_path / "m.xml", "model.bin": tmp_path / "m.bin"}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (XML, "<net/>", "is not an OpenVINO model: it has no inputs or no outputs"),
        ("</net>", "", "is not an OpenVINO model: ParseError no element found"),
        ('from-port="2"', 'from-port="7"', "is not an OpenVINO model: StopIteration"),
        ('"FP16"', '"NF4"', "is not an OpenVINO model: KeyError 'NF4'"),
        ("<dim>3<", "<dim>-1<", "image has a dimension without a size; reshape the model in OpenVINO"),
        ("<net", "<!DOCTYPE net><net", "is not an OpenVINO model: it has a document type"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, before: str, after: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        read_exported(written(tmp_path, XML.replace(before, after)))


def test_a_document_type_in_another_encoding_is_refused_too(tmp_path: Path) -> None:
    path = written(tmp_path, XML)
    path.write_bytes(XML.replace("<net", "<!DOCTYPE net><net").encode("utf-16"))
    with pytest.raises(ModelError, match="is not an OpenVINO model: UnicodeDecodeError"):
        read_exported(path)


def test_the_weights_are_next_to_it(tmp_path: Path) -> None:
    path = written(tmp_path, XML)
    path.with_suffix(".bin").unlink()
    with pytest.raises(ModelError, match=r"m\.bin is not next to it; an OpenVINO model has both files"):
        read_exported(path)
