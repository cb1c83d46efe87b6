"""The bytes: readable by the schema, aligned, deterministic, of the lowest versions that will do."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_tflite import assembly
from edgekit_tflite.compile import FILE
from edgekit_tflite.flatbuffer import OPTIONS, Program, pack
from edgekit_tflite.graph import Graph, Op, Tensor, TensorQuantization
from edgekit_tflite.kernel_types import KERNEL_TYPES
from edgekit_tflite.op_versions import VERSIONS, op_version
from edgekit_tflite.records import unpacked
from edgekit_tflite.schema import NUMBERS

from edgekit.tensor_spec import Content
from tests.targets.tflite.running import compiled, model_of, with_weights


def small() -> Graph:
    """y = fully_connected(x) with weights of 3 x 5."""
    graph = Graph()
    x = graph.add_tensor(Tensor("x", (2, 5), "float32"))
    w = graph.add_tensor(Tensor("w", (3, 5), "float32", data=np.arange(15, dtype=np.float32).reshape(3, 5)))
    y = graph.add_tensor(Tensor("y", (2, 3), "float32"))
    options = {"fused_activation_function": "RELU6", "keep_num_dims": False}
    graph.add_op(Op("FULLY_CONNECTED", (x, w, -1), (y,), options))
    graph.inputs, graph.outputs = [x], [y]
    return graph


def read(data: Content) -> Any:
    return unpacked(bytes(data), "Model")


def test_what_is_written_is_read() -> None:
    data = pack(small(), ["x"], ["y"])
    assert data[4:8] == b"TFL3"
    model = read(data)
    assert model.version == 3
    assert model.buffers[0].data is None
    subgraph = model.subgraphs[0]
    assert [t.name for t in subgraph.tensors] == [b"x", b"w", b"y"]
    assert all(t.hasRank for t in subgraph.tensors)
    assert list(subgraph.operators[0].inputs) == [0, 1, -1]
    relu6 = NUMBERS["ActivationFunctionType"]["RELU6"]
    assert subgraph.operators[0].builtinOptions.fusedActivationFunction == relu6
    code = model.operatorCodes[0]
    assert (code.builtinCode, code.deprecatedBuiltinCode, code.version) == (9, 9, 6)
    signature = model.signatureDefs[0]
    assert signature.signatureKey == b"serving_default"
    assert [(t.name, t.tensorIndex) for t in signature.inputs] == [(b"x", 0)]
    assert [(t.name, t.tensorIndex) for t in signature.outputs] == [(b"y", 2)]
    weights = np.array(model.buffers[1].data, np.uint8).view(np.float32)
    assert np.array_equal(weights, np.arange(15, dtype=np.float32))


def test_weights_are_aligned() -> None:
    data = pack(small(), ["x"], ["y"])
    assert bytes(data).index(np.arange(15, dtype=np.float32).tobytes()) % 64 == 0


def test_the_same_graph_gives_the_same_bytes() -> None:
    assert pack(small(), ["x"], ["y"]) == pack(small(), ["x"], ["y"])


def test_codes_beyond_127_say_so_in_the_old_field() -> None:
    graph = Graph()
    x = graph.add_tensor(Tensor("x", (2,), "float32"))
    y = graph.add_tensor(Tensor("y", (2,), "float32"))
    graph.add_op(Op("GELU", (x,), (y,), {"approximate": True}))
    graph.inputs, graph.outputs = [x], [y]
    code = read(pack(graph, ["x"], ["y"])).operatorCodes[0]
    assert (code.builtinCode, code.deprecatedBuiltinCode) == (NUMBERS["BuiltinOperator"]["GELU"], 127)


def test_an_option_that_the_table_does_not_have_is_a_mistake() -> None:
    graph = small()
    graph.ops[0] = Op("FULLY_CONNECTED", (0, 1, -1), (2,), {"stride_h": 1, "keep_num_dims": False})
    with pytest.raises(ValueError, match=r"^FULLY_CONNECTED has no option stride_h$"):
        pack(graph, ["x"], ["y"])


@pytest.mark.needs_tflite
def test_what_is_too_large_for_a_flatbuffer_lies_outside_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ai_edge_litert.interpreter import Interpreter

    inside = pack(small(), ["x"], ["y"])
    monkeypatch.setattr(assembly, "INSIDE_LIMIT_BYTES", 1000)
    outside = pack(small(), ["x"], ["y"])
    assert outside == pack(small(), ["x"], ["y"])
    buffer = read(outside).buffers[1]
    weights = np.arange(15, dtype=np.float32).tobytes()
    assert (buffer.data, buffer.size, buffer.offset % 64) == (None, 60, 0)
    assert outside[buffer.offset : buffer.offset + buffer.size] == weights
    assert len(outside) == buffer.offset + buffer.size
    x, answers = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32), []
    (tmp_path / "outside.tflite").write_bytes(outside)
    for given in (
        {"model_content": inside},
        {"model_content": outside},
        {"model_path": str(tmp_path / "outside.tflite")},
    ):
        answers.append(Interpreter(**given).get_signature_runner()(x=x)["y"].copy())
    assert np.allclose(answers[0], np.clip(x @ np.arange(15).reshape(3, 5).T, 0, 6), atol=1e-5)
    assert all(np.array_equal(answers[0], answer) for answer in answers)


def test_large_constants_that_are_equal_are_stored_once() -> None:
    graph = small()
    large = np.random.default_rng(0).integers(-127, 127, (1024, 1024)).astype(np.int8)
    other = large.copy()
    other[-1, -1] = -128
    columns = np.ascontiguousarray(large.T).T  # as a view, the same content
    for name, content in (("a", large), ("b", columns), ("c", other)):
        scale = TensorQuantization((0.5,), (0,)) if name == "b" else None
        graph.add_tensor(Tensor(name, content.shape, "int8", data=content, quantization=scale))
    data = pack(graph, ["x"], ["y"])
    model = read(data)
    tensors = {tensor.name.decode(): tensor for tensor in model.subgraphs[0].tensors}
    assert tensors["a"].buffer == tensors["b"].buffer != tensors["c"].buffer
    assert tensors["a"].quantization is None
    assert list(tensors["b"].quantization.scale) == [0.5]
    for name, expected in (("b", large), ("c", other)):
        stored = np.array(model.buffers[tensors[name].buffer].data, np.uint8).view(np.int8)
        assert np.array_equal(stored.reshape(expected.shape), expected)
    assert len(data) < 2.1 * large.nbytes


@pytest.mark.needs_tflite
def test_several_programs_share_their_constants(tmp_path: Path) -> None:
    Interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter  # noqa: N806
    large = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    programs = []
    for rows in (2, 7):
        graph = small()
        graph.tensors[0].shape, graph.tensors[-1].shape = (rows, 5), (rows, 64)
        graph.tensors[1].data, graph.tensors[1].shape = large.copy(), large.shape
        programs.append(Program(graph, ["x"], ["y"], f"rows{rows}"))
    data = pack(programs[0].graph, ["x"], ["y"], others=programs[1:])
    model = read(data)
    assert [each.signatureKey for each in model.signatureDefs] == [b"serving_default", b"rows7"]
    assert model.subgraphs[0].tensors[1].buffer == model.subgraphs[1].tensors[1].buffer
    assert len(data) < 2 * large.nbytes
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    interpreter = Interpreter(model_path=str(path))
    for rows, key in ((2, "serving_default"), (7, "rows7")):
        x = np.random.default_rng(rows).normal(size=(rows, 5)).astype(np.float32)
        found = interpreter.get_signature_runner(key)(x=x)["y"]
        assert np.allclose(found, np.clip(x @ large.T, 0, 6), atol=1e-5)


@pytest.mark.needs_tflite
def test_the_newer_runtime_finds_the_signature(tmp_path: Path) -> None:
    CompiledModel = pytest.importorskip("ai_edge_litert.compiled_model").CompiledModel  # noqa: N806

    path = tmp_path / "model.tflite"
    path.write_bytes(pack(small(), ["x"], ["y"]))
    model = CompiledModel.from_file(str(path))
    signatures = model.get_signature_list()
    assert signatures == {"serving_default": {"inputs": ["x"], "outputs": ["y"]}}
    inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
    x = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    inputs[0].write(x)
    model.run_by_index(0, inputs, outputs)
    expected = np.clip(x @ np.arange(15, dtype=np.float32).reshape(3, 5).T, 0, 6)
    assert np.allclose(outputs[0].read(6, np.float32).reshape(2, 3), expected, atol=1e-5)


def test_a_buffer_has_its_own_content_whatever_its_strides() -> None:
    graph = small()
    graph.tensors[1].data = np.arange(15, dtype=">f4").reshape(5, 3).T
    graph.add_tensor(Tensor("after", (3,), "int8", data=np.array([1, 2, 3], np.int8)))
    buffers = read(pack(graph, ["x"], ["y"])).buffers
    expected = np.arange(15, dtype=np.float32).reshape(5, 3).T
    assert np.array_equal(np.array(buffers[1].data, np.uint8).view("<f4").reshape(3, 5), expected)
    assert list(buffers[2].data) == [1, 2, 3]


def test_lowering_holds_no_more_than_the_file_beside_the_model() -> None:
    """What is allocated while a model is compiled: the file, and one of its weights at a time."""
    layers, width = 6, 700
    names = [f"w{i}" for i in range(layers)]
    body = "\n".join(f"y{i} = MatMul({f'y{i - 1}' if i else 'x'}, {name})" for i, name in enumerate(names))
    weights = ", ".join(f"float[{width}, {width}] {name}" for name in names)
    model = model_of(f"float[1, {width}] x", body, weights, f"y{layers - 1}")
    draw = np.random.default_rng(0)
    model = with_weights(model, {n: draw.standard_normal((width, width), np.float32) for n in names})
    tracemalloc.start()
    artifact = compiled(model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(artifact.files[FILE]) + 4 * width**2 + 3e6


def test_pruning_keeps_inputs_and_drops_what_nobody_reads() -> None:
    graph = small()
    dead = graph.add_tensor(Tensor("dead", (2, 3), "float32"))
    graph.add_op(Op("EXP", (2,), (dead,)))
    graph.add_tensor(Tensor("unused", (7,), "float32", data=np.zeros(7, np.float32)))
    unused_input = graph.add_tensor(Tensor("also", (1,), "float32"))
    graph.inputs.append(unused_input)
    pruned = graph.pruned()
    assert [t.name for t in pruned.tensors] == ["x", "w", "y", "also"]
    assert [op.code for op in pruned.ops] == ["FULLY_CONNECTED"]
    assert (pruned.inputs, pruned.outputs) == ([0, 3], [2])


def test_every_operator_has_its_tables() -> None:
    assert set(KERNEL_TYPES) == set(OPTIONS)
    assert set(VERSIONS) <= set(OPTIONS)
    for code, table in OPTIONS.items():
        assert code in NUMBERS["BuiltinOperator"]
        assert not table or table in NUMBERS["BuiltinOptions"]


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "expected"),
    [
        (Op("CONV_2D", (0, 1), ()), [(1, 8, 8, 4), (2, 3, 3, 4)], "float32", 1),
        (Op("CONV_2D", (0, 1), ()), [(1, 8, 8, 4), (2, 3, 3, 2)], "float32", 6),
        (Op("ADD", (0, 1), ()), [(2,), (2,)], "float32", 1),
        (Op("ADD", (0, 1), ()), [(2,), (2,)], "int8", 2),
        (Op("TRANSPOSE", (0,), ()), [(1, 2, 3, 4)], "float32", 1),
        (Op("TRANSPOSE", (0,), ()), [(1, 2, 3, 4, 5)], "float32", 4),
        (Op("RESIZE_BILINEAR", (0,), (), {"half_pixel_centers": True}), [(1, 2, 3, 4)], "float32", 3),
        (Op("RESIZE_BILINEAR", (0,), (), {"half_pixel_centers": False}), [(1, 2, 3, 4)], "float32", 1),
        (Op("DEQUANTIZE", (0,), ()), [(2,)], "float16", 3),
        (Op("EXP", (0,), ()), [(2,)], "float32", 1),
        (Op("TRANSPOSE_CONV", (0, 1, 2), ()), [(4,), (2, 3, 3, 4), (1, 8, 8, 4)], "float32", 1),
        (
            Op("TRANSPOSE_CONV", (0, 1, 2), (), {"fused_activation_function": "RELU"}),
            [(4,), (2, 3, 3, 4), (1, 8, 8, 4)],
            "float32",
            4,
        ),
    ],
)
def test_versions_are_the_lowest_that_say_it(
    op: Op, shapes: list[tuple[int, ...]], dtype: str, expected: int
) -> None:
    graph = Graph([Tensor("t", shape, dtype) for shape in shapes])
    assert op_version(graph, op) == expected


@pytest.mark.parametrize(
    ("code", "weights", "scales", "bias", "expected"),
    [
        ("CONV_2D", (2, 3, 3, 4), 2, True, 5),
        ("CONV_2D", (2, 3, 3, 4), 1, True, 2),
        ("CONV_2D", (1, 3, 3, 4), 1, True, 5),  # one output channel
        ("FULLY_CONNECTED", (2, 4), 2, True, 12),
        ("FULLY_CONNECTED", (2, 4), 2, False, 12),
        ("FULLY_CONNECTED", (2, 4), 1, True, 3),
        ("FULLY_CONNECTED", (2, 4), 1, False, 6),
    ],
)
def test_versions_of_float_data_and_int8_weights_depend_on_the_scales(
    code: str, weights: tuple[int, ...], scales: int, bias: bool, expected: int
) -> None:
    quantization = TensorQuantization((0.5,) * scales, (0,) * scales)
    tensors = [
        Tensor("x", (1, 8, 8, 4) if code == "CONV_2D" else (1, 4), "float32"),
        Tensor("w", weights, "int8", quantization=quantization),
        *([Tensor("b", (weights[0],), "float32")] if bias else []),
    ]
    op = Op(code, tuple(range(len(tensors))), (), {"keep_num_dims": False})
    assert op_version(Graph(tensors), op) == expected


def test_quantization_is_written() -> None:
    graph = Graph()
    x = graph.add_tensor(Tensor("x", (2,), "float32"))
    y = graph.add_tensor(Tensor("y", (2,), "int8", quantization=TensorQuantization((0.5,), (3,))))
    graph.add_op(Op("QUANTIZE", (x,), (y,)))
    graph.inputs, graph.outputs = [x], [y]
    tensor = read(pack(graph, ["x"], ["y"])).subgraphs[0].tensors[1]
    assert list(tensor.quantization.scale) == [0.5]
    assert list(tensor.quantization.zeroPoint) == [3]
