"""New operators and new forms of old ones: rewrites give what ONNX Runtime's kernels give."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.newer_opsets import newest_known
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes.canonical_opset import canonical_opset
from edgekit.compiler.passes.static_shapes import static_shapes
from edgekit.compiler.passes.write_out_newer import write_out_newer
from edgekit.tensor_spec import Array
from tests.compiler.passes.meaning import answers, assert_same, model_of, ops

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        (
            """g (float[2,5,3] x) => (float[2,5,3] y) { a = Constant <value = int64 {1}> ()
            y = CumProd (x, a) }""",
            26,
        ),
        (
            """g (float[2,5,3] x) => (float[2,5,3] y) { a = Constant <value = int64 {-2}> ()
            y = CumProd <exclusive=1, reverse=1> (x, a) }""",
            26,
        ),
        (
            """g (float[2,6,3] x, float[2,2,3] u) => (float[2,6,3] y) {
            i = Constant <value = int64[2] {1, 3}> ()
            y = TensorScatter (x, u, i) }""",
            24,
        ),
        (
            """g (float[2,6,3] x, float[2,4,3] u) => (float[2,6,3] y) {
            i = Constant <value = int64[2] {1, 4}> ()
            y = TensorScatter <mode = "circular"> (x, u, i) }""",
            24,
        ),
        (
            """g (float[2,1,3,4] q, float[2,1,5,4] k, float[2,1,5,4] v) => (float[2,1,3,4] y) {
            n = Constant <value = int64[2] {3, 5}> ()
            y = Attention (q, k, v, , , , n) }""",
            24,
        ),
    ],
)
def test_the_meaning_is_kept(text: str, opset: int) -> None:
    model = model_of(text, opset=opset)
    want = answers(model)
    static_shapes(model)
    assert write_out_newer(model)
    assert not {"CumProd", "TensorScatter", "Attention"} & set(ops(model))
    assert_same(want, model)


def test_what_opset_23_has_stays() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { y = Relu (x) }", opset=25)
    static_shapes(model)
    assert not write_out_newer(model)


def test_bits_of_an_integer_are_cast() -> None:
    model = model_of("g (int8[2] x) => (uint8[2] y) { y = BitCast <to = 2> (x) }", opset=26)
    want = answers(model)
    static_shapes(model)
    assert write_out_newer(model)
    assert ops(model) == ["Cast"]
    assert_same(want, model)


def test_bits_of_a_float_stay_and_keep_their_opset() -> None:
    model = model_of("g (float[2] x) => (int32[2] y) { y = BitCast <to = 6> (x) }", opset=26)
    static_shapes(model)
    assert not write_out_newer(model)
    canonical_opset(model)
    assert model.graph.opset_imports[""] == 26


NEEDS_28 = pytest.mark.skipif(newest_known() < 28, reason="needs an onnx that knows opset 28")


def _before_and_after(text: str, feeds: dict[str, Array]) -> tuple[Array, Array]:
    model = model_of(text, opset=28)
    want = Reference(model).run(feeds)["y"]
    static_shapes(model)
    assert write_out_newer(model)
    canonical_opset(model)
    static_shapes(model)
    assert model.graph.opset_imports[""] == 23
    return want, Reference(model).run(feeds)["y"]


@NEEDS_28
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_mod_of_floats(kind: str) -> None:
    ends = np.array([0.0, -0.0, 1.5, -1.5, 3.0, -7.25, np.inf, -np.inf, np.nan], kind)
    a, b = (np.ascontiguousarray(array.ravel()) for array in np.meshgrid(ends, ends))
    name = {"float32": "float", "float64": "double"}.get(kind, kind)
    text = f"g ({name}[81] a, {name}[81] b) => ({name}[81] y) {{ y = Mod (a, b) }}"
    want, got = _before_and_after(text, {"a": a, "b": b})
    np.testing.assert_array_equal(got, want)


@NEEDS_28
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


@NEEDS_28
def test_a_range_of_halves_counts_in_float32() -> None:
    text = "g (float16 d) => (float16[3000] y) { z = Range (a, b, c) y = Add (z, d) }"
    ends = {name: np.array(number, np.float16) for name, number in (("a", 0), ("b", 3000), ("c", 1))}
    model = model_of(text, opset=28, **ends)
    static_shapes(model)
    write_out_newer(model)
    canonical_opset(model)
    got = Reference(model).run({"d": np.array(0, np.float16)})["y"]
    np.testing.assert_array_equal(got, np.arange(3000).astype(np.float16))


@NEEDS_28
def test_the_other_order_of_space_to_depth() -> None:
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    text = 'g (float[1,2,4,4] x) => (float[1,8,2,2] y) { y = SpaceToDepth <blocksize=2, mode="CRD"> (x) }'
    want, got = _before_and_after(text, {"x": x})
    np.testing.assert_array_equal(got, want)
