"""Vision networks of torchvision, timm, segmentation-models-pytorch and Ultralytics, with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.newcomers.rows import Made, Row
from tests.benchmarks.newcomers.torch_modules import image, module_row, noise

GAIN = 2.5
"""Factor of the norms of an untrained YOLO: without it, its answers are the same for all inputs."""
TORCHVISION = {
    "resnet18": 96,
    "squeezenet1_1": 96,
    "shufflenet_v2_x0_5": 96,
    "mnasnet0_5": 96,
    "densenet121": 64,
    "efficientnet_b0": 96,
    "regnet_y_400mf": 96,
    "mobilenet_v2": 96,
}
TIMM = {
    "mobilenetv4_conv_small": 96,
    "efficientformerv2_s0": 224,
    "fastvit_t8": 128,
    "repvit_m0_9": 96,
    "ghostnetv2_100": 96,
    "mobileone_s0": 96,
    "edgenext_xx_small": 96,
    "mobilevit_xxs": 128,
    "levit_128s": 224,
    "xcit_nano_12_p16_224": 224,
    "deit_tiny_patch16_224": 224,
    "coat_lite_tiny": 224,
    "hrnet_w18_small": 96,
    "convnextv2_atto": 96,
    "tiny_vit_5m_224": 224,
    "efficientvit_m0": 224,
    "mambaout_femto": 96,
    "poolformer_s12": 96,
}


def torchvision_model(name: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options)

    return make


def timm_model(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=20)

    return make


def smp_model(name: str, encoder: str) -> Callable[[], Any]:
    def make() -> Any:
        import segmentation_models_pytorch as smp

        return smp.create_model(name, encoder, encoder_weights=None, classes=3)

    return make


def rows() -> Iterator[Row]:
    for name, size in TORCHVISION.items():
        form = ".pt2" if name == "mobilenet_v2" else "Python"
        yield module_row("torchvision", name, torchvision_model(name), image(size), form)
    seg = {"weights_backbone": None, "num_classes": 5}
    yield module_row(
        "torchvision", "lraspp_mobilenet_v3_large",
        torchvision_model("lraspp_mobilenet_v3_large", **seg), image(128), "Python",
    )  # fmt: skip
    yield module_row(
        "torchvision", "deeplabv3_mobilenet_v3_large",
        torchvision_model("deeplabv3_mobilenet_v3_large", **seg), image(128), "Python",
    )  # fmt: skip
    yield module_row(
        "torchvision", "ssdlite320_mobilenet_v3_large (boxes and NMS inside)",
        torchvision_model("ssdlite320_mobilenet_v3_large", weights_backbone=None, num_classes=5),
        lambda: ([image(320)()[0][0].abs()],), form="Python", targets=("ort",),
        refused="depends on the values of a tensor",
    )  # fmt: skip
    yield module_row(
        "torchvision", "raft_small (optical flow)", torchvision_model("raft_small"),
        lambda: (image(128)()[0].tanh(), image(128)()[0].tanh()), "Python", targets=("ort",),
    )  # fmt: skip
    yield module_row(
        "torchvision",
        "swin_t",
        torchvision_model("swin_t"),
        image(64),
        "Python",
        known=True,
        targets=("ort",),
    )
    yield module_row(
        "torchvision", "s3d (video)", torchvision_model("s3d", num_classes=10),
        noise((1, 3, 14, 64, 64)), "Python", targets=("ort",),
    )  # fmt: skip
    yield module_row(
        "torchvision", "mobilenet_v3_small", torchvision_model("mobilenet_v3_small"), image(96),
        form=".pth, pickle", options=("--trust-pickle", "--shape", "1x3x96x96"), known=True,
    )  # fmt: skip
    yield module_row(
        "torchvision", "googlenet, traced", torchvision_model("googlenet", aux_logits=False), image(96),
        form=".pt, TorchScript",
    )  # fmt: skip
    for name, size in TIMM.items():
        yield module_row("timm", name, timm_model(name), image(size), "Python")
    for name, encoder in (("unet", "resnet18"), ("fpn", "timm-mobilenetv3_small_100")):
        yield module_row(
            "segmentation-models-pytorch", f"{name}, {encoder}", smp_model(name, encoder), image(96), "Python"
        )
    yield module_row(
        "segmentation-models-pytorch", "deeplabv3plus, mobilenet_v2, exported with dynamic axes",
        smp_model("deeplabv3plus", "mobilenet_v2"), image(96), form=".onnx, dynamic",
    )  # fmt: skip
    yield module_row(
        "segmentation-models-pytorch",
        "segformer, resnet18",
        smp_model("segformer", "resnet18"),
        image(96),
        "Python",
    )
    for name, known in (
        ("yolo11n-pose", False), ("yolo11n-obb", False), ("yolo12n", False),
        ("yolov9t", False), ("yolov10n", False), ("yolov5nu", False), ("yolo26n", False),
        ("yolo11n-seg", False), ("yolo11n", True),
    ):  # fmt: skip
        yield ultralytics_row(name, known)


def ultralytics_row(name: str, known: bool) -> Row:
    size = 160

    def make(folder: Path) -> Made:
        import torch
        from ultralytics import YOLO

        torch.manual_seed(0)
        yaml = name.replace("yolov5nu", "yolov5n")
        model = YOLO(f"{yaml}.yaml", verbose=False)
        for part in model.model.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.weight.data.mul_(GAIN)
        path = folder / f"{name}.pt"
        model.save(path)
        network = YOLO(path).model.eval()
        heads = [part for part in network.modules() if hasattr(part, "export")]
        network.fuse(verbose=False)
        for part in heads:
            part.export, part.format = True, "onnx"
        samples = [image(size)()[0].sigmoid() for _ in range(2)]
        with torch.no_grad():
            found = [torch.utils._pytree.tree_leaves(network(sample)) for sample in samples]
        answers = [[leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)] for leaves in found]
        return Made(path, [[np.asarray(sample)] for sample in samples], answers)

    options = ("--trust-pickle", "--shape", f"1x3x{size}x{size}")
    return Row(name, "Ultralytics", make, ".pt", options, known=known, limit=1e-3)
