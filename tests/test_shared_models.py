"""Every pass over every real model: the canonical graph answers what the source answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from edgekit.errors import ModelError
from edgekit.model_file import open_model, save_model, signature
from edgekit.passes import run_passes
from edgekit.reference import Reference
from edgekit.target import TensorSpec
from tests.passes.meaning import Array, snr_db

pytestmark = [pytest.mark.needs_shared, pytest.mark.needs_ort]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A model: its shapes, how many nodes there are before and after, and where its output saturates."""

    nodes: tuple[int, int]
    shapes: dict[str, Shape] = field(default_factory=dict)
    saturates: bool = False
    picture: float = 0.0  # divide the test picture's 0 to 255 by this; 0: normal noise


CASES = {
    "centerface": Case((122, 119), {"input.1": (1, 3, 480, 640)}, True, 1),
    "ch_PP-OCRv4_det_infer": Case((672, 177), {"x": (1, 3, 320, 320)}, True, 128),
    "ch_PP-OCRv4_rec_infer": Case((860, 178), {"x": (1, 3, 48, 320)}, True, 128),
    "ch_ppocr_mobile_v2.0_cls_infer": Case((566, 126), {"x": (1, 3, 48, 192)}, True, 128),
    "coco_ssd_mbv2_300": Case((225, 218), saturates=True, picture=128),
    "efficientnet_lite0": Case((456, 94), {"image": (1, 3, 224, 224)}, picture=128),
    "kws_ref_model_float32": Case((29, 29), {"input_1": (1, 49, 10, 1)}, True),
    "resnet8_cifar10_fp32": Case((25, 25), {"input_1": (1, 32, 32, 3)}, True),
    "resnet8_cifar10_int8_qdq": Case((75, 75), {"input_1_int8": (1, 32, 32, 3)}, True),
    "silero_vad": Case((689, 36), {"input": (1, 576), "state": (2, 1, 128)}, True),
    "silero_vad_16k_sequence": Case((63, 27), {"input": (4, 576)}, True),
    "vww_96_float": Case((60, 60), {"input_1": (1, 96, 96, 3)}, True),
    "vww_96_int8": Case((176, 176), {"input_1_int8": (1, 96, 96, 3)}, True),
    "yolox_nano": Case((369, 360), picture=1),
}


def feeds(inputs: tuple[TensorSpec, ...], case: Case) -> dict[str, Array]:
    """A picture with text for image models (a text detector says nothing about noise), else seeded noise."""
    rng = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for spec in inputs:
        if spec.name == "sr":
            made[spec.name] = np.array(16000, np.int64)
        elif case.picture:
            made[spec.name] = picture(spec.shape[3], spec.shape[2]) / np.float32(case.picture)
        elif spec.dtype.startswith("float"):
            made[spec.name] = rng.standard_normal(spec.shape).astype(spec.dtype)
        else:
            made[spec.name] = rng.integers(-128, 128, spec.shape).astype(spec.dtype)
    return made


def picture(width: int, height: int) -> Array:
    """1x3xHxW float32 in 0 to 255: a gradient, boxes and text."""
    image = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    draw = ImageDraw.Draw(image)
    for row in range(0, height, 48):
        draw.rectangle((width // 8, row + 4, width - width // 8, row + 40), fill=(240, 240, 230))
        draw.text((width // 6, row + 8), "EdgeKit 2024", fill=(10, 20, 30), font_size=24)
    return np.asarray(image, np.float32).transpose(2, 0, 1)[None].copy()


NEWER_ORT = {"vww_96_int8", "resnet8_cifar10_int8_qdq"}
"""Their canonical form holds QuantizeLinear-23, which ONNX Runtime 1.23 has no kernel for."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.needs_ort_after_1_23) if n in NEWER_ORT else n for n in CASES],
)
def test_the_canonical_graph_means_the_same(name: str, shared: Path) -> None:
    case, path = CASES[name], shared / "models" / f"{name}.onnx"
    source = open_model(path, case.shapes)
    spec = signature(source)
    given = feeds(spec[0], case)
    want = Reference(source).run(given)
    names = {node.name for node in source.graph.all_nodes()}
    before = sum(1 for _ in source.graph.all_nodes())

    run_passes(source)

    after = list(source.graph.all_nodes())
    assert signature(source) == spec
    assert (before, len(after)) == case.nodes
    assert len({node.name for node in after}) == len(after)
    kept = sum(node.name in names for node in after)
    assert kept >= 0.9 * len(after), "findings name nodes as the source does"
    got = Reference(source).run(given)
    for output, array in want.items():
        assert snr_db(array, got[output]) >= (60 if case.saturates else 100), output


@pytest.mark.parametrize("name", ["yolox_nano", "silero_vad", "ch_PP-OCRv4_rec_infer"])
def test_the_same_file_gives_the_same_bytes(name: str, shared: Path) -> None:
    def canonical() -> bytes:
        model = open_model(shared / "models" / f"{name}.onnx", CASES[name].shapes)
        run_passes(model)
        return save_model(model)

    first = canonical()
    assert canonical() == first


@pytest.mark.parametrize("name", CASES)
def test_a_second_run_changes_nothing(name: str, shared: Path) -> None:
    model = open_model(shared / "models" / f"{name}.onnx", CASES[name].shapes)
    run_passes(model)
    assert run_passes(model) == []


def test_each_model_with_open_dimensions_says_so(shared: Path) -> None:
    with pytest.raises(ModelError) as caught:
        open_model(shared / "models" / "silero_vad.onnx")
    assert str(caught.value) == (
        "silero_vad.onnx: has dimensions that are not fixed:\n"
        "  input input: dimensions 0 (?), 1 (?); give a number for each ?: --shape input=?x?\n"
        "  input state: dimension 1 (?); give a number for each ?: --shape state=2x?x128"
    )


def test_every_model_of_the_folder_is_here(shared: Path) -> None:
    assert {path.stem for path in (shared / "models").glob("*.onnx")} == set(CASES)
