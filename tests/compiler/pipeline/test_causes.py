"""Causes in a bundle: the planted one, what was done about it, and plain int8 beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle.causes import cause_texts, price
from edgekit.tensor_spec import Json
from tests.compiler.quantize.search import planted
from tests.fixtures.graphs import Graph

SHAPE = (1, 4, 8, 8)


def kinds(causes: Json) -> set[str]:
    return {cause["kind"] for cause in causes["found"]}


@pytest.mark.needs_tflite
@pytest.mark.needs_ort
def test_a_planted_channel_is_the_cause_and_plain_int8_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    with planted.without_equalization():
        bundle = edgekit.build(
            planted.outlier_channel(tmp_path),
            targets=["tflite"],
            precision="int8",
            samples=planted.samples(12),
            time_budget=15,
            force=True,
            trusted=True,
        )
    int8 = next(v for v in bundle.variants if v.precision.startswith("int8"))
    narrow = [c for c in int8.evidence["causes"]["found"] if c["kind"] == "narrow channel"]
    assert [c["nodes"] for c in narrow] == [["narrow"]]
    assert narrow[0]["wide"] > 100 * narrow[0]["narrow"]
    plain = int8.evidence["search"]["plain"]
    assert (plain["placement"], plain["recipe"]["ranges"]) == ("all", "minmax")
    assert plain["agreement"]["value"] is not None
    assert plain["ratio"] > 0
    said = price(int8, bundle.variants)
    assert said.startswith("plain int8 has part SNR ")
    assert int8.name in said
    assert any(text.kind == "narrow channel" for text in cause_texts(int8, str))


@pytest.mark.needs_coreml
@pytest.mark.needs_ort
def test_a_planted_overflow_is_the_cause_where_float16_computes(tmp_path: Path) -> None:
    """Without calibration too: Core ML computes it in float32."""
    g = Graph({"x": SHAPE})
    far = g("Add", g("Abs", g.conv("x", 4, 4)), np.array([300], np.float32))
    model = tmp_path / "small.onnx"
    g.model(tmp_path, g.conv(g("Sqrt", g("Mul", far, far)), 4, 4))
    bundle = edgekit.build(model, targets=["coreml", "ort"], precision="fp16")
    found: dict[str, Any] = {v.name: v.evidence.get("causes") for v in bundle.variants}
    assert kinds(found["coreml-fp16"]) == {"float16 headroom"}
    row = found["coreml-fp16"]["found"][0]
    assert row["narrow"] > 65504
    assert row["plain_db"] is None
    assert row["done"] == "computed in float32"
    assert found["ort-fp16"] is None  # float16 weights alone
