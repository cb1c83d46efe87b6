"""Files of a few bytes that ended the process, took gigabytes or minutes, or came back with a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.model import work_budget
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes
from edgekit.diagnostics import Finding, as_lines
from edgekit.errors import EngineError, ModelError

pytestmark = pytest.mark.needs_ort


def model(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, Any] | None = None,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    inputs: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    given = inputs or {"x": (TensorProto.FLOAT, [1, 4])}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in given.items()],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("d", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def refusal(folder: Path, proto: onnx.ModelProto) -> str:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as caught:
        run_passes(open_model(path))
    return str(caught.value)


def opens(folder: Path, proto: onnx.ModelProto) -> None:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    run_passes(open_model(path))


def one(op: str, inputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(","), ["y"], name="n", **attributes)


I8: Any = np.int8
I32: Any = np.int32
I64: Any = np.int64
F32: Any = np.float32
FLOAT4: dict[str, Any] = {"x": (TensorProto.FLOAT, [1, 4])}


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_scales(tmp_path: Path, op: str, scale: float) -> None:
    kind = TensorProto.FLOAT if op == "QuantizeLinear" else TensorProto.INT8
    proto = model([one(op, "x,s,z")], {"s": F32(scale), "z": I8(0)}, inputs={"x": (kind, [1, 4])})
    assert refusal(tmp_path, proto) == (
        f"m.onnx: node n ({op}, opset 17): scale (s) contains {scale:g}; a scale must be above 0"
    )


def test_a_hostile_scale_in_one_branch_is_refused_too(tmp_path: Path) -> None:
    """The engine may take the branch that another rule would leave out."""

    def branch(scale: str, name: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("QuantizeLinear", ["x", scale, "z"], [f"{name}q"], name=f"{name}_q"),
            helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}d"]),
        ]
        return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=f"{name}d")])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("s", "t"), else_branch=branch("bad", "e"))
    weights = {"s": F32(0.5), "bad": F32(0), "z": I8(0)}
    proto = model([node], weights, inputs={**FLOAT4, "c": (TensorProto.BOOL, [])})
    assert refusal(tmp_path, proto) == (
        "m.onnx: node e_q (QuantizeLinear, opset 17): scale (bad) contains 0; a scale must be above 0"
    )


INT4: dict[str, Any] = {"x": (TensorProto.INT32, [1, 4])}
LEAST = -(2**31)


@pytest.mark.parametrize(
    ("node", "weights", "inputs", "message"),
    [
        (one("Div", "x,b"), {"b": I32([0])}, INT4, "divides integers by 0 (b)"),
        (one("Mod", "x,b"), {"b": I32([2, 0, 1, 1])}, INT4, "divides integers by 0 (b)"),
        (
            one("Div", "x,b"), {"b": I32([-1])}, INT4,
            f"divides integers by -1 (b), which crashes the process if one is {LEAST}; use Neg",
        ),
        (
            one("Div", "a,b"), {"a": I32([LEAST]), "b": I32([-1])}, INT4,
            f"divides {LEAST} by -1, and {-LEAST} is not a valid int32",
        ),
        (one("GatherND", "x,i", batch_dims=-(2**31)), {"i": I64([[0]])}, FLOAT4,
         f"batch_dims is {-(2**31)}; it must be 0 or more"),
        (one("GatherND", "x,i"), {"i": I64([[0, 4]])}, FLOAT4, "index 4 (i) is outside 1x4"),
        (one("GatherND", "x,i"), {"i": I64([[0, 0, 0]])}, FLOAT4,
         "indices 1x3 address 3 axes of data 1x4, which has 2"),
        (one("Gather", "x,i", axis=1), {"i": I64([-5])}, FLOAT4, "index -5 (i) is outside 1x4"),
        (one("GatherElements", "x,i", axis=1), {"i": I64([[9]])}, FLOAT4, "index 9 (i) is outside 1x4"),
        (one("ScatterND", "x,i,u"), {"i": I64([[0, 7]]), "u": F32([1])}, FLOAT4,
         "index 7 (i) is outside 1x4"),
        (one("DFT", "x,l", axis=1), {"l": I64(0)}, {"x": (TensorProto.FLOAT, [1, 8, 1])},
         "dft_length (l) is 0; it must be 1 or more"),
        (one("DFT", "x", axis=1), {}, {"x": (TensorProto.FLOAT, [1, 8, 4])},
         "its signal is 1x8x4; it needs two axes or more, the last one with 1 (real) or 2 (complex)"),
        (one("DFT", "x", axis=1), {}, {"x": (TensorProto.FLOAT16, [1, 8, 2])},
         "is not float or double, for which ONNX Runtime reads out of bounds"),
        (one("HannWindow", "l"), {"l": I64(2**42)}, FLOAT4,
         f"makes {2**42} values; the limit is 2 GiB"),
        (one("HannWindow", "l"), {"l": I64(-1)}, FLOAT4, "size (l) is -1; it must be 0 or more"),
        (one("Range", "a,b,c"), {"a": I64(0), "b": I64(2**31), "c": I64(1)}, FLOAT4,
         "would make 2147483648, 2 GiB; the limit is 2 GiB"),
        (one("ConstantOfShape", "d"), {"d": I64([2**32, 2**32])}, FLOAT4,
         "would make 4294967296x4294967296, 1.72e+10 GiB; the limit is 2 GiB"),
        (one("Expand", "x,d"), {"d": I64([10**12, 1])}, FLOAT4,
         "would make 1000000000000x4, 3.73e+03 GiB; the limit is 2 GiB"),
        (one("Tile", "x,d"), {"d": I64([2**32, 2**30])}, FLOAT4,
         "would make 4294967296x4294967296, 1.72e+10 GiB; the limit is 2 GiB"),
        (one("Tile", "x,d"), {"d": I64([1, -1])}, FLOAT4, "repeats (d) contains -1; it must be 0 or more"),
        (one("Pad", "x,d"), {"d": I64([0, 2**62, 0, 0])}, FLOAT4,
         f"would make 1x{2**62 + 4}, 4.29e+09 GiB; the limit is 2 GiB"),
        (one("OneHot", "i,k,v"), {"i": I64([1]), "k": I64(2**40), "v": F32([0, 1])}, FLOAT4,
         "would make 1x1099511627776, 1.02e+03 GiB; the limit is 2 GiB"),
        (one("DepthToSpace", "x", blocksize=2**31), {}, {"x": (TensorProto.FLOAT, [1, 4, 2, 2])},
         "its input has 4 channels, not a multiple of 2147483648 x 2147483648"),
        (one("Resize", "x,,s"), {"s": F32([1, 1e12])}, FLOAT4,
         "would make 1x3999999983616, 3.73e+03 GiB; the limit is 2 GiB"),
    ],
)  # fmt: skip
def test_constants_that_end_the_process_or_ask_for_terabytes(
    tmp_path: Path, node: onnx.NodeProto, weights: dict[str, Any], inputs: dict[str, Any], message: str
) -> None:
    said = refusal(tmp_path, model([node], weights, inputs=inputs))
    assert said == f"m.onnx: node n ({node.op_type}, opset 17): {message}"


def test_blocks_of_a_scale(tmp_path: Path) -> None:
    weights = {"s": np.ones((1, 2), F32), "z": np.zeros((1, 2), I8)}
    inputs = {"x": (TensorProto.INT8, [1, 4])}
    for block, message in (
        (-2, "block_size is -2; it must be 1 or more, or 0 for no blocks"),
        (0, "scale has shape 1x2; axis 1 of 1x4 needs 4"),
        (1, "scale has shape 1x2; blocks of 1 on axis 1 of 1x4 need 1x4"),
    ):
        node = one("DequantizeLinear", "x,s,z", block_size=block)
        assert refusal(tmp_path, model([node], weights, 23, inputs=inputs)) == (
            f"m.onnx: node n (DequantizeLinear, opset 23): {message}"
        )
    opens(tmp_path, model([one("DequantizeLinear", "x,s,z", block_size=2)], weights, 23, inputs=inputs))


@pytest.mark.parametrize(
    ("node", "weights", "inputs"),
    [
        (one("Div", "x,b"), {"b": I32([2, -3, 1, 5])}, INT4),
        (one("Div", "x,b"), {"b": F32([0, -1, 1, 5])}, FLOAT4),
        (one("Gather", "x,i", axis=1), {"i": I64([-4, 3])}, FLOAT4),
        (one("GatherND", "x,i", batch_dims=1), {"i": I64([[-4]])}, FLOAT4),
        (one("DFT", "x,l", axis=1), {"l": I64(4)}, {"x": (TensorProto.FLOAT, [1, 8, 1])}),
        (one("DequantizeLinear", "x,s"), {"s": F32([1e-30])}, {"x": (TensorProto.INT8, [4])}),
    ],
)
def test_near_misses_open(
    tmp_path: Path, node: onnx.NodeProto, weights: dict[str, Any], inputs: dict[str, Any]
) -> None:
    opens(tmp_path, model([node], weights, inputs=inputs))


def test_many_dimensions(tmp_path: Path) -> None:
    proto = model([one("Relu", "x")], inputs={"x": (TensorProto.FLOAT, [1] * 400)})
    assert refusal(tmp_path, proto) == "m.onnx: x has 400 dimensions; at most 16 are supported"


def function(name: str, calls: str | None, overload: str = "", called: str = "") -> onnx.FunctionProto:
    nodes = [
        helper.make_node(calls or "Relu", [a], [b], domain="d" if calls else "", overload=called)
        for a, b in (("a", "t"), ("t", "z"))
    ]
    made = helper.make_function("d", name, ["a"], ["z"], nodes, [helper.make_opsetid("", 17)])
    made.opset_import.append(helper.make_opsetid("d", 1))
    made.overload = overload
    return made


def test_functions_that_nobody_calls_are_not_expanded(tmp_path: Path) -> None:
    laughs = [function(f"F{k}", f"F{k + 1}" if k < 24 else None) for k in range(25)]
    opens(tmp_path, model([one("Relu", "x")], functions=laughs))


def test_overloads_count_as_functions(tmp_path: Path) -> None:
    laughs = [function("F", "F" if k < 15 else None, str(k), str(k + 1) if k < 15 else "") for k in range(16)]
    call = helper.make_node("F", ["x"], ["y"], domain="d", overload="0")
    assert refusal(tmp_path, model([call], functions=laughs)) == (
        "m.onnx: its functions expand to more than 20000 nodes; export it with inlined functions"
    )


def test_millions_of_functions(tmp_path: Path) -> None:
    data = model([one("Relu", "x")]).SerializeToString()
    empty = onnx.FunctionProto(name="f", domain="d").SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data + (b"\xca\x01" + bytes([len(empty)]) + empty) * 20_000)
    with pytest.raises(ModelError) as caught:
        open_model(path)
    assert str(caught.value) == "m.onnx: it has 20000 functions; at most 10000 are supported"


def test_constants_made_of_constants(tmp_path: Path) -> None:
    numbers = [
        helper.make_tensor("v", TensorProto.FLOAT, [1], [k]) for k in range(300)
    ]  # equal ones are made once
    nodes = [
        helper.make_node("ConstantOfShape", ["d"], [f"k{k}"], name=f"k{k}", value=numbers[k])
        for k in range(300)
    ]
    nodes += [helper.make_node("ReduceSum", [f"k{k}"], [f"s{k}"], keepdims=0) for k in range(300)]
    nodes.append(helper.make_node("Sum", ["x", *(f"s{k}" for k in range(300))], ["y"]))
    said = refusal(tmp_path, model(nodes, {"d": I64([2**18])}))
    assert said.endswith(
        "the constants computed so far take more than 256 MiB; store them as weights, or compute them from "
        "the inputs"
    )


def loops(depth: int, trip: int) -> onnx.ModelProto:
    def body(level: int) -> onnx.GraphProto:
        value = helper.make_node("Relu", [f"v{level}"], [f"w{level}"])
        if level + 1 < depth:
            value = helper.make_node("Loop", ["n", "t", f"v{level}"], [f"w{level}"], body=body(level + 1))
        nodes = [helper.make_node("Identity", [f"c{level}"], [f"d{level}"]), value]
        info = helper.make_tensor_value_info
        given = [
            info(f"i{level}", TensorProto.INT64, []), info(f"c{level}", TensorProto.BOOL, []),
            info(f"v{level}", TensorProto.FLOAT, [1, 4]),
        ]  # fmt: skip
        ends = [info(f"d{level}", TensorProto.BOOL, []), info(f"w{level}", TensorProto.FLOAT, [1, 4])]
        return helper.make_graph(nodes, f"b{level}", given, ends)

    node = helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body(0))
    proto = model([node], {"n": I64(trip), "t": np.array(True)})
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]))
    return proto


def test_loops_in_loops_become_no_more_nodes_than_the_budget_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_budget, "MADE_NODES", 500)
    path = tmp_path / "m.onnx"
    path.write_bytes(loops(12, 2).SerializeToString())
    opened = open_model(path)
    run_passes(opened)
    nodes = list(opened.graph.all_nodes())
    assert len(nodes) < 1000
    assert any(node.op_type == "Loop" for node in nodes)


def test_time_is_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_budget, "SECONDS", 0.0)
    assert refusal(tmp_path, model([one("Relu", "x")])) == (
        "m.onnx: inferring its shapes takes more than 0 s of CPU time, the limit for a model; export it "
        "with fewer nodes, loops and branches"
    )


def branches(count: int) -> onnx.ModelProto:
    def branch(op: str, given: str, name: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node(op, [given], [name])], name, [], [onnx.ValueInfoProto(name=name)]
        )

    names = ["x", *(f"v{k}" for k in range(count - 1)), "y"]
    nodes = [
        helper.make_node(
            "If", ["c"], [b], then_branch=branch("Relu", a, f"t{k}"), else_branch=branch("Neg", a, f"e{k}")
        )
        for k, (a, b) in enumerate(pairwise(names))
    ]
    return model(nodes, {"c": np.array(True)})


def test_ifs_take_calls_in_proportion_to_their_number(tmp_path: Path) -> None:
    def calls(count: int) -> int:
        path = tmp_path / f"{count}.onnx"
        path.write_bytes(branches(count).SerializeToString())
        opened = open_model(path)
        called = [0]

        def count_call(*_: object) -> None:
            called[0] += 1

        sys.setprofile(count_call)
        try:
            run_passes(opened)
        finally:
            sys.setprofile(None)
        return called[0]

    # Quadratic: 64 times; in proportion: 8.
    assert calls(320) < 12 * calls(40)


def test_a_node_with_too_many_inputs(tmp_path: Path) -> None:
    node = helper.make_node("Sum", ["x"] * 5000, ["y"], name="n")
    assert refusal(tmp_path, model([node])) == (
        "m.onnx: node n: has 5000 inputs and 1 outputs; at most 4096 of each are supported"
    )


def test_what_engines_say_moves_no_cursor() -> None:
    assert str(EngineError("node a\x1b[2J\r\u202eb failed\n  \x9b1A")) == (
        "node a\\x1b[2J\\r\\u202eb failed\n  \\x9b1A"
    )
    finding = Finding("EK1001", "error", "tflite", "n\x1b[2J", "Relu", "no\x07 form")
    assert as_lines([finding]) == ["  EK1001  n\\x1b[2J  Relu  no\\x07 form"]
    assert finding.as_json()["node"] == "n\\x1b[2J"


def test_the_engines_own_message_comes_escaped(tmp_path: Path) -> None:
    """A custom op with ESC in its name passes the checks; ONNX Runtime's refusal names it."""
    from edgekit.compiler.model.reference import Reference

    proto = model([helper.make_node("e\x1b[31m", ["x"], ["y"], domain="d")])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]))
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(EngineError) as caught:
        Reference(open_model(path))
    assert "e\\x1b[31m" in str(caught.value)
    assert "\x1b" not in str(caught.value)
