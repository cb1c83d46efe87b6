"""Forms that the emulator computes wrongly: written with others, or refused with their node."""

from __future__ import annotations

import numpy as np
import pytest
from edgekit_qnn.htp_types import refused_forms, with_htp_types

from edgekit.compiler.model.reference import Reference
from tests.targets.engine_trial import with_shapes

pytestmark = pytest.mark.needs_ort

POOL = """
<ir_version: 10, opset_import: ["": 23]>
pool (float[1,3,9,7] x) => (float[1,3,H,W] y) { [p] y = AveragePool<ATTRIBUTES>(x) }
"""


@pytest.mark.parametrize(
    ("attributes", "size", "pools"),
    [
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1", "5,4", 0),
        ("kernel_shape=[3,2], count_include_pad=1, pads=[1,1,1,0]", "9,7", 0),
        ("kernel_shape=[3,3], count_include_pad=1, pads=[1,1,1,1]", "9,7", 1),
        ("kernel_shape=[3,2], pads=[1,0,1,1]", "9,7", 1),
    ],
)
def test_averages_that_are_uneven_at_the_borders_are_convolutions(
    attributes: str, size: str, pools: int
) -> None:
    model = with_shapes(POOL.replace("ATTRIBUTES", attributes).replace("H,W", size))
    typed, _ = with_htp_types(model)
    assert [node.op_type for node in typed.graph].count("AveragePool") == pools
    feed = {"x": np.random.default_rng(1).normal(size=(1, 3, 9, 7)).astype(np.float32)}
    np.testing.assert_allclose(Reference(typed).run(feed)["y"], Reference(model).run(feed)["y"], atol=4e-3)
    assert refused_forms(model, "qnn") == []


DEEP = "x) => (float[1,2,4,4,4] y) { y = AveragePool<kernel_shape=[3,3,3], pads=[1,1,1,1,1,1]COUNT>(x) }"
FAR = "x, float[2,2,3,3] w) => (float[1,2,8,8] y) { y = Conv<pads=[3,3,3,3]>(x, w) }"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"float[1,2,4,4,4] {DEEP.replace('COUNT', ', count_include_pad=1')}", 1),
        (f"float[1,2,4,4,4] {DEEP.replace('COUNT', '')}", 0),
        (f"float[1,2,4,4] {FAR}", 1),
        (f"float[1,2,4,4] {FAR.replace('3,3,3,3]>', '2,2,2,2]>').replace('8,8] y', '6,6] y')}", 0),
    ],
)
def test_what_has_no_other_form_is_named(text: str, count: int) -> None:
    found = refused_forms(with_shapes(f'<ir_version: 10, opset_import: ["": 23]> g ({text}'), "qnn")
    assert [(each.code, each.node) for each in found] == [("EK1002", "y")] * count
