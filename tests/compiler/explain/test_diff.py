from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.bundle import Bundle
from edgekit.cli import main
from edgekit.compiler.explain.diff import _change, explain_diff
from edgekit.compiler.explain.text import render_diff
from edgekit.errors import UsageError

SHAPE = (1, 32, 48, 48)


def _built(folder: Path, kernel: int, targets: tuple[str, ...] = ("ort",)) -> Bundle:
    """Two Convs, the second with a kernel of this size."""
    nodes = [
        helper.make_node("Conv", ["x", "w3"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", f"w{kernel}"], ["y"], "second", pads=[kernel // 2] * 4),
    ]
    sizes = {3, kernel}
    weights = [numpy_helper.from_array(np.full((32, 32, k, k), 0.01, np.float32), f"w{k}") for k in sizes]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"m{kernel}.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return edgekit.build(path, targets=targets)


@pytest.mark.needs_ort
def test_the_layer_that_got_slower_is_named_and_it_alone(tmp_path: Path) -> None:
    base, here = _built(tmp_path, 1), _built(tmp_path, 9)  # 81 times the products
    (change,) = explain_diff(base, here)
    assert change["slower"][0]["layer"] == "second"
    before, now = change["slower"][0]["ms"]
    assert now > 5 * before
    text = render_diff([change], "a", "b")
    assert text.startswith("  ort-fp32\n  time      ")
    assert "    second" in text


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_variants_that_only_one_has(tmp_path: Path) -> None:
    one, two = _built(tmp_path, 3), _built(tmp_path, 3, ("ort", "tflite"))
    assert [(c["variant"], c["only_in"]) for c in explain_diff(one, two)] == [
        ("ort-fp32", ""),
        ("tflite-fp32", "new bundle"),
    ]
    assert [c["variant"] for c in explain_diff(two, one)] == ["ort-fp32", "tflite-fp32"]
    with pytest.raises(UsageError, match=r"have no variant in common: they have tflite-fp32 and ort-fp32$"):
        explain_diff(one, two, "tflite")


@pytest.mark.needs_ort
def test_the_verb(tmp_path: Path) -> None:
    path = tmp_path / "m.edgekit"
    _built(tmp_path, 3).save(path)
    result = CliRunner().invoke(main, ["explain", str(path), "--against", str(path)])
    assert (result.exit_code, result.stdout.split("\n")[0]) == (0, "  ort-fp32")


def _explanation(ms: float, snr_db: float | None) -> Any:
    named = {"source": "conv", "source_op": "Conv", "scope": "", "merged": []}
    value = {**named, "node": "n", "op": "Conv", "value": "y", "finite": True, "snr_db": snr_db, "adds_db": 1}
    return {
        "variant": "v",
        "run_ms": ms + 1,
        "no_times": "",
        "nodes": [{**named, "node": "n", "op": "Conv", "ms": ms}],
        "values": [value],
        "snr": "9 dB",
        "notes": [f"{ms}"],
    }


def test_what_got_worse_is_told_beyond_a_decibel() -> None:
    assert _change(_explanation(1, 40.0), _explanation(1, 39.5), 1, 1)["worse"] == []
    found = _change(_explanation(1, 40.0), _explanation(1, 30.0), 1_000_000, 2_000_000)
    assert found["worse"] == [{"layer": "conv", "snr_db": (40.0, 30.0)}]
    assert _change(_explanation(1, None), _explanation(1, 30.0), 1, 1)["worse"]
    assert render_diff([found], "old", "new").splitlines() == [
        "  v",
        "  time      2 ms -> 2 ms a run  (1.00x)",
        "  accuracy  output SNR 9 dB -> 9 dB at the builds",
        "  size      1.00 MB -> 2.00 MB",
        "    worse  old      new",
        "    conv   40.0 dB  30.0 dB",
    ]


def test_a_layer_that_moved_little_is_not_told() -> None:
    assert _change(_explanation(10, 1.0), _explanation(10.5, 1.0), 1, 1)["slower"] == []
    found = _change(_explanation(10, 1.0), _explanation(12, 1.0), 1, 1)
    assert found["slower"] == [{"layer": "conv", "ms": (10, 12)}]
    assert found["notes"] == ["resolved: 10", "new: 12"]
