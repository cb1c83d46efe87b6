"""Projects that are no packages, or whose packages no longer install: their own decoding code, from a clone.

FastestDet's clone holds a trained ONNX file. For NanoDet, CenterNet and YOLOv5 a few random convolutions
stand in for the network; what is compared is the decoding of what they make of photographs of the input's
size.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np

from tests.benchmarks.decoder_origins.origin import Answer, Array, Origin
from tests.benchmarks.decoder_origins.ultralytics_models import load_ultralytics

SIZE, CLASSES = 320, 20
Session = Callable[[Path], Callable[[dict[str, Array]], dict[str, Array]]]


def origins(clones: Mapping[str, Path], folder: Path, runner: Session) -> Iterator[Origin]:
    """The projects whose clones are given, by name."""
    makers = {"fastestdet": _fastestdet, "nanodet": _nanodet, "centernet": _centernet, "yolov5": _yolov5}
    for name, clone in clones.items():
        yield makers[name](clone, folder, runner)


def import_from(clone: Path, module: str, mocked: tuple[str, ...] = ()) -> Any:
    """A module of a clone, with torchvision's NMS by Ultralytics' own; packages that decoding does not use
    are mocked where they are missing."""
    import torch

    load_ultralytics()
    from packaging.version import parse
    from ultralytics.utils.nms import TorchNMS

    def batched_nms(boxes: Any, scores: Any, classes: Any, iou: float) -> Any:
        return TorchNMS.nms(boxes + classes[:, None] * (boxes.max() + 1), scores, iou)

    ops = ModuleType("torchvision.ops")
    ops.nms, ops.batched_nms = TorchNMS.nms, batched_nms  # type: ignore[attr-defined]
    vision = MagicMock(__spec__=None, __path__=[], ops=ops)
    versions = ModuleType("pkg_resources")
    versions.parse_version = parse  # type: ignore[attr-defined]
    stand_ins: dict[str, Any] = {"torchvision": vision, "torchvision.ops": ops, "pkg_resources": versions}
    before = {name for name in sys.modules if name.split(".")[0] in ("utils", "models")}
    assert not before, "clones bring modules of these names"
    found = None
    while found is None:
        with patch.dict(sys.modules, stand_ins), patch.object(sys, "path", [str(clone), *sys.path]):
            try:
                found = importlib.import_module(module)
            except ModuleNotFoundError as missing:
                if (missing.name or "").split(".")[0] not in mocked:
                    raise
                stand_ins[str(missing.name)] = MagicMock(__spec__=None, __path__=[])
    for name in [name for name in sys.modules if name.split(".")[0] in ("utils", "models")]:
        del sys.modules[name]
    torch.manual_seed(0)
    return found


def _origin(
    name: str, path: Path, task: dict[str, Any], runner: Session, read: Callable[[dict[str, Any]], Any], *,
    size: int = SIZE, colour: str = "RGB",
) -> Origin:  # fmt: skip
    """``read``: outputs as torch tensors -> boxes [n, 4] of the photograph of the input's size, scores,
    classes."""
    import torch

    image = {"kind": "image", "shape": [1, 3, size, size], "layout": "NCHW", "colour": colour}
    image |= {"resize": "stretch", "std": [255.0] * 3}
    card = {"title": name, "inputs": {"image": image}, "task": task}
    run = runner(path)

    def answer(photo: Array) -> Answer:
        given = photo if colour == "BGR" else photo[:, :, ::-1]
        feed = np.ascontiguousarray(given.transpose(2, 0, 1)[None], np.float32) / np.float32(255)
        boxes, scores, classes = read({key: torch.from_numpy(x) for key, x in run({"image": feed}).items()})
        return Answer(
            np.clip(np.asarray(boxes, np.float64), 0, size), np.asarray(scores), np.asarray(classes)
        )

    return Origin(name, name, path, card, answer, size)


def _stand_in(path: Path, heads: Mapping[str, tuple[int, int]], finish: Callable[..., Any]) -> None:
    """Export random convolutions: heads by name -> (stride, channels); ``finish`` makes the outputs of
    them."""
    import torch

    class StandIn(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 32, 7, 4, 3)
            self.heads = torch.nn.ModuleDict(
                {
                    name: torch.nn.Conv2d(32, channels, 3, stride // 4, 1)
                    for name, (stride, channels) in heads.items()
                }
            )

        def forward(self, image: Any) -> Any:
            features = torch.relu(self.stem(image * 4 - 2)) * 3
            return finish({name: head(features) for name, head in self.heads.items()})

    torch.manual_seed(0)
    network = StandIn().eval()
    example = torch.rand(1, 3, SIZE, SIZE)
    outputs = network(example)
    torch.onnx.export(
        network, (example,), path, input_names=["image"], output_names=list(outputs), external_data=False
    )


def _fastestdet(clone: Path, folder: Path, runner: Session) -> Origin:
    import onnx
    import torch

    tool = import_from(clone, "utils.tool")
    model = onnx.load(clone / "example/onnx-runtime/FastestDet.onnx")
    name = model.graph.input[0].name
    for node in model.graph.node:
        node.input[:] = ["image" if x == name else x for x in node.input]
    model.graph.input[0].name = "image"
    path = folder / "fastestdet.onnx"
    onnx.save(model, path)
    output = model.graph.output[0].name

    def read(outputs: dict[str, Any]) -> Any:
        rows = tool.handle_preds(outputs[output], torch.device("cpu"), 0.4, 0.45)[0].reshape(-1, 6).numpy()
        return rows[:, :4] * 352, rows[:, 4], rows[:, 5].astype(np.int64)

    task = {"kind": "detect", "decode": "fastestdet", "outputs": {"predictions": output}, "score": 0.4}
    return _origin("fastestdet", path, task, runner, read, size=352, colour="BGR")


def _nanodet(clone: Path, folder: Path, runner: Session) -> Origin:
    import torch

    mocked = ("pytorch_lightning", "lightning_fabric", "termcolor", "yacs", "tabulate", "pycocotools")
    head = import_from(clone, "nanodet.model.head.nanodet_plus_head", mocked)
    made = head.NanoDetPlusHead.__new__(head.NanoDetPlusHead)
    torch.nn.Module.__init__(made)
    made.num_classes, made.reg_max, made.strides = CLASSES, 7, [8, 16, 32, 64]
    made.distribution_project = head.Integral(7)
    path, channels = folder / "nanodet.onnx", CLASSES + 32

    def finish(planes: dict[str, Any]) -> Any:
        rows = torch.cat([each.flatten(2) for each in planes.values()], 2).permute(0, 2, 1)
        return {"output": torch.cat([(rows[..., :CLASSES] * 2 - 5.5).sigmoid(), rows[..., CLASSES:] * 2], 2)}

    if not path.exists():
        _stand_in(path, {f"s{stride}": (stride, channels) for stride in made.strides}, finish)

    def read(outputs: dict[str, Any]) -> Any:
        rows = outputs["output"].clone()
        rows[..., :CLASSES] = torch.logit(rows[..., :CLASSES])  # the project's code takes logits
        meta = {"img": torch.zeros(1, 3, SIZE, SIZE)}
        boxes, kinds = made.get_bboxes(rows[..., :CLASSES], rows[..., CLASSES:], meta)[0]
        keep = boxes[:, 4] > 0.35
        return boxes[keep, :4].numpy(), boxes[keep, 4].numpy(), kinds[keep].numpy()

    task = {"kind": "detect", "decode": "nanodet", "outputs": {"predictions": "output"}}
    return _origin("nanodet", path, task, runner, read)


def _centernet(clone: Path, folder: Path, runner: Session) -> Origin:
    decode = import_from(clone / "src/lib", "models.decode")
    path = folder / "centernet.onnx"
    heads = {"hm": (4, CLASSES), "wh": (4, 2), "reg": (4, 2)}

    def finish(planes: dict[str, Any]) -> Any:
        return {
            "hm": planes["hm"] * 0.25 - 1.5,
            "wh": planes["wh"].abs() * 10,
            "reg": planes["reg"].sigmoid(),
        }

    if not path.exists():
        _stand_in(path, heads, finish)

    def read(outputs: dict[str, Any]) -> Any:
        rows = decode.ctdet_decode(outputs["hm"].sigmoid(), outputs["wh"], outputs["reg"], K=100)[0].numpy()
        rows = rows[rows[:, 4] > 0.3]
        return rows[:, :4] * 4, rows[:, 4], rows[:, 5].astype(np.int64)

    task: dict[str, Any] = {"kind": "detect", "decode": "centernet"}
    task["outputs"] = {"heatmap": "hm", "size": "wh", "offset": "reg"}
    return _origin("centernet", path, task, runner, read)


def _yolov5(clone: Path, folder: Path, runner: Session) -> Origin:
    import torch

    mocked = ("torchvision", "pandas", "seaborn", "sahi", "huggingface_hub", "roboflow", "thop", "fire")
    general = import_from(clone, "yolov5.utils.general", mocked)
    path = folder / "yolov5.onnx"

    def finish(planes: dict[str, Any]) -> Any:
        rows = torch.cat([each.flatten(2) for each in planes.values()], 2).permute(0, 2, 1)
        boxes = torch.cat([rows[..., :2].sigmoid() * SIZE, rows[..., 2:4].sigmoid() * 150], 2)
        return {"output0": torch.cat([boxes, (rows[..., 4:] - 1.2).sigmoid()], 2)}

    if not path.exists():
        _stand_in(path, {f"s{stride}": (stride, 5 + CLASSES) for stride in (8, 16, 32)}, finish)

    def read(outputs: dict[str, Any]) -> Any:
        rows = general.non_max_suppression(outputs["output0"], 0.4, 0.45)[0].numpy()
        return rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64)

    task = {
        "kind": "detect",
        "decode": "yolov5",
        "outputs": {"predictions": "output0"},
        "score": 0.4,
        "iou": 0.45,
    }
    return _origin("yolov5", path, task, runner, read)
