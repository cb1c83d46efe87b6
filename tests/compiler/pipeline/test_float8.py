"""fp8: for the chips that have it, calibrated on samples, with its float parent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.errors import UsageError
from tests.fixtures import models

pytestmark = pytest.mark.needs_tensorrt


NO_SAMPLES = "fp8 needs calibration samples: add samples with 64 to 128 typical inputs"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


def samples() -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    return [{"image": draw.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(24)]


def test_thor_gets_it_with_its_parent(model: Path) -> None:
    bundle = edgekit.build(model, targets=["jetson-thor"], precision="fp8", samples=samples())
    fp8, fp32 = bundle.variants
    assert (fp8.name, fp32.name) == ("jetson-thor-fp8", "jetson-thor-fp32")
    assert fp8.status == "verified by reference execution; not run on a Jetson"
    assert "fp8 on 8 of them held out for testing" in bundle.report
    assert fp8.options["precision"] == "fp8"
    assert fp8.evidence["agreement"]["samples"] == 8
    assert 20 < fp8.evidence["agreement"]["value"] < 45
    written = onnx.ModelProto.FromString(bytes(bundle.read(fp8.files["model.onnx"])))
    assert written.opset_import[0].version == 19
    kinds = {each.data_type for each in written.graph.initializer}
    assert onnx.TensorProto.FLOAT8E4M3FN in kinds
    assert onnx.TensorProto.INT8 not in kinds


def test_it_is_held_to_the_goal(model: Path) -> None:
    bundle = edgekit.build(
        model, targets=["jetson-thor"], precision="fp8", samples=samples(), max_drop="60dB"
    )
    assert bundle.variants[0].rejected
    assert bundle.variants[0].reason.endswith("60 dB is required")
    assert bundle.variants[1].verified


@pytest.mark.parametrize(
    ("targets", "fallback", "why"),
    [
        (["jetson-thor"], True, NO_SAMPLES),
        (
            ["jetson-orin-nano", "ort"],
            True,
            "jetson-orin-nano, ort does not support fp8; use fp32, fp16, int8 or auto",
        ),
        (
            ["jetson-thor"],
            False,
            "fp8 is never timed, so its float variant must stay; leave fallback=False out",
        ),
    ],
)
def test_where_it_is_refused(model: Path, targets: list[str], fallback: bool, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        edgekit.build(model, targets=targets, precision="fp8", fallback=fallback)
    assert str(refused.value) == why
