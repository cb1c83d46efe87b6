"""What Core AI's converter takes and its runtime gets wrong is refused by node, or written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_coreai.compile import check_model, compile_model, wrong_forms

from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UnsupportedError
from edgekit.target.installed_profiles import find_profile
from tests.compiler.passes.meaning import snr_db
from tests.targets.engine_trial import load, with_shapes

HEAD = '<ir_version: 10, opset_import: ["": 23]> g '
NON_ZERO = "(float[2,3] x) => (int64[2,N] y) { [found] y = NonZero(x) }"
CAST = "(uint8[4] x) => (int8[4] y) { [turned] y = Cast<to=3>(x) }"
SCATTER = """(float[2,4] x, int64[0,4] i, float[0,4] u) => (float[2,4] y)
    { [put] y = ScatterElements<axis=0>(x, i, u) }"""
SCATTER_ND = "(float[2,4] x, int64[0,1] i, float[0,4] u) => (float[2,4] y) { [put] y = ScatterND(x, i, u) }"
SAMPLE = """(float[1,2,5,6] x, float[1,4,3,2] grid) => (float[1,2,4,3] y)
    { [sample] y = GridSample<mode="nearest", align_corners=1>(x, grid) }"""
CUBE = """(double[1,2,5,6] x, double[1,4,3,2] grid) => (double[1,2,4,3] y)
    { [sample] y = GridSample<mode="nearest">(x, grid) }"""
SHIFT = '(uint32[4] x, uint32[4] n) => (uint32[4] y) { [shift] y = BitShift<direction="RIGHT">(x, n) }'
REFUSED = [
    (NON_ZERO, "EK1003", "found", "the shape of y is"),
    (CAST, "EK1002", "turned", "Core AI saturates a cast of uint8 to int8, where ONNX keeps the bits"),
    (SCATTER, "EK1002", "put", "it scatters no element, which ends the process of Core AI's runtime"),
    (SCATTER_ND, "EK1002", "put", "it scatters no element, which ends the process of Core AI's runtime"),
    (CUBE, "EK1002", "sample", "mode nearest: Core AI takes another point where two are equally near"),
]


@pytest.mark.parametrize(("text", "code", "node", "why"), REFUSED)
def test_what_is_found(text: str, code: str, node: str, why: str) -> None:
    (found,) = wrong_forms(with_shapes(HEAD + text), "coreai")
    assert (found.code, found.severity, found.node) == (code, "error", node)
    assert found.message.startswith(why)
    assert found.fix


@pytest.mark.parametrize("text", [SAMPLE, SHIFT, CAST.replace("int8[4] y", "int32[4] y").replace("=3", "=6")])
def test_what_is_right(text: str) -> None:
    assert wrong_forms(with_shapes(HEAD + text), "coreai") == []


@pytest.mark.needs_coreai
@pytest.mark.parametrize(("text", "code", "node", "why"), REFUSED[:4])
def test_a_build_refuses_it(text: str, code: str, node: str, why: str) -> None:
    model, profile = with_shapes(HEAD + text), find_profile("coreai")
    run_passes(model)
    with pytest.raises(UnsupportedError) as refusal:
        compile_model(model, profile, "fp32")
    (found,) = refusal.value.findings
    assert (found.code, found.node) == (code, node)
    assert found.message.startswith(why)
    assert check_model(model, profile) == [found]


@pytest.mark.needs_coreai
@pytest.mark.needs_ort
def test_nearest_points(tmp_path: Path) -> None:
    """Of points halfway between two elements too, which Core AI's own operator takes from the other one."""
    model = with_shapes(HEAD + SAMPLE)
    random = np.random.default_rng(0)
    given = {
        "x": random.standard_normal((1, 2, 5, 6)).astype(np.float32),
        "grid": np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 4, 3, 2).round(1),
    }
    given["grid"][0, 0] = [[-0.75, -0.25], [0.25, 0.75], [-0.25, 0.25]]  # rows 0.5, 1.5 ... of 5
    runner = load(model, "coreai", tmp_path)
    assert snr_db(Reference(model).run(given)["y"], runner.run(given)["y"]) >= 120
    runner.close()
