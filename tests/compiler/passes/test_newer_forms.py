"""New forms of old operators: what their rewrites give is what ONNX Runtime's new kernels give."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.newer_opsets import newest_known
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes.canonical_opset import canonical_opset
from edgekit.compiler.passes.static_shapes import static_shapes
from edgekit.compiler.passes.write_out_newer import write_out_newer
from edgekit.tensor_spec import Array
from tests.compiler.passes.meaning import model_of

pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(newest_known() < 28, reason="needs an onnx that knows opset 28"),
]


def _before_and_after(text: str, feeds: dict[str, Array]) -> tuple[Array, Array]:
    model = model_of(text, opset=28)
    want = Reference(model).run(feeds)["y"]
    static_shapes(model)
    assert write_out_newer(model)
    canonical_opset(model)
    static_shapes(model)
    assert model.graph.opset_imports[""] == 23
    return want, Reference(model).run(feeds)["y"]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_mod_of_floats(kind: str) -> None:
    ends = np.array([0.0, -0.0, 1.5, -1.5, 3.0, -7.25, np.inf, -np.inf, np.nan], kind)
    a, b = (np.ascontiguousarray(array.ravel()) for array in np.meshgrid(ends, ends))
    name = {"float32": "float", "float64": "double"}.get(kind, kind)
    text = f"g ({name}[81] a, {name}[81] b) => ({name}[81] y) {{ y = Mod (a, b) }}"
    want, got = _before_and_after(text, {"a": a, "b": b})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_bit_shift(kind: str, direction: str) -> None:
    limits, rng = np.iinfo(kind), np.random.default_rng(0)
    drawn = rng.integers(limits.min, limits.max, 6, kind)
    x = np.array([limits.min, limits.max, 0, 1, limits.max // 3, *drawn], kind)
    steps = [0, 1, 3, limits.bits - 1, limits.bits, limits.bits + 1, limits.max]
    steps += [-1, limits.min] if limits.min else []
    x, by = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(x, np.array(steps, kind)))
    text = (
        f"g ({kind}[{x.size}] x, {kind}[{x.size}] by) => ({kind}[{x.size}] y) "
        f'{{ y = BitShift <direction="{direction}"> (x, by) }}'
    )
    want, got = _before_and_after(text, {"x": x, "by": by})
    np.testing.assert_array_equal(got, want)


def test_a_range_of_halves_counts_in_float32() -> None:
    text = "g (float16 d) => (float16[3000] y) { z = Range (a, b, c) y = Add (z, d) }"
    ends = {name: np.array(number, np.float16) for name, number in (("a", 0), ("b", 3000), ("c", 1))}
    model = model_of(text, opset=28, **ends)
    static_shapes(model)
    write_out_newer(model)
    canonical_opset(model)
    got = Reference(model).run({"d": np.array(0, np.float16)})["y"]
    np.testing.assert_array_equal(got, np.arange(3000).astype(np.float16))


def test_the_other_order_of_space_to_depth() -> None:
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    text = 'g (float[1,2,4,4] x) => (float[1,8,2,2] y) { y = SpaceToDepth <blocksize=2, mode="CRD"> (x) }'
    want, got = _before_and_after(text, {"x": x})
    np.testing.assert_array_equal(got, want)
