"""One graph for every size of a range, from the graphs of some sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from edgekit_ort.run import open_session

from edgekit.compiler.lowering.shape_range import with_range
from edgekit.compiler.model.onnx_file import open_model, save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import add_constant, array_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineError
from edgekit.tensor_spec import Array
from tests.fixtures.encoder import WHOLE, encoder

pytestmark = pytest.mark.needs_ort
SIZES = (2, 5, 9, 16)


def graph(size: int, body: str, constants: Callable[[int], dict[str, Array]]) -> ir.Model:
    """Return a graph of x [1, size] with constants that may depend on the size."""
    values = constants(size)
    declared = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]> g (float[1,{size}] x) => (float[a, b] y) {{ {body} }}"""
    )
    for name, array in values.items():
        declared.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = ir.from_proto(declared)
    infer_shapes(model)
    return model


def unified(body: str, constants: Callable[[int], dict[str, Array]]) -> ir.Model:
    return with_range([graph(size, body, constants) for size in SIZES], SIZES)


def run(model: ir.Model, size: int) -> Array:
    session = open_session(save_model(model), threads=1)
    x = np.arange(1, size + 1, dtype=np.float32)[None]
    (answer,) = session.run(None, {"x": x})
    return np.asarray(answer)


def ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


AT0, AT1 = np.array([0]), np.array([1])
FOLLOWING: list[tuple[str, Callable[[int], dict[str, Array]], set[str]]] = [
    # -1: a form that Reshape itself has
    ("y = Reshape(x, to)", lambda n: {"to": np.array([n, 1])}, set()),
    ("y = Reshape(x, to)", lambda n: {"to": np.array([1, n])}, set()),
    # 0 before it: the input's own dimension
    (
        "a = Transpose<perm = [1, 0]>(x) b = MatMul(a, x) y = Reshape(b, to)",
        lambda n: {"to": np.array([n, 1, n])},
        set(),
    ),
    ("y = Expand(x, to)", lambda n: {"to": np.array([n + 1, n])}, {"Mul", "Add"}),  # computed
    ("y = Slice(x, from, to, axes)", lambda n: {"from": AT0, "to": np.array([n - 1]), "axes": AT1}, {"Add"}),
    ("y = Gather<axis = 1>(x, at)", lambda n: {"at": np.array([n - 1], np.int32)}, {"Add", "Cast"}),
    (
        "a = Range(zero, n, one) b = Cast<to = 1>(a) y = Add(x, b)",
        lambda n: {"zero": np.array(0), "n": np.array(n), "one": np.array(1)},
        {"Squeeze"},
    ),
    # a mean, by the number of elements
    (
        "a = ReduceSum(x, axes) y = Div(a, n)",
        lambda n: {"axes": AT1, "n": np.array(n, np.float32)},
        {"Squeeze", "Cast"},
    ),
    # the first elements of a table, in one dimension or two
    ("y = Add(x, table)", lambda n: {"table": np.sqrt(np.arange(n, dtype=np.float32))[None]}, {"Slice"}),
    (
        "y = MatMul(x, table)",
        lambda n: {"table": np.tril(np.ones((16, 16), np.float32))[:n, :n]},
        {"Slice", "Mul"},
    ),
]


@pytest.mark.parametrize(("body", "constants", "added"), FOLLOWING)
def test_what_follows_from_the_size_is_right_at_every_size(
    body: str, constants: Callable[[int], dict[str, Array]], added: set[str]
) -> None:
    model = unified(body, constants)
    largest = graph(SIZES[-1], body, constants)
    assert set(ops(model) - ops(largest)) - {"Shape"} == added
    assert ("Shape" in ops(model)) is bool(added)
    for size in range(1, 17):
        expected = Reference(graph(size, body, constants)).run(
            {"x": np.arange(1, size + 1, dtype=np.float32)[None]}
        )
        assert np.array_equal(run(model, size), expected["y"]), size


@pytest.mark.parametrize(
    ("body", "constants", "reason"),
    [
        (
            "y = Mul(x, scale)",
            lambda n: {"scale": np.array(1 / n, np.float32)},
            r"node .* \(Mul\): constant scale does not follow from the size",
        ),
        (
            "y = Slice(x, from, to)",
            lambda n: {"from": np.array([0, 0]), "to": np.array([1, n // 2])},
            r"node .* \(Slice\): constant to does not follow from the size",
        ),
        (
            "y = Add(x, table)",
            lambda n: {"table": np.arange(n, dtype=np.float32)[None] / n},
            r"node .* \(Add\): constant table does not follow from the size",
        ),
        (
            "a = ReduceMax<keepdims = 0>(x) b = Cast<to = 9>(a) c = If (b) <"
            "then_branch = t () => (float p) { p = Mul(a, scale) },"
            "else_branch = e () => (float q) { q = Neg(a) }> y = Add(x, c)",
            lambda n: {"scale": np.array(n, np.float32)},
            r"node .* \(If\): constant scale, which its body reads, differs between sizes",
        ),
    ],
)
def test_a_constant_that_does_not_follow_from_the_size_is_refused_by_its_node(
    body: str, constants: Callable[[int], dict[str, Array]], reason: str
) -> None:
    with pytest.raises(EngineError, match=f"^{reason}$"):
        unified(body, constants)


def with_node(model: ir.Model, size: int) -> str:
    node = model.graph.node(0)
    if size == 9:
        node.op_type = "Sub"
    return "other sizes have another node there"


def with_attribute(model: ir.Model, size: int) -> str:
    node = model.graph.node(0)
    node.op_type = "Concat"
    node.attributes["axis"] = ir.AttrInt64("axis", int(size == 5))
    return "its attributes differ between sizes"


def with_input(model: ir.Model, size: int) -> str:
    if size == 2:
        model.graph.node(0).replace_input_with(1, add_constant(model, np.zeros(1, np.float32), "zero"))
    return "input 1 is a constant at some sizes only"


@pytest.mark.parametrize("change", [with_node, with_attribute, with_input])
def test_other_graphs_are_refused_by_the_first_node_that_differs(
    change: Callable[[ir.Model, int], str],
) -> None:
    models = [graph(size, "y = Add(x, x)", lambda _: {}) for size in SIZES]
    reasons = {change(model, size) for model, size in zip(models, SIZES, strict=True)}
    with pytest.raises(EngineError, match=rf"^node .*: {reasons.pop()}$"):
        with_range(models, SIZES)


def test_a_longer_graph_is_refused() -> None:
    models = [graph(size, "y = Add(x, x)", lambda _: {}) for size in SIZES[:-1]]
    models.append(graph(SIZES[-1], "a = Neg(x) y = Add(a, a)", lambda _: {}))
    with pytest.raises(EngineError, match=r"node .* \(Neg\): the graph has other nodes at other sizes"):
        with_range(models, SIZES)


def test_an_encoder_keeps_its_weights_once(tmp_path: Path) -> None:
    models = []
    for size in SIZES:
        model = open_model(encoder(tmp_path / "encoder.onnx"), {"ids": (1, size), "mask": (1, size)})
        run_passes(model)
        models.append(model)
    before = save_model(models[-1])
    found = with_range(models, SIZES)
    assert len(save_model(found)) < len(before) + 2000
    assert save_model(models[-1]) == before  # what was passed in is unchanged
    assert [list(map(str, value.shape or ())) for value in found.graph.inputs] == [["1", "size"]] * 2
    assert [list(map(str, value.shape or ())) for value in found.graph.outputs] == [["1", "size", "64"]]
    tables = [array_of(value) for value in found.graph.initializers.values()]
    assert sum(table is not None and table.shape[-2:] == (WHOLE, 64) for table in tables) == 1
    session = open_session(save_model(found), threads=1)
    for size in range(1, WHOLE + 1):
        feeds = {"ids": np.arange(size)[None] % 7, "mask": np.ones((1, size), np.int64)}
        model = open_model(encoder(tmp_path / "encoder.onnx"), {"ids": (1, size), "mask": (1, size)})
        expected = Reference(model).run(feeds)["tokens"]
        assert session.run(None, feeds)[0] == pytest.approx(expected, abs=1e-5)
