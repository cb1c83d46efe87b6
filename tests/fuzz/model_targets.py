"""Models: one node of a random op, with random attributes and extreme constants."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import TensorProto, helper, numpy_helper

from edgekit import check
from edgekit.errors import EdgeKitError
from tests.fuzz.target import READ, Target, refused

EXTREMES = (0, 1, 2, 3, 4, -1, -2, 7, 1000, -1000, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf"), 1e-45, 3e38, 1e12, 2.0)
OPSETS = (11, 13, 17, 20, 21, 23)
WORDS = ("constant", "reflect", "linear", "nearest", "SAME_UPPER", "VALID", "DCR", "floor", "add", "x")
TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
    "tensor(int16)": np.int16, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64, "tensor(bool)": np.bool_,
}  # fmt: skip


def models(folder: Path) -> dict[str, Target]:
    path = folder / "case.onnx"

    def read(content: bytes) -> str:
        path.write_bytes(content)
        try:
            check(path, ["ort"], trusted=True)
        except EdgeKitError as problem:
            return refused(problem)
        return READ

    return {"model of one node": Target(40, lambda draw: one_node_model(draw).SerializeToString(), read)}


def one_node_model(rng: random.Random) -> onnx.ModelProto:
    """Return a model of one node, each of whose inputs is a weight or an input of the model."""
    opset = rng.choice(OPSETS)
    schema = _schema(rng, opset)
    bound: dict[str, Any] = {}
    names, weights, inputs = [], [], []
    rank = rng.choice((0, 1, 1, 2, 3, 3, 4, 4))
    shape = [rng.choice((1, 2, 2, 3, 4)) for _ in range(rank)]
    for index, formal in enumerate(_formal(rng, schema)):
        if formal is None:
            names.append("")
            continue
        kind = bound.setdefault(formal.type_str, _type(rng, schema, formal))
        dims = shape
        if rng.random() >= 0.6:
            dims = [rng.choice((1, 1, 2, 4)) for _ in range(rng.choice((0, 1, 2)))]
        names.append(f"w{index}")
        if rng.random() < (0.4 if index == 0 else 0.75):
            weights.append(numpy_helper.from_array(_array(rng, kind, dims), names[-1]))
        else:
            dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
            inputs.append(helper.make_tensor_value_info(names[-1], dtype, dims))
    while names and not names[-1]:
        names.pop()
    outputs = [f"o{k}" for k in range(max(schema.min_output, 1))]
    node = helper.make_node(schema.name, names, outputs)
    for name, known in sorted(schema.attributes.items()):
        if known.required or rng.random() < 0.4:
            attribute = _attribute(rng, name, known)
            if attribute is not None:
                node.attribute.append(attribute)
    inputs = inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    nodes, ends = [node], [onnx.ValueInfoProto(name=name) for name in outputs]
    if all(name in {w.name for w in weights} for name in names if name) and rng.random() < 0.7:
        nodes.append(helper.make_node("Identity", [inputs[0].name], ["y"]))
        ends = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph(nodes, "g", inputs, ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _schema(rng: random.Random, opset: int) -> Any:
    names = sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain})
    while True:
        try:
            schema = onnx.defs.get_schema(rng.choice(names), opset)
        except onnx.defs.SchemaError:
            continue
        if not schema.deprecated:
            return schema


def _formal(rng: random.Random, schema: Any) -> Iterator[Any]:
    options = onnx.defs.OpSchema.FormalParameterOption
    for formal in schema.inputs:
        if formal.option == options.Optional and rng.random() < 0.4:
            yield None
        elif formal.option == options.Variadic:
            yield from [formal] * rng.choice((1, 2, 2, 3))
        else:
            yield formal


def _type(rng: random.Random, schema: Any, formal: Any) -> Any:
    allowed = next(
        (list(c.allowed_type_strs) for c in schema.type_constraints if c.type_param_str == formal.type_str),
        [formal.type_str],
    )
    usual = [TYPES[text] for text in allowed if text in TYPES] or [np.float32]
    return np.float32 if np.float32 in usual and rng.random() < 0.4 else rng.choice(usual)


def _array(rng: random.Random, kind: Any, dims: list[int]) -> np.ndarray[Any, Any]:
    count = int(np.prod(dims, dtype=np.int64))
    dtype = np.dtype(kind)
    mild = rng.random() < 0.5
    if dtype.kind == "b":
        numbers: list[Any] = [rng.random() < 0.5 for _ in range(count)]
    elif dtype.kind == "f":
        numbers = [rng.choice(FLOATS) if not mild else rng.uniform(-2, 2) for _ in range(count)]
    else:
        info = np.iinfo(dtype)
        given = range(4) if mild else EXTREMES
        numbers = [min(max(rng.choice(given), int(info.min)), int(info.max)) for _ in range(count)]
    with np.errstate(over="ignore"):
        return np.array(numbers, dtype).reshape(dims)


def _attribute(rng: random.Random, name: str, known: Any) -> onnx.AttributeProto | None:
    given: Sequence[int] = range(4) if rng.random() < 0.4 else EXTREMES
    match known.type.name:
        case "INT":
            return helper.make_attribute(name, rng.choice(given))
        case "FLOAT":
            return helper.make_attribute(name, rng.choice(FLOATS))
        case "STRING":
            default = known.default_value.s.decode() if known.default_value.name else ""
            text = default if default and rng.random() < 0.5 else rng.choice(WORDS)
            return helper.make_attribute(name, text)
        case "INTS":
            return helper.make_attribute(name, [rng.choice(given) for _ in range(rng.choice((1, 2, 4)))])
        case "FLOATS":
            return helper.make_attribute(name, [rng.choice(FLOATS) for _ in range(rng.choice((1, 2)))])
        case "TENSOR":
            return helper.make_attribute(name, numpy_helper.from_array(np.array([1], np.float32)))
    return None
