"""OpenVINO's C interface as an engine: openvino variants compute what Python's session computes."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.processing.card import parse_card
from tests.native.answers import assert_answers_as_python
from tests.native.library import NativeBundle, NativeSession, RefusedError, ort_library
from tests.native.models import yolox_bundle

pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_openvino]


@cache
def openvino_library() -> str:
    """Return the path of OpenVINO's shared library in the installed wheel; skip where it has none."""
    package = pytest.importorskip("openvino")
    found = sorted((Path(package.__file__).parent / "libs").glob("libopenvino_c.so*"))
    if not found:
        pytest.skip("this wheel of openvino has no libopenvino_c.so")
    return str(found[0])


@pytest.fixture(scope="module", params=["fp32", "int8"])
def bundle(request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = shared / "models" / "yolox_nano.onnx"
    card, quantized = parse_card(yolox_bundle(shared).card or {}), request.param == "int8"
    photographs = str(shared / "data" / "coco128" / "train" / "images" / "0000000000[0-3]?.jpg")
    built = edgekit.build(
        model, targets=["openvino"], precision=request.param, card=card,
        samples=photographs if quantized else None, force=quantized, fallback=not quantized,
        time_budget=1.0 if quantized else None,
    )  # fmt: skip
    return built.save(tmp_path_factory.mktemp("openvino") / "yolox.edgekit")


@pytest.mark.needs_shared
def test_yolox_nano_answers_as_python(bundle: Path, shared: Path) -> None:
    assert_answers_as_python(bundle, shared, "openvino", openvino_library(), "OpenVINO ")


def test_integers_that_openvino_narrows_are_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    path = edgekit.build(tmp_path / "m.onnx", targets=["openvino"]).save(tmp_path / "m.edgekit")
    with (
        NativeBundle(path) as opened,
        pytest.raises(RefusedError, match="x is int64, which OpenVINO narrows"),
    ):
        NativeSession(opened, openvino_library(), target="openvino")


def test_what_is_not_openvino_is_an_error(tmp_path: Path) -> None:
    onnx_file = tmp_path / "m.onnx"
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), onnx_file)
    path = edgekit.build(onnx_file, targets=["openvino"]).save(tmp_path / "m.edgekit")
    with NativeBundle(path) as opened:
        for library, text in (
            ("/nothing/libopenvino_c.so", "^OpenVINO cannot be loaded from /nothing/libopenvino_c.so\n"),
            (ort_library(), "it has no ov_core_create"),
        ):
            with pytest.raises(RefusedError, match=text):
                NativeSession(opened, library, target="openvino")
