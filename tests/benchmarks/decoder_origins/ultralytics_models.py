"""Ultralytics' networks, built from their own descriptions on CPU torch, with random weights.

Weights are drawn with a seed. Batch norms then take their statistics from photographs, and the last layers of
the heads are scaled so that some anchors out of a hundred score above the threshold and boxes, masks, angles
and keypoints differ from each other.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.benchmarks.decoder_origins.origin import Answer, Array, Origin, boxes_as_places

SCORE, IOU, TOP = 0.25, 0.7, 300  # Ultralytics' defaults
NETWORKS = {
    "yolov5n": "detect yolov8",
    "yolov8n": "detect yolov8",
    "yolov9t": "detect yolov8",
    "yolov10n": "detect end2end",
    "yolo11n": "detect yolov8",
    "yolo12n": "detect yolov8",
    "yolo26n": "detect end2end",
    "rtdetr-l": "detect end2end",
    "yolov8n-seg": "segment-instances yolov8",
    "yolo11n-seg": "segment-instances yolov8",
    "yolo26n-seg": "segment-instances end2end",
    "yolov8n-pose": "pose yolov8",
    "yolo11n-pose": "pose yolov8",
    "yolo26n-pose": "pose end2end",
    "yolov8n-obb": "obb yolov8",
    "yolo11n-obb": "obb yolov8",
    "yolo26n-obb": "obb end2end",
}
"""Network -> task and decoder of its card."""


def origins(
    folder: Path, photos: Sequence[Array], size: int, only: Sequence[str], classes: int = 0
) -> Iterator[Origin]:
    """The networks, exported to ``folder`` at ``size`` x ``size`` unless they are there, with ``classes``
    classes instead of their own."""
    os.environ |= {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_CONFIG_DIR": str(folder)}
    for name, decode in NETWORKS.items():
        if not only or name in only:
            path = folder / f"{name}-{size}-{classes}.onnx"
            if not path.exists():
                _export(name, path, photos, size, classes)
            yield _origin(name, decode, path, size)


def trained(path: Path, size: int) -> Origin:
    """A trained network that Ultralytics exported, e.g. PyPI nudenet's 320n.onnx."""
    return _origin(path.stem, "detect yolov8", path, size)


def card(decode: str, size: int, outputs: dict[str, str], **task: Any) -> dict[str, Any]:
    """A card for what Ultralytics feeds its exports."""
    image = {
        "kind": "image",
        "shape": [1, 3, size, size],
        "layout": "NCHW",
        "colour": "RGB",
        "resize": "letterbox",
        "place": "center",
        "rounding": "nearest",
        "pad": 114,
        "std": [255.0] * 3,
    }
    kind, form = decode.split()
    table = {"kind": kind, "decode": form, "outputs": outputs, "score": SCORE, "top": TOP, **task}
    return {"title": "origin", "inputs": {"images": image}, "task": table}


def load_ultralytics() -> Any:
    """Ultralytics without torchvision, whose wheel is built for CUDA and takes transformers down beside CPU
    torch: it asks for its version, and imports it in ``warmup`` alone. Its own NMS runs then."""
    version = importlib.metadata.version
    with patch("importlib.metadata.version", lambda name: "0.0" if name == "torchvision" else version(name)):
        import ultralytics
        from ultralytics.nn.autobackend import AutoBackend

    AutoBackend.warmup = lambda *_a, **_k: None
    return ultralytics


def _origin(name: str, decode: str, path: Path, size: int) -> Origin:
    ultralytics = load_ultralytics()
    task = {"segment-instances": "segment"}.get(decode.split()[0], decode.split()[0])
    network = ultralytics.RTDETR(path) if "rtdetr" in name else ultralytics.YOLO(path, task=task)
    outputs = {"predictions": "output0"} | ({"prototypes": "output1"} if task == "segment" else {})
    extra: dict[str, Any] = {"iou": IOU} if decode.endswith("yolov8") else {}

    def answer(photo: Array) -> Answer:
        found = network.predict(
            photo,
            imgsz=size,
            conf=SCORE,
            iou=IOU,
            max_det=TOP,
            retina_masks=True,
            rect=False,  # the whole input, as it is exported
            verbose=False,
            device="cpu",
        )[0]
        boxes = found.obb if task == "obb" else found.boxes
        scores, classes = boxes.conf.numpy(), boxes.cls.numpy().astype(np.int64)
        if task == "obb":
            # From another corner on, as ``OrientedDetections.corners`` goes around.
            return Answer(boxes_as_places(boxes.xyxyxyxy.numpy()[:, [2, 1, 0, 3]]), scores, classes)
        # RT-DETR's boxes may reach beyond the photograph; ours end there, as Ultralytics' other ones do.
        height, width = photo.shape[:2]
        places = np.clip(boxes_as_places(boxes.xyxy.numpy()), 0, [width, height, width, height])
        if task == "pose":
            points = found.keypoints.data.numpy()
            places = np.concatenate([places, boxes_as_places(points[:, :, :2])], axis=1)
            return Answer(places, scores, classes, points[:, :, 2])
        if task == "segment":
            masks = found.masks.data.numpy().astype(bool) if found.masks is not None else None
            return Answer(places, scores, classes, None, masks)
        return Answer(places, scores, classes)

    made = card(decode, size, outputs, **extra)
    if "rtdetr" in name:
        made["task"] |= {"boxes": "xywh", "normalized": True}
        made["inputs"]["images"] |= {"resize": "stretch"}  # as Ultralytics does for it
        for key in ("place", "rounding", "pad"):
            del made["inputs"]["images"][key]
    return Origin(name, f"ultralytics {ultralytics.__version__}", path, made, answer)


def _export(name: str, path: Path, photos: Sequence[Array], size: int, classes: int) -> None:
    import torch

    ultralytics = load_ultralytics()
    torch.manual_seed(0)
    made = ultralytics.RTDETR(f"{name}.yaml") if "rtdetr" in name else ultralytics.YOLO(f"{name}.yaml")
    model = made.model
    if "pose" in name:
        classes = 1
    if classes:
        model = type(model)({**model.yaml, "nc": classes}, verbose=False)
        model.args, model.task = made.model.args, made.model.task
        model.names = {number: f"class{number}" for number in range(classes)}
        made.model = model
    batch = torch.cat([_tensor(photo, size) for photo in photos[:8]])
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.momentum = None  # a plain mean over the batches
                part.reset_running_stats()
                part.train()
        model.eval()
        for part in model.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.train()
        model(batch)
        model.eval()
        _scale_head(model, batch)
    made.model = model.float()
    # nms=False exports the head that needs no NMS, where there is one; the default, since 8.4, is the other.
    end2end = {"nms": False} if getattr(model.model[-1], "one2one_cv2", None) is not None else {}
    written = made.export(format="onnx", imgsz=size, simplify=False, device="cpu", opset=17, **end2end)
    Path(written).rename(path)


def _tensor(photo: Array, size: int) -> Any:
    import cv2
    import torch

    picture = cv2.resize(photo, (size, size))[:, :, ::-1].transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray(picture, np.float32))[None] / 255


def _scale_head(model: Any, batch: Any) -> None:
    """Last layers of the head: logits of classes with some anchors above the threshold, others of
    deviation 1 to 2."""
    import torch

    head = model.model[-1]
    if hasattr(head, "proto"):  # prototypes of trained networks are smooth: each kernel becomes its mean
        for layer in head.proto.modules():
            if isinstance(layer, torch.nn.Conv2d | torch.nn.ConvTranspose2d):
                layer.weight.copy_(layer.weight.mean((2, 3), keepdim=True).expand_as(layer.weight))
    if not hasattr(head, "cv2"):  # RT-DETR
        for layer in head.dec_score_head:
            torch.nn.init.normal_(layer.weight, std=0.25)
            layer.bias.fill_(-4.0)
        for boxes in head.dec_bbox_head:
            torch.nn.init.normal_(boxes.layers[-1].weight, std=0.05)
        return
    for prefix in ("", "one2one_"):
        for branch, deviation in (
            ("cv2", 2.0),
            ("cv3", 1.0),
            ("cv4", 1.0),
            ("cv4_kpts", 1.0),
            ("cv4_sigma", 1.0),
        ):
            layers = getattr(head, prefix + branch, None)
            if isinstance(layers, torch.nn.ModuleList):
                _scale_branch(model, batch, layers, deviation, classes=branch == "cv3")


def _scale_branch(model: Any, batch: Any, layers: Any, deviation: float, *, classes: bool) -> None:
    import torch

    seen: dict[int, Any] = {}
    lasts = [[part for part in layer.modules() if isinstance(part, torch.nn.Conv2d)][-1] for layer in layers]
    if any(last.bias is None for last in lasts):  # features that another branch goes on with
        return
    for last in lasts:
        last.bias.zero_()
    hooks = [
        last.register_forward_hook(lambda _m, _i, out, at=at: seen.__setitem__(at, out.detach()))
        for at, last in enumerate(lasts)
    ]
    model(batch)
    for hook in hooks:
        hook.remove()
    if not seen:
        return
    best = []
    for at, last in enumerate(lasts):
        gain = deviation / float(seen[at].std())
        last.weight.mul_(gain)
        if classes:
            centred = (seen[at] - seen[at].mean()) * gain
            last.bias.sub_(float(seen[at].mean()) * gain)
            best.append(centred.amax(1).flatten(1))
    if classes:
        anchors = torch.cat(best, 1)
        # 2 of 100 anchors above the threshold, at least about 20 of all.
        share = max(0.02, 20 / anchors.shape[1])
        shift = float(np.log(SCORE / (1 - SCORE))) - float(anchors.quantile(1 - share))
        for last in lasts:
            last.bias.add_(shift)
