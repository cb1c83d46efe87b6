"""Every operator that is read, against LiteRT: the ONNX model answers as the .tflite file does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite import flatbuffer
from edgekit_tflite.importer.convert import convert
from edgekit_tflite.importer.options import OPTIONS
from edgekit_tflite.importer.readers import CUSTOM_READERS, READERS

from edgekit.importers.contract import ImportOptions
from edgekit.model.onnx_file import open_bytes, signature
from edgekit.model.reference import Reference
from edgekit.tensors import Array
from tests.fixtures.tflite_files import TfliteFile, on_litert
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
    assert lacking <= WITHOUT_LITERT, lacking


WITHOUT_LITERT = {"DENSIFY", "FAKE_QUANT"}
"""They have tests of their own: a sparse constant, and an operator that LiteRT 2.3 has no more."""
