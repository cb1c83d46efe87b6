"""The algebra of layouts, and that any sequence of moves computes what numpy computes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx
import pytest
from edgekit_tflite import layout
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from edgekit.tensor_spec import Array
from tests.targets.tflite.running import canonical, compiled, ops_of, ran

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


@st.composite
def shape_and_perm(draw: Callable[..., object]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(SHAPES)
    assert isinstance(shape, tuple)
    perm = draw(st.permutations(range(len(shape))))
    assert isinstance(perm, list)
    return shape, tuple(perm)


@st.composite
def factored(draw: Callable[..., object], size: int) -> tuple[int, ...]:
    """A shape of ``size`` elements, with some axes of size 1."""
    shape: list[int] = []
    left = size
    while left > 1:
        factor = draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0]))
        assert isinstance(factor, int)
        shape.append(factor)
        left //= factor
    for _ in range(int(str(draw(st.integers(0, 2))))):
        shape.insert(int(str(draw(st.integers(0, len(shape))))), 1)
    return tuple(shape) or (1,)


def stored(x: Array, perm: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(x.transpose(perm)).ravel()


@given(shape_and_perm(), st.data())
def test_transposed_names_the_axes_of_the_same_bytes(
    given_: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    shape, perm = given_
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    x = np.arange(prod(shape)).reshape(shape)
    assert np.array_equal(stored(x.transpose(order), layout.transposed(perm, order)), stored(x, perm))


@given(shape_and_perm(), st.data())
def test_same_order_means_the_same_bytes(
    given_: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    shape, perm = given_
    other = tuple(data.draw(st.permutations(range(len(shape)))))
    x = np.arange(prod(shape)).reshape(shape)
    if layout.same_order(shape, perm, other):
        assert np.array_equal(stored(x, perm), stored(x, other))
    elif prod(shape) > 1:
        assert not np.array_equal(stored(x, perm), stored(x, other))


@given(shape_and_perm(), st.data())
def test_reshape_perms_store_the_reshaped_value(
    given_: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    shape, perm = given_
    new = data.draw(factored(prod(shape)))
    x = np.arange(prod(shape)).reshape(shape)
    needed, result = layout.reshape_perms(shape, perm, new)
    assert sorted(needed) == list(range(len(shape)))
    assert sorted(result) == list(range(len(new)))
    assert np.array_equal(stored(x, needed), stored(x.reshape(new), result))


@given(shape_and_perm(), st.data())
def test_grouped_perm_stores_the_reshaped_value_as_wished(
    given_: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    shape, _ = given_
    new = data.draw(factored(prod(shape)))
    result = tuple(data.draw(st.permutations(range(len(new)))))
    if layout.can_group(shape, new, result):
        x = np.arange(prod(shape)).reshape(shape)
        needed = layout.grouped_perm(shape, new, result)
        assert np.array_equal(stored(x, needed), stored(x.reshape(new), result))


def test_a_reshape_that_splits_channels_of_an_image_is_free() -> None:
    needed, result = layout.reshape_perms((1, 6, 4, 5), (0, 2, 3, 1), (1, 2, 3, 4, 5))
    assert layout.same_order((1, 6, 4, 5), needed, (0, 2, 3, 1))
    assert result == (0, 3, 4, 1, 2)


def test_a_reshape_that_joins_channels_and_rows_is_not() -> None:
    needed, _ = layout.reshape_perms((1, 6, 4, 5), (0, 2, 3, 1), (1, 24, 5))
    assert not layout.same_order((1, 6, 4, 5), needed, (0, 2, 3, 1))


@given(st.data())
def test_collapsed_shapes_broadcast_alike(data: st.DataObject) -> None:
    whole = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6).map(tuple))
    shapes = [
        tuple(n if keep else 1 for n, keep in zip(whole, data.draw(_flags(len(whole))), strict=True))
        for _ in range(2)
    ]
    out = np.broadcast_shapes(*shapes)
    a, b, merged = layout.collapsed([*shapes, tuple(out)])
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shapes[0]), rng.normal(size=shapes[1])
    assert np.array_equal((x.reshape(a) + y.reshape(b)).reshape(out), x + y)
    assert np.broadcast_shapes(a, b) == merged


def _flags(count: int) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.booleans(), min_size=count, max_size=count)


@st.composite
def moves(
    draw: Callable[..., object],
) -> tuple[tuple[int, ...], list[onnx.NodeProto], list[onnx.TensorProto]]:
    """A random chain of Transpose, Reshape, unary, binary with itself moved, reduce, concat and slice."""
    shape = draw(st.sampled_from([(1, 2, 4, 6), (2, 3, 4), (1, 6, 2, 2), (2, 2, 2, 3)]))
    assert isinstance(shape, tuple)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    current: tuple[int, ...] = shape
    name = "x"
    for step in range(int(str(draw(st.integers(1, 6))))):
        out, constant = f"v{step}", f"c{step}"
        kind = draw(
            st.sampled_from(["transpose", "reshape", "neg", "add", "softmax", "concat", "mean", "slice"])
        )
        axis = int(str(draw(st.integers(0, len(current) - 1))))
        if kind == "transpose":
            perm = draw(st.permutations(range(len(current))))
            assert isinstance(perm, list)
            nodes.append(helper.make_node("Transpose", [name], [out], perm=perm))
            current = tuple(current[a] for a in perm)
        elif kind == "reshape":
            new = draw(factored(prod(current)))
            assert isinstance(new, tuple)
            new = new if len(new) <= 5 else (prod(new),)
            weights.append(numpy_helper.from_array(np.array(new, np.int64), constant))
            nodes.append(helper.make_node("Reshape", [name, constant], [out]))
            current = new
        elif kind == "neg":
            nodes.append(helper.make_node("Neg", [name], [out]))
        elif kind == "add":
            row = np.arange(current[axis], dtype=np.float32).reshape(-1, *(1,) * (len(current) - axis - 1))
            weights.append(numpy_helper.from_array(row, constant))
            nodes.append(helper.make_node("Add", [name, constant], [out]))
        elif kind == "softmax":
            nodes.append(helper.make_node("Softmax", [name], [out], axis=axis))
        elif kind == "concat":
            nodes.append(helper.make_node("Concat", [name, name], [out], axis=axis))
            current = tuple(2 * n if a == axis else n for a, n in enumerate(current))
        elif kind == "mean":
            weights.append(numpy_helper.from_array(np.array([axis], np.int64), constant))
            nodes.append(helper.make_node("ReduceMean", [name, constant], [out], keepdims=1))
            current = tuple(1 if a == axis else n for a, n in enumerate(current))
        else:
            for part, at in (("b", 0), ("e", max(1, current[axis] - 1)), ("a", axis)):
                weights.append(numpy_helper.from_array(np.array([at], np.int64), constant + part))
            parts = [constant + part for part in "bea"]
            nodes.append(helper.make_node("Slice", [name, *parts], [out]))
            current = tuple(max(1, n - 1) if a == axis else n for a, n in enumerate(current))
        name = out
    nodes.append(helper.make_node("Identity", [name], ["y"]))
    return shape, nodes, weights


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@settings(max_examples=60, deadline=None)
@given(moves())
def test_any_sequence_of_moves_computes_what_the_reference_computes(
    drawn: tuple[tuple[int, ...], list[onnx.NodeProto], list[onnx.TensorProto]],
) -> None:
    from onnx.reference import ReferenceEvaluator

    shape, nodes, weights = drawn
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "moves", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    feed = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": feed})
    answer = ran(compiled(canonical(model)), {"x": feed})["y"]
    assert answer.shape == np.shape(expected)
    assert np.allclose(answer, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.needs_tflite
def test_transposes_that_cancel_cost_nothing() -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 4, 5))
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"], perm=[0, 3, 1, 2]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    assert ops_of(compiled(canonical(model))) == {"EXP": 1}
