"""A network as MoveNet is published: int32 pictures, channels last, cast to float in the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from tests.fixtures import models

POSE = """
<ir_version: 8, opset_import: ["": 17]>
pose (int32[1,16,24,3] input) => (float[1,3] output_0)
{
    x = Cast<to=1>(input)
    output_0 = ReduceMean<axes=[1,2], keepdims=0>(x)
}
"""
IMAGE = {
    "kind": "image", "shape": [1, 16, 24, 3], "layout": "NHWC", "colour": "RGB", "resize": "stretch",
    "dtype": "int32",
}  # fmt: skip


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.needs_openvino
def test_int32_pictures_go_through_every_engine(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for level in (10, 200):
        Image.new("RGB", (30, 20), (level, 0, 255)).save(tmp_path / "photos" / f"{level}.png")
    bundle = edgekit.build(
        models.write(tmp_path, POSE),
        targets=["ort", "tflite", "openvino"],
        card=parse_card({"title": "MoveNet", "inputs": {"input": IMAGE}}),
        samples=tmp_path / "photos",
    )
    assert all(variant.verified for variant in bundle.variants)
    assert bundle.golden[0][0]["input"].dtype == np.int32
    for variant in bundle.variants:
        with Session(bundle, variant=variant.name, strict=True) as session:
            feeds, _ = session.prepare(np.full((20, 30, 3), (7, 8, 9), np.uint8))
            np.testing.assert_allclose(session.run(feeds)["output_0"], [[7, 8, 9]], atol=1e-4)


@pytest.mark.needs_ort
def test_random_pictures_are_pixels(tmp_path: Path) -> None:
    card = parse_card({"title": "MoveNet", "inputs": {"input": IMAGE}})
    bundle = edgekit.build(models.write(tmp_path, POSE), targets=["ort"], card=card)
    pixels = bundle.golden[0][0]["input"]
    assert pixels.min() < 10
    assert 245 < pixels.max() <= 255
