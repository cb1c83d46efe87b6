"""The next step of a finding, by who defines the op and what ONNX Runtime runs."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import edgekit
from edgekit.compiler.pipeline.ways_out import ELSEWHERE, with_ways_out
from edgekit.diagnostics import Finding
from tests.compiler.passes.meaning import model_of

pytestmark = pytest.mark.needs_ort
DEFINITION = "export the model without it, or with its definition as an ONNX function in the file"
ORIGINAL = "pass the model from before ONNX Runtime quantized or optimized it"
NMS = "export the model without NMS, or cut it before that node"
CASES = [
    ("my.ops.Swish2 (x)", "is in the private domain my.ops", DEFINITION),
    ("Swish2 (x)", "is not defined by ONNX", DEFINITION),
    ("com.microsoft.Irfft <signal_ndim=1> (x)", "is an operator of ONNX Runtime alone", ORIGINAL),
    ("TRT.BatchedNMS_TRT (x, x)", "is a plugin of TensorRT alone", NMS),
    ("mmdeploy.TRTBatchedNMS (x, x)", "is a plugin of TensorRT alone", NMS),
    ("TRT.Normalize_TRT (x)", "is a plugin of TensorRT alone", "export the model without it"),
]


def written(folder: Path, node: str, outputs: str = "float[1,3,8,8] y", names: str = "y") -> Path:
    domains = "".join(
        f', "{d}" : 1' for d in ("my.ops", "com.microsoft", "TRT", "mmdeploy") if f"{d}." in node
    )
    text = f'<ir_version: 9, opset_import: ["" : 18{domains}]> g (float[1,3,8,8] x) => ({outputs}) '
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f"{text} {{ [it] {names} = {node} }}"), path)
    return path


@pytest.mark.parametrize("target", ["ort", "tflite", "openvino", "tensorrt"])
@pytest.mark.parametrize(("node", "owner", "fix"), CASES)
def test_owner_and_next_step(node: str, owner: str, fix: str, target: str, tmp_path: Path) -> None:
    pytest.importorskip({"openvino": "openvino"}.get(target, "onnx"))
    (finding,) = [f for f in edgekit.check(written(tmp_path, node), [target]) if f.severity == "error"]
    assert (finding.node, finding.fix) == ("it", fix)
    assert finding.message.endswith(f"; it {owner}")


def test_ort_is_named_if_it_has_a_kernel(tmp_path: Path) -> None:
    path = written(tmp_path, "com.microsoft.Inverse (x)")
    (finding,) = edgekit.check(path, ["tflite"])
    assert finding.fix == f"{ORIGINAL}, or build it for ort"
    assert edgekit.check(path, ["ort"]) == []


@pytest.mark.parametrize(
    ("kind", "fix"), [("double", "read the page"), ("float", f"{ELSEWHERE}, or read the page")]
)
def test_ort_is_not_named_without_a_kernel(kind: str, fix: str) -> None:
    model = model_of(f"g ({kind}[2,3,3] x) => ({kind}[2] y) {{ [it] y = Det (x) }}")
    finding = Finding("EK1001", "error", "tflite", "it", "Det", "no form", f"{ELSEWHERE}, or read the page")
    assert [f.fix for f in with_ways_out(model, [finding])] == [fix]
