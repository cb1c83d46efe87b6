"""The op table: versions, attributes that nobody handles, all reasons at once."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.op_table import OpTable, open_shapes
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.diagnostics import Inexpressible


class Recorder:
    """A builder whose handles are texts."""

    def __init__(self) -> None:
        self.values: dict[ir.Value, str] = {}
        self.nodes: list[str] = []

    def begin(self, node: ir.Node) -> None:
        self.nodes.append(node.op_type)

    def handle(self, value: ir.Value) -> str:
        return self.values.get(value, str(value.name))

    def bind(self, value: ir.Value, handle: str) -> None:
        self.values[value] = handle

    def bind_unknown(self, value: ir.Value) -> None:
        self.values[value] = "?"


def graph_of(body: str, outputs: str = "y") -> ir.Graph:
    text = f'<ir_version: 10, opset_import: ["" : 23]>\ng (float[2] x) => ({outputs}) {{\n{body}\n}}'
    return ir.from_proto(onnx.parser.parse_model(text)).graph


def table() -> OpTable[str]:
    lower: OpTable[str] = OpTable("paper")

    @lower("Softmax", since=1)
    def old_softmax(b: Recorder, data: str, *, axis: int = 1) -> str:
        """Flattens."""
        return f"old({data}, {axis})"

    @lower("Softmax", since=13)
    def softmax(b: Recorder, data: str, *, axis: int = -1) -> str:
        """One axis.

        More words.
        """
        return f"new({data}, {axis})"

    @lower("Add", since=14)
    def add(b: Recorder, A: str, B: str) -> str:  # noqa: N803
        """A sum."""
        raise Inexpressible("this sum has no form", "sum it yourself", "EK1004")

    @lower("Concat", since=13)
    def concat(b: Recorder, *inputs: str, axis: int) -> tuple[str]:
        return (f"concat({', '.join(inputs)}, {axis})",)

    return lower


def test_a_family_is_lowered_by_one_function() -> None:
    lower: OpTable[str] = OpTable("paper")

    @lower.family({"Sin": "sine", "Cos": "cosine"}, since=7, doc="The {} ({op}).")
    def wave(entry: str, b: Recorder, data: str) -> str:
        return f"{entry}({data})"

    graph, build = graph_of("a = Sin(x)\ny = Cos(a)"), Recorder()
    assert lower.lower(build, graph, 23) == []
    assert build.values[graph.outputs[0]] == "cosine(sine(x))"
    assert list(lower.rows()) == [("Cos", 7, "The cosine (Cos)."), ("Sin", 7, "The sine (Sin).")]
    findings = lower.lower(Recorder(), graph_of("y = Cos<turns=1>(x, x)"), 23)
    assert [finding.message for finding in findings] == ["attribute turns is not supported"]


@pytest.mark.parametrize(("opset", "expected"), [(23, "new(x, -1)"), (13, "new(x, -1)"), (12, "old(x, 1)")])
def test_the_newest_lowering_that_fits_is_used(opset: int, expected: str) -> None:
    graph, build = graph_of("y = Softmax(x)"), Recorder()
    assert table().lower(build, graph, opset) == []
    assert build.values[graph.outputs[0]] == expected


def test_attributes_and_variadic_inputs_are_passed() -> None:
    graph, build = graph_of("y = Concat<axis=0>(x, x)"), Recorder()
    assert table().lower(build, graph, 23) == []
    assert build.values[graph.outputs[0]] == "concat(x, x, 0)"


def test_all_reasons_come_at_once() -> None:
    graph = graph_of("[first] a = Cos(x)\n[second] b = Add(a, x)\n[third] y = Softmax<axis=0, beta=2.0>(b)")
    findings = table().lower(Recorder(), graph, 23)
    assert [(f.code, f.node, f.op, f.message, f.fix) for f in findings] == [
        (
            "EK1001", "first", "Cos", "paper does not support Cos at opset 23",
            "build it for ort, or see docs/add-an-op.md",
        ),
        ("EK1004", "second", "Add", "this sum has no form", "sum it yourself"),
        (
            "EK1002", "third", "Softmax", "attribute beta is not supported",
            "build it for ort, or see docs/add-an-op.md",
        ),
    ]  # fmt: skip
    assert {f.severity for f in findings} == {"error"}
    assert {f.target for f in findings} == {"paper"}


def test_an_input_too_many_is_reported() -> None:
    findings = table().lower(Recorder(), graph_of("y = Softmax(x, x)"), 23)
    assert [f.message for f in findings] == ["2 inputs; at most 1 are supported"]


def test_an_output_that_is_read_must_be_made() -> None:
    findings = table().lower(Recorder(), graph_of("y, z = Softmax(x)", outputs="float y, float z"), 23)
    assert [f.message for f in findings] == ["output 1 (z) is not produced"]


def test_an_output_that_nobody_reads_need_not_be_made() -> None:
    assert table().lower(Recorder(), graph_of("y, z = Softmax(x)"), 23) == []


def test_a_node_without_a_name_is_named_after_its_output() -> None:
    assert table().lower(Recorder(), graph_of("y = Cos(x)"), 23)[0].node == "y"


def test_another_domain_is_another_op() -> None:
    graph = graph_of("y = Softmax(x)")
    graph.node(0).domain = "com.example"
    finding = table().lower(Recorder(), graph, 23)[0]
    assert (finding.op, finding.code) == ("com.example.Softmax", "EK1001")


def test_two_lowerings_of_one_version_are_a_mistake() -> None:
    lower = table()
    with pytest.raises(ValueError, match=r"^paper: Add since opset 14 has two lowerings$"):
        lower("Add", since=14)(lambda b: b)


def test_rows_for_the_table_of_ops() -> None:
    assert list(table().rows()) == [
        ("Add", 14, "A sum."),
        ("Concat", 13, ""),
        ("Softmax", 1, "Flattens."),
        ("Softmax", 13, "One axis."),
    ]


def test_shapes_that_are_not_static_are_named_with_what_to_do() -> None:
    model = ir.Model(graph_of("n = NonZero(x)  y = Neg(n)"), ir_version=10)
    infer_shapes(model)
    fix = "cut the model before it, or build it for ort"
    assert [(f.code, f.node, f.op, f.message, f.fix) for f in open_shapes(model, "paper")] == [
        ("EK1003", "n", "NonZero", "the shape of n is [1,?], not static", fix),
    ]


def test_nodes_with_dynamic_shapes_are_looked_up_but_not_lowered() -> None:
    model = ir.Model(
        graph_of("n = NonZero(x)  y = Add(n, n)  c = Cast<to = 1>(n)  z = Cos(c)"), ir_version=10
    )
    infer_shapes(model)
    record = Recorder()
    findings = table().lower(record, model.graph, 23, open_shapes(model, "paper"))
    assert [(f.code, f.node) for f in findings] == [("EK1003", "n"), ("EK1001", "c"), ("EK1001", "z")]
    assert record.values[model.graph.outputs[0]] == "?"  # the sum, which has no form
