"""Every operator that is read, against LiteRT: the ONNX model answers as the .tflite file does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_tflite import flatbuffer
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.importer.convert import convert
from edgekit_tflite.importer.options import OPTIONS
from edgekit_tflite.importer.read_conv import DYNAMIC_RANGE
from edgekit_tflite.importer.readers import CUSTOM_READERS, READERS

import edgekit
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.model.onnx_file import open_bytes, signature
from edgekit.compiler.model.reference import Reference
from edgekit.tensor_spec import Array
from tests.fixtures.tflite_files import TfliteFile, edited, on_litert
from tests.targets.tflite.importer.reader_cases import CASES

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]


def feeds_of(file: TfliteFile, given: Mapping[int, Array]) -> list[Array]:
    """What is given for an input, else seeded numbers."""
    rng = np.random.default_rng(7)
    found = []
    for number, index in enumerate(file.graph.inputs):
        tensor = file.graph.tensors[index]
        is_float = tensor.dtype == "float32"
        made = rng.standard_normal(tensor.shape) if is_float else rng.integers(-5, 6, tensor.shape)
        if tensor.dtype == "bool":
            made = rng.integers(0, 2, tensor.shape)
        found.append(given[number] if number in given else made.astype(tensor.dtype))
    return found


def answers(onnx: bytes, feeds: Sequence[Array]) -> list[Array]:
    """What the ONNX model answers on ONNX Runtime."""
    model = open_bytes(onnx, "model.onnx")
    inputs, _ = signature(model)
    names = [spec.name for spec in inputs]
    return list(Reference(model).run(dict(zip(names, feeds, strict=True))).values())


@pytest.mark.parametrize("name", CASES)
def test_it_answers_as_the_file_does(name: str, tmp_path: Path) -> None:
    build, given = CASES[name]
    file = TfliteFile()
    outputs = build(file)
    data = file.content(*outputs)
    feeds = feeds_of(file, given)
    expected = on_litert(data, feeds, tmp_path)
    found = answers(convert(data, ImportOptions()).onnx, feeds)
    for wanted, got in zip(expected, found, strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6)
        else:  # the integer kernel of ADD rounds its own way
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1 if name.startswith("uint8") else 0)


@pytest.mark.parametrize("bits", [8, 4])
def test_integer_weights_of_float_data(bits: int, tmp_path: Path) -> None:
    """LiteRT rounds the data at run time; the comparison knows, and a note says so."""
    rng = np.random.default_rng(0)
    stored = rng.integers(-7, 8, (32, 64)).astype(np.int8)
    file = TfliteFile()
    scales = TensorQuantization((0.02,) * 32, (0,) * 32, 0)
    inputs = [file.input((4, 64)), file.constant(stored, "int8", scales), -1]
    options: dict[str, Any] = {"weights_format": 0, "keep_num_dims": False}
    data = file.content(*file.op("FULLY_CONNECTED", inputs, ((4, 32), "float32"), **options))

    def pack_two_in_a_byte(model: Any) -> None:
        tensor = next(each for each in model.subgraphs[0].tensors if each.name == b"constant_1")
        tensor.type = 17
        low, high = (stored.reshape(-1, 2).astype(np.uint8) & 15).T
        model.buffers[tensor.buffer].data = low | high << 4

    path = tmp_path / "model.tflite"
    path.write_bytes(data if bits == 8 else edited(data, pack_two_in_a_byte))
    found = edgekit.import_model(path)
    assert found.imported.precision == "int8-dynamic"
    assert found.imported.notes == (DYNAMIC_RANGE,)
    (error,) = found.compared.outputs.values()
    assert error.snr_db is not None
    assert 40 < error.snr_db < 70


def test_everything_that_is_written_is_read() -> None:
    assert set(flatbuffer.OPTIONS) <= set(READERS)


def test_every_reader_knows_its_options() -> None:
    assert set(READERS) <= set(OPTIONS)


def test_every_reader_has_a_case() -> None:
    used: set[str] = set()
    for build, _ in CASES.values():
        file = TfliteFile()
        build(file)
        used.update(op.code for op in file.graph.ops)
    lacking = (set(READERS) | set(CUSTOM_READERS)) - used
    assert lacking == {
        "BITCAST",
        "DENSIFY",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
    }  # test_read_back, _sparse, _recurrent
