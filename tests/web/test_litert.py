"""Variants for TFLite in the page, on LiteRT.js: answers equal to Python's, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from edgekit.web import engine
from edgekit.web.folder import write_web
from tests.fixtures.bundles import pack, packed_parts
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.models import COLOUR_CARD, COLOURS, model_bundle
from tests.web.host import (
    FRAME,
    PREDICT,
    assert_same_boxes,
    checks,
    choose_bundle,
    first_photograph,
    hosted,
    opened,
    save_photograph,
)

pytestmark = [
    pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort, pytest.mark.needs_tflite,
]  # fmt: skip
INDICES = """
<ir_version: 8, opset_import: ["": 17]>
indices (float[2,3,4,5] x, int64[3] at) => (float[2,3,3,5] rows, int64[2,3,4] largest)
{
    rows = Gather<axis = 2>(x, at)
    largest = ArgMax<axis = 3, keepdims = 0>(x)
}
"""
"""int64 in the model is int32 in TFLite."""
RUN = """async ([x, at]) => {
  const {Session, EdgeKitError} = await import('./edgekit.js');
  const session = await Session.open('model.edgekit');
  const arrays = (indices) => [
    {name: 'x', dtype: 'float32', shape: [2, 3, 4, 5], data: Float32Array.from(x)},
    {name: 'at', dtype: 'int64', shape: [3], data: BigInt64Array.from(indices, BigInt)},
  ];
  const outputs = await session.run(arrays(at));
  const refused = await session.run(arrays([2 ** 40, 0, 0])).catch((problem) => problem);
  return {
    outputs: outputs.map(({name, dtype, shape, data}) => [name, dtype, shape, Array.from(data, Number)]),
    refused: `${refused instanceof EdgeKitError}: ${refused.message}`,
    engine: session.engine,
  };
}"""


def built(text: str, folder: Path, **options: Any) -> Bundle:
    """Build a model for TFLite."""
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    return edgekit.build(folder / "m.onnx", targets=["tflite"], **options)


def test_the_version_is_the_lock_files() -> None:
    version = engine.read_lock("tflite").version
    assert f"VERSION = '{version}'" in (Path(engine.__file__).parent / "litert.js").read_text("utf-8")


def test_a_classifier_predicts_as_python(program: Any, litert_package: Path, tmp_path: Path) -> None:
    bundle = built(COLOURS, tmp_path, card=parse_card(COLOUR_CARD))
    made = write_web(bundle, tmp_path / "site", [litert_package])
    assert made.variants == ["tflite-fp32"]
    assert (tmp_path / "site" / "litert").is_dir()
    assert not (tmp_path / "site" / "onnxruntime").exists()
    save_photograph(tmp_path / "site" / "photo.png", FRAME)
    with Session(bundle.save(tmp_path / "c.edgekit"), threads=1) as session:
        expected = session.predict(FRAME)
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, _):
        assert "tflite-fp32 on LiteRT.js 2.5.3, WebAssembly: verified" in page.inner_text("#summary")
        prediction = page.evaluate(PREDICT, "photo.png")
    assert [item["label"] for item in prediction["items"]] == [one.label for one in expected]
    scores = [item["score"] for item in prediction["items"]]
    assert scores == pytest.approx(expected.scores.tolist(), abs=1e-6)


def test_integers_of_another_width_and_outputs_of_several_axes(
    program: Any, litert_package: Path, tmp_path: Path
) -> None:
    bundle = built(INDICES, tmp_path)
    write_web(bundle, tmp_path / "site", [litert_package])
    x = np.random.default_rng(2).normal(0, 1, (2, 3, 4, 5)).astype(np.float32)
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, _):
        answer = page.evaluate(RUN, [x.ravel().tolist(), [3, 0, 2]])
    (rows, largest) = answer["outputs"]
    assert rows[:3] == ["rows", "float32", [2, 3, 3, 5]]
    assert rows[3] == x[:, :, [3, 0, 2]].ravel().tolist()
    assert largest == ["largest", "int64", [2, 3, 4], x.argmax(3).ravel().tolist()]
    assert "true: " in answer["refused"]
    assert "a value of at does not fit into int32" in answer["refused"]


@pytest.mark.needs_shared
@pytest.mark.parametrize("io", ["", "nhwc"])
def test_a_detector_finds_what_python_finds(
    program: Any, litert_package: Path, shared: Path, tmp_path: Path, io: str
) -> None:
    options: dict[str, Any] = {"io": io} if io else {}
    card, model = Path("samples/cards/yolox_nano.toml"), shared / "models" / "yolox_nano.onnx"
    bundle = edgekit.build(model, targets=["tflite"], card=card, **options)
    write_web(bundle, tmp_path / "site", [litert_package])
    frame = first_photograph(shared)
    save_photograph(tmp_path / "site" / "photo.png", frame)
    with Session(bundle.save(tmp_path / "y.edgekit"), threads=1) as session:
        expected = session.predict(frame)
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, _):
        prediction = page.evaluate(PREDICT, "photo.png")
    assert_same_boxes(prediction["items"], expected)


def test_a_variant_that_does_not_load_is_left(program: Any, litert_package: Path, tmp_path: Path) -> None:
    """Damaged bytes for LiteRT.js, and a variant for an engine that this folder does not have."""
    bundle = built(COLOURS, tmp_path, card=parse_card(COLOUR_CARD))
    write_web(bundle, tmp_path / "site", [litert_package])
    right = onnx_bytes(COLOURS)
    manifest, data = packed_parts(model_bundle({"first": b"no model", "second": b"none"}, right, COLOUR_CARD))
    manifest["variants"][0].update(target="tflite", files={"model.tflite": "v/first/model.onnx"})
    (tmp_path / "bad.edgekit").write_bytes(pack(json.dumps(manifest).encode(), data))
    with hosted(tmp_path / "site") as host, opened(program, host.url) as (page, said):
        choose_bundle(page, tmp_path / "bad.edgekit")
        rows = checks(page)
        said.clear()  # the browser's line of the file that is missing
    assert rows[1].startswith("not used first: LiteRT.js did not load model.tflite: ")
    assert rows[2].startswith("not used second: onnxruntime-web was not loaded: ")
