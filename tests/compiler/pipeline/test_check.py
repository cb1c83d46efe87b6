"""The check of models with dynamic dimensions: everything that stops a build, in one list."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgekit
from edgekit.diagnostics import Finding
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort

MINE = '<ir_version: 8, opset_import: ["": 17, "my.ops": 1]> g '


def rows(findings: list[Finding]) -> list[tuple[str, str, str, str]]:
    return [(f.target, f.code, f.op, f.avoided_by) for f in findings]


def test_findings_after_a_dynamic_dimension_are_listed_too(tmp_path: Path) -> None:
    path = models.write(tmp_path, models.SEVERAL_DYNAMIC)
    found = edgekit.check(path, ["tflite", "tensorrt"])
    assert rows(found) == [
        ("", "EK1003", "", ""),
        ("tflite", "EK1001", "RandomUniformLike", ""),
        ("tflite", "EK1003", "NonZero", ""),
        ("tensorrt", "EK1003", "NonZero", ""),
        ("tensorrt", "EK1002", "TopK", "--shape x=1x512"),
    ]
    first = found[0]
    assert (first.severity, first.node, first.fix) == ("error", "x", 'shapes={"x": (1, 16000)}')
    assert first.message == "it has dynamic dimensions; suggested: batch 1, L 16000 (an example)"
    fixed = edgekit.check(path, ["tflite", "tensorrt"], shapes={"x": (1, 512)})
    assert rows(fixed) == [row for row in rows(found)[1:] if not row[3]]


def test_shapes_that_the_user_gave_are_kept(tmp_path: Path) -> None:
    path = models.write(
        tmp_path, MINE + "(float[1,L] x, float[1,M] y) => (float[1,P] z) { z = Concat<axis = 1>(x, y) }"
    )
    found = edgekit.check(path, ["ort"], shapes={"x": (1, 7)})
    assert [(f.node, f.fix) for f in found] == [("y", 'shapes={"y": (1, 16000)}')]


def test_a_model_that_is_not_valid_with_the_suggestion_says_so(tmp_path: Path) -> None:
    path = models.write(tmp_path, MINE + "(float[N,L] x) => (float[N,L] r) { r = my.ops.Mine(x) }")
    found = edgekit.check(path, ["ort"])
    assert [(f.code, f.severity) for f in found] == [("EK1003", "error"), ("EK1005", "error")]
    assert found[1].message == (
        "with them, model.onnx: output r has no fixed shape: node Mine_0 (Mine) is in the private domain "
        "my.ops; export the model without it, or with its definition as an ONNX function in the file"
    )


WIDE = """
<ir_version: 8, opset_import: ["": 17]>
g (double[1,3,8,8] x) => (double[1,3,8,8] y)
<double[3,3,1,1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> { y = Conv(x, w) }
"""


@pytest.mark.needs_tflite
@pytest.mark.needs_coreml
def test_a_model_without_a_reference_is_refused_by_check_as_by_build(tmp_path: Path) -> None:
    """LiteRT computes float64 in float32, but ONNX Runtime has no such Conv to compare with."""
    path = models.write(tmp_path, WIDE)
    found = edgekit.check(path, ["tflite", "coreml"])
    assert ("", "EK1005", "", "") in rows(found)
    with pytest.raises(edgekit.EdgeKitError) as refused:
        edgekit.build(path, targets=["tflite"])
    reason = next(f.message for f in found if f.code == "EK1005")
    assert reason == f"no variant can be verified: {refused.value}"
    assert reason.startswith("no variant can be verified: ONNX Runtime cannot load the model: ")
    assert reason.endswith("; export the model in float32")


def test_a_target_without_a_kernel_says_it_alone(tmp_path: Path) -> None:
    (found,) = edgekit.check(models.write(tmp_path, WIDE), ["ort"])
    assert (found.code, found.message) == ("EK1001", "no CPU kernel for double, double")
    assert found.fix == "export the model in float32"


def test_float64_with_kernels_can_be_built(tmp_path: Path) -> None:
    text = WIDE.replace("[3,3,1,1]", "[1,1,3,3]").replace("Conv", "MatMul").replace("8,8]", "8,3]")
    path = models.write(tmp_path, text)
    assert edgekit.check(path, ["ort"]) == []
    assert edgekit.build(path, targets=["ort"]).variants[0].usable
