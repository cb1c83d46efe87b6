"""A detector for DeepStream: Gst-nvinfer's arithmetic in numpy finds the boxes that ``predict`` finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from edgekit_tensorrt.deepstream import deepstream_files
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.joined_files import read
from edgekit.compiler.evaluate.average_precision import box_overlaps
from edgekit.errors import EdgeKitError, UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_table import find_decoder
from edgekit.release.export.export_deepstream import export_deepstream
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.command_line import Call
from tests.fixtures.command_line import call as call
from tests.fixtures.detector import detector, detector_card
from tests.fixtures.nvinfer import Nvinfer

pytestmark = pytest.mark.needs_ort
SIZE = 64


def card_json(**changed: Any) -> Any:
    """The card of a detector in JSON; ``task`` and others are keys of the image or of the task."""
    table: Any = detector_card(SIZE).as_json()
    image, task = table["inputs"]["image"], table["task"]
    for key, value in changed.items():
        (image if key in ("mean", "std", "place", "pad", "resize", "dtype", "colour") else task)[key] = value
    return table


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("detector")
    card = parse_card(card_json(mean=[90.0, 110.0, 130.0], std=[60.0, 250.0, 500.0], place="center"))
    net = edgekit.build(detector(folder / "net.onnx"), targets=["ort", "tensorrt"], card=card)
    return Path(net.save(folder / "net.edgekit"))


def found_again(ours: Detections, theirs: Detections, counted: Array) -> Array:
    """Return which of our counted boxes they have too: of the class, and with an overlap above 0.8, a pixel's
    worth."""
    overlaps = box_overlaps(ours, np.arange(len(ours)), theirs, np.arange(len(theirs)))
    same = overlaps * (ours.classes[:, None] == theirs.classes[None])
    again: Array = (same.max(axis=1, initial=0) > 0.8)[counted]
    return again


def inside(found: Detections, frame: Array) -> Array:
    """Return which boxes are clearly above the threshold, and do not touch the frame's edge, where nvinfer
    clips otherwise than ``predict``."""
    height, width = frame.shape[:2]
    far = np.array([width, height]) - 5
    is_far = np.concatenate([found.boxes[:, :2] > 5, found.boxes[:, 2:] < far], axis=1).all(axis=1)
    return np.asarray(is_far & (found.scores > 0.1))


def test_nvinfer_finds_what_predict_finds(bundle: Path, tmp_path: Path) -> None:
    """A mean and a std for each channel, BGR, a letterbox in the centre, frames of three proportions."""
    with Bundle.open(bundle) as opened:
        files, notes = export_deepstream(opened, "tensorrt-fp32", tmp_path / "ds")
    assert ([path.name for path in files], notes) == (["model.onnx", "config_infer.txt", "labels.txt"], [])
    nvinfer, parts = Nvinfer(tmp_path / "ds"), list[Array]()
    assert nvinfer.labels == ["cat", "dog"]
    assert nvinfer.options["network-mode"] == "0"
    rng = np.random.default_rng(5)
    with Session[Detections](bundle, engine="ort") as session:
        for height, width in ((64, 64), (40, 90), (150, 70), (64, 200)):
            frame = np.kron(rng.integers(0, 255, (10, 10, 3)), np.ones((16, 21, 1))).astype(np.uint8)
            frame = np.ascontiguousarray(frame[:height, :width])
            ours, theirs = session.predict(frame), nvinfer.predict(frame)
            parts.append(found_again(ours, theirs, inside(ours, frame)))
            parts.append(found_again(theirs, ours, inside(theirs, frame)))
    again = np.concatenate(parts)
    assert (len(again) > 50, again.mean() >= 0.99) == (True, True)


def heads(decode: str, rng: Any, count: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """Outputs of a model by role, with ``count`` boxes and three classes, and options of its card."""
    centre, size = rng.uniform(0.1, 0.9, (count, 2)), rng.uniform(0.05, 0.4, (count, 2))
    scores = rng.uniform(0, 1, (count, 3)) ** 2
    part, pixels = np.hstack([centre, size]), np.hstack([centre, size]) * SIZE
    corners = np.hstack([centre - size / 2, centre + size / 2])
    objectness = rng.uniform(0.5, 1, (count, 1))
    kind = rng.integers(0, 3, (count, 1)).astype(float)
    outputs: Mapping[str, Any] = {
        "yolov5": {"predictions": np.hstack([pixels, objectness, scores])},
        "yolov5/normalized": {"predictions": np.hstack([part, objectness, scores])},
        "yolov8": {"predictions": np.hstack([pixels, scores]).T},
        "rtdetr": {"predictions": np.hstack([part, scores])},
        "ssd": {"boxes": corners[:, [1, 0, 3, 2]], "scores": scores},
        "end2end": {"predictions": np.hstack([corners * SIZE, scores[:, :1], kind])},
        "end2end/xywh": {"predictions": np.hstack([part, scores[:, :1], kind])},
    }
    options: Mapping[str, Any] = {
        "yolov5/normalized": {"normalized": True},
        "ssd": {"first_class": 1},
        "end2end/xywh": {"boxes": "xywh", "normalized": True},
    }
    return {
        role: np.asarray(array, np.float32)[None] for role, array in outputs[decode].items()
    }, options.get(decode, {})


@pytest.mark.parametrize(
    "decode", ["yolov5", "yolov5/normalized", "yolov8", "rtdetr", "ssd", "end2end", "end2end/xywh"]
)
def test_every_decoder_s_boxes(decode: str, tmp_path: Path) -> None:
    """The model's outputs are constants: nvinfer's boxes are those of the decoder, to a pixel."""
    form = decode.partition("/")[0]
    outputs, options = heads(decode, np.random.default_rng(9), 40)
    model, card = constant_model(outputs), head_card(form, outputs, options)
    files, notes = deepstream_files({"model.onnx": model}, {"precision": "fp32"}, card, "constant")
    assert notes == []
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    theirs = Nvinfer(tmp_path).predict(np.zeros((SIZE, SIZE, 3), np.uint8))
    decoder = find_decoder("detect", form)
    whole = ImagePlacement(SIZE, SIZE, SIZE, SIZE)
    assert card.task is not None
    ours: Any = decoder.function(outputs, card.task.options, whole, ())
    assert len(ours) > 8
    assert len(theirs) == len(ours)
    assert np.array_equal(theirs.classes, ours.classes)
    assert np.allclose(theirs.scores, ours.scores, atol=1e-6)
    assert np.abs(theirs.boxes - np.minimum(ours.boxes, SIZE - 1)).max() < 1e-3


def constant_model(outputs: Mapping[str, Array]) -> bytes:
    """Return a model whose outputs are these, whatever the image."""
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        *(helper.make_node("Add", [f"{role}/c", "nothing"], [f"out_{role}"]) for role in outputs),
    ]
    constants = {"zero": np.float32(0), **{f"{role}/c": array for role, array in outputs.items()}}
    graph = helper.make_graph(
        nodes,
        "constant",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [
            helper.make_tensor_value_info(f"out_{role}", TensorProto.FLOAT, list(array.shape))
            for role, array in outputs.items()
        ],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return bytes(model.SerializeToString())


def head_card(form: str, outputs: Mapping[str, Array], options: Mapping[str, Any]) -> Card:
    labels = ["none", "a;b", "", "last"]
    task = {"decode": form, "outputs": {role: f"out_{role}" for role in outputs}, "labels": labels}
    table = detector_card(SIZE, "stretch").as_json()
    return parse_card({**table, "task": {"kind": "detect", "score": 0.3, **task, **options}})


def test_a_box_that_reaches_into_the_padding_is_cut(tmp_path: Path) -> None:
    """By default nvinfer drops a box that reaches over the frame's lower edge."""
    row = [30, 30, 20, 10, 0.9, 0.1, 0.2]
    outputs = {"predictions": np.array(row, np.float32).reshape(1, 7, 1)}
    table: Any = head_card("yolov8", outputs, {}).as_json()
    table["inputs"]["image"]["resize"] = "letterbox"
    card = parse_card(table)
    files, _ = deepstream_files({"model.onnx": constant_model(outputs)}, {"precision": "fp32"}, card, "m")
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = Nvinfer(tmp_path).predict(np.zeros((SIZE // 2, SIZE, 3), np.uint8))
    assert found.boxes.tolist() == [[20, 25, 40, SIZE // 2]]


def test_labels_keep_their_numbers(tmp_path: Path) -> None:
    """nvinfer skips empty lines, and cuts at a semicolon."""
    outputs, options = heads("yolov8", np.random.default_rng(9), 40)
    card = head_card("yolov8", outputs, options)
    assert card.task is not None
    hostile = replace(card, task=replace(card.task, labels=("a;b", "", "c\nd", "\n")))
    files, _ = deepstream_files({"model.onnx": constant_model(outputs)}, {"precision": "fp32"}, hostile, "m")
    assert files["labels.txt"] == b"a,b\nclass 1\nc d\nclass 3\n"


@pytest.mark.parametrize(("precision", "mode"), [("int8", "1"), ("fp16", "2")])
def test_integers_and_half_floats(precision: str, mode: str, tmp_path: Path) -> None:
    """Pairs stay; nothing is in float16, which nvinfer's int8 mode does not allow."""
    rng = np.random.default_rng(2)
    samples = [{"image": rng.random((1, 3, SIZE, SIZE), np.float32)} for _ in range(4)]
    net = edgekit.build(
        detector(tmp_path / "net.onnx"),
        targets=["tensorrt"],
        card=parse_card(card_json(pad=114)),
        precision=precision,
        samples=samples,
        force=precision == "int8",
    )
    name = next(v.name for v in net.variants if v.options.get("precision") == precision and v.usable)
    _, notes = export_deepstream(net, name, tmp_path / "ds")
    assert notes == ["nvinfer pads with black instead of 114; evaluate a build with pad = 0 in the card"]
    nvinfer = Nvinfer(tmp_path / "ds")
    assert nvinfer.options["network-mode"] == mode
    model = onnx.load(tmp_path / "ds/model.onnx")
    assert TensorProto.FLOAT16 not in {array.data_type for array in model.graph.initializer}
    assert "Cast" not in {node.op_type for node in model.graph.node if "deepstream" not in node.name}
    pairs = sum(node.op_type == "QuantizeLinear" for node in model.graph.node)
    assert (pairs > 0) == (precision == "int8")
    raw = onnx.load_from_string(read(net, net[name], "model.onnx"))
    assert pairs == sum(node.op_type == "QuantizeLinear" for node in raw.graph.node)
    frame = rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8)
    assert len(nvinfer.predict(frame)) > 3


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"resize": "center-crop"}, "nvinfer scales whole frames, but the card's resize is 'center-crop'"),
        ({"dtype": "uint8"}, "nvinfer feeds float32, but the input is uint8"),
        (
            {"class_agnostic": True},
            "nvinfer's NMS is by class; build with class_agnostic = false, and evaluate it",
        ),
        ({"labels": []}, "the card has no labels, of which nvinfer needs the number; add task.labels"),
        (
            {"decode": "nanodet", "strides": [8]},
            "yolov8, yolox; the card has detect, decoded as nanodet: edgekit.Session",
        ),
        (
            {"kind": "classify"},
            "DeepStream's parser reads boxes, .*; the card has classify, decoded as logits",
        ),
    ],
)
def test_cards_that_nvinfer_cannot_express(changed: dict[str, Any], said: str, bundle: Path) -> None:
    table = card_json(**changed)
    if changed.get("kind"):
        table["task"] = {"kind": "classify", "decode": "logits", "outputs": {"scores": "boxes"}}
    if "resize" in changed:
        del table["inputs"]["image"]["pad"], table["inputs"]["image"]["place"]
    with Bundle.open(bundle) as opened:
        files = {"model.onnx": read(opened, opened["tensorrt-fp32"], "model.onnx")}
    with pytest.raises(UsageError, match=said):
        deepstream_files(files, {"precision": "fp32"}, parse_card(table), "net")


@pytest.mark.parametrize(
    ("form", "shape", "said"),
    [
        (
            "yolov8",
            (7, 40),
            "the model has no output out_predictions of 3 dimensions, which the card decodes",
        ),
        ("yolox", (1, 10, 8), "model.onnx: .* do not broadcast"),
        ("end2end", (1, 5, 3), "model.onnx: .* is outside 1x5x3"),
    ],
)
def test_outputs_that_the_card_does_not_fit(form: str, shape: tuple[int, ...], said: str) -> None:
    outputs = {"predictions": np.zeros(shape, np.float32)}
    with pytest.raises(EdgeKitError, match=said):
        deepstream_files(
            {"model.onnx": constant_model(outputs)}, {"precision": "fp32"}, head_card(form, outputs, {}), "m"
        )


@pytest.mark.parametrize(
    ("content", "precision", "said"),
    [
        (b"no model", "fp32", "model.onnx"),
        (None, "fp8", "nvinfer has no mode for fp8; export an fp32, fp16 or int8 variant"),
        (
            None,
            "fp32",
            r"the variant's inputs are image \[1, 3, 64, 64\], but nvinfer feeds \[1, 3, 32, 32\]",
        ),
    ],
)
def test_variants_that_nvinfer_cannot_run(
    content: bytes | None, precision: str, said: str, bundle: Path
) -> None:
    with Bundle.open(bundle) as opened:
        files = {"model.onnx": content or read(opened, opened["tensorrt-fp32"], "model.onnx")}
    card = detector_card(32)
    with pytest.raises(EdgeKitError, match=said):
        deepstream_files(files, {"precision": precision}, card, "net")


def test_the_command_s_refusals_write_nothing(bundle: Path, call: Call, tmp_path: Path) -> None:
    def refused(*words: object) -> str:
        done = call("export", *words)
        assert done.exit_code == 2
        first, *others = done.stderr.strip().splitlines()
        assert others in ([], ["  nothing was written"])
        return str(first)

    new = tmp_path / "new"
    assert "DeepStream runs variants for TensorRT, not ort-fp32; give tensorrt-fp32" in refused(
        bundle, "ort-fp32", "--deepstream", new
    )
    assert "give one of -o DIR" in refused(bundle, "--deepstream", new, "--triton", new)
    plain = small_bundle([variant("ort-fp32", "ort")]).save(tmp_path / "plain.edgekit")
    assert "not ort-fp32; build one with -t tensorrt" in refused(plain, "ort-fp32", "--deepstream", new)
    assert "--deepstream writes one variant; give VARIANT" in refused(bundle, "--deepstream", new)
    assert not new.exists()
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    assert "is not an empty folder; choose another one" in refused(
        bundle, "tensorrt-fp32", "--deepstream", full
    )
    assert [path.name for path in full.iterdir()] == ["mine"]
