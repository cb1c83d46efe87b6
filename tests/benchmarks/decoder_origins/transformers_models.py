"""DETR and RT-DETR as Hugging Face's transformers build, prepare and read them: small, random weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.decoder_origins.origin import Answer, Array, Origin

SCORE, SIZE = 0.3, 256


def origins(folder: Path, only: Sequence[str]) -> Iterator[Origin]:
    """The networks, exported to ``folder`` unless they are there."""
    for name, make in (("detr", _detr), ("rt-detr", _rtdetr)):
        if not only or name in only:
            yield _origin(name, *make(), folder / f"{name}.onnx")


def _detr() -> tuple[Any, Any, dict[str, Any]]:
    from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessorPil, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        num_queries=50,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_labels=20,
    )
    processor = DetrImageProcessorPil(size={"height": SIZE, "width": SIZE}, do_pad=False)
    mean, std = processor.image_mean, processor.image_std
    image = {"mean": [255 * x for x in mean], "std": [255 * x for x in std]}
    return lambda: DetrForObjectDetection(config), processor, image


def _rtdetr() -> tuple[Any, Any, dict[str, Any]]:
    from transformers import (
        RTDetrConfig,
        RTDetrForObjectDetection,
        RTDetrImageProcessorPil,
        RTDetrResNetConfig,
    )

    backbone = RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_in_channels=[32, 48, 64],
        encoder_hidden_dim=64,
        feat_strides=[8, 16, 32],
        d_model=64,
        decoder_in_channels=[64, 64, 64],
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        num_queries=100,
        num_labels=20,
        anchor_image_size=[SIZE, SIZE],
    )
    processor = RTDetrImageProcessorPil(size={"height": SIZE, "width": SIZE})
    return lambda: RTDetrForObjectDetection(config), processor, {"std": [255.0] * 3}


def _origin(name: str, make: Any, processor: Any, image: dict[str, Any], path: Path) -> Origin:
    import onnxruntime
    import torch
    import transformers
    from transformers.utils import ModelOutput

    masked = name == "detr"
    if not path.exists():
        torch.manual_seed(0)
        network = make().eval()
        _scale_heads(network)
        _export(network, path, masked)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = [entry.name for entry in session.get_inputs()]

    def answer(photo: Array) -> Answer:
        height, width = photo.shape[:2]
        given = processor(np.ascontiguousarray(photo[:, :, ::-1]), return_tensors="np")
        given.setdefault("pixel_mask", np.ones((1, SIZE, SIZE), np.int64))
        logits, boxes = session.run(None, {key: given[key] for key in wanted})
        outputs = ModelOutput(logits=torch.from_numpy(logits), pred_boxes=torch.from_numpy(boxes))
        sizes = torch.tensor([[height, width]])
        found = processor.post_process_object_detection(outputs, threshold=SCORE, target_sizes=sizes)[0]
        # Ours end at the photograph's edges.
        places = np.clip(found["boxes"].numpy(), 0, [width, height, width, height]).astype(np.float64)
        return Answer(places, found["scores"].numpy(), found["labels"].numpy())

    inputs: dict[str, Any] = {
        "pixel_values": {
            "kind": "image",
            "shape": [1, 3, SIZE, SIZE],
            "layout": "NCHW",
            "colour": "RGB",
            "resize": "stretch",
            "antialias": True,
            **image,
        }
    }
    if masked:
        mask = {"kind": "tensor", "shape": [1, SIZE, SIZE], "value": 1, "dtype": "int64"}
        inputs["pixel_mask"] = mask
    task = {"kind": "detect", "decode": "detr", "score": SCORE, "top": 100}
    task |= {
        "activation": "softmax" if masked else "sigmoid",
        "outputs": {"logits": "logits", "boxes": "boxes"},
    }
    card = {"title": name, "inputs": inputs, "task": task}
    # At the network's size: Pillow's resize rounds some pixels otherwise, and both shall see the same ones.
    return Origin(name, f"transformers {transformers.__version__}", path, card, answer, SIZE)


def _scale_heads(network: Any) -> None:
    """Scores around the threshold, and boxes that differ."""
    import torch

    def last(*names: str) -> Iterator[Any]:
        for name, part in network.named_modules():
            if isinstance(part, torch.nn.Linear) and any(word in name for word in names):
                yield part

    with torch.no_grad():
        for part in last("class_labels_classifier", "class_embed", "enc_score_head"):
            torch.nn.init.normal_(part.weight, std=0.5)
            part.bias.fill_(0.0 if type(network).__name__.startswith("Detr") else -6.0)
        for part in last("bbox_predictor.layers.2", "bbox_embed.0.layers.2", "bbox_embed.1.layers.2"):
            torch.nn.init.normal_(part.weight, std=0.3)


def _export(network: Any, path: Path, masked: bool) -> None:
    import torch

    class Named(torch.nn.Module):  # type: ignore[misc]
        """Only what the decoder reads."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixel_values: Any, pixel_mask: Any = None) -> Any:
            inputs = {"pixel_mask": pixel_mask} if masked else {}
            found = self.network(pixel_values=pixel_values, **inputs)
            return found.logits, found.pred_boxes

    example: tuple[Any, ...] = (torch.zeros(1, 3, SIZE, SIZE),)
    names = ["pixel_values"]
    if masked:
        example, names = (*example, torch.ones(1, SIZE, SIZE, dtype=torch.int64)), [*names, "pixel_mask"]
    torch.onnx.export(
        Named().eval(),
        example,
        path,
        input_names=names,
        output_names=["logits", "boxes"],
        opset_version=18,
        external_data=False,
    )
