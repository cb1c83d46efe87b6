"""One-node models of random ops, attributes and extreme constants, opened in child processes.

    python -m tests.compiler.model.fuzz_models 22000 --seed 1    # deaths, hangs, tracebacks, with seeds

A batch of seeds is one child with a limit on memory and time; one that dies or hangs is counted with the seed
that it was at, and the batch goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import TensorProto, helper, numpy_helper

MEMORY_BYTES = 6 * 2**30
SECONDS = 20
BATCH = 500

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


@dataclass
class Found:
    """What a run saw: how many models, how many of them opened, and the seeds of the rest by kind."""

    models: int = 0
    opened: int = 0
    deaths: dict[int, str] = field(default_factory=dict)
    hangs: dict[int, str] = field(default_factory=dict)
    tracebacks: dict[int, str] = field(default_factory=dict)


def one_node_model(seed: int) -> onnx.ModelProto:
    """The model of a seed: one node, each input a weight or an input of the model."""
    rng = random.Random(seed)
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


def run_batch(first: int, last: int) -> None:
    """In the child: open each seed's model, and say on stdout where it is and what came of it."""
    from edgekit.compiler.model.onnx_file import open_model
    from edgekit.compiler.passes import run_passes
    from edgekit.errors import EdgeKitError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for seed in range(first, last):
            model = one_node_model(seed)
            path.write_bytes(model.SerializeToString())
            print(f"at {seed} {model.graph.node[0].op_type}", flush=True)
            signal.alarm(SECONDS)  # kills: a hang inside an engine answers to nothing else
            try:
                run_passes(open_model(path))
                print("opened", flush=True)
            except EdgeKitError as refusal:
                if any(ord(c) < 32 and c != "\n" for c in str(refusal)):
                    print("traceback control character in the message", flush=True)
            except BaseException as problem:
                print("traceback " + json.dumps(f"{type(problem).__name__}: {problem}"[:200]), flush=True)
            signal.alarm(0)


def fuzz(count: int, seed: int) -> Found:
    """Open ``count`` models from ``seed`` on, in children."""
    found, at, end = Found(), seed, seed + count
    while at < end:
        last = min(at + BATCH, end)
        child = subprocess.run(
            [sys.executable, "-m", "tests.compiler.model.fuzz_models", "--batch", str(at), str(last)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=BATCH * SECONDS,
            check=False,
        )
        op = ""
        for line in child.stdout.splitlines():
            word, _, rest = line.partition(" ")
            if word == "at":
                number, op = rest.split()
                at, found.models = int(number), found.models + 1
            elif word == "opened":
                found.opened += 1
            else:
                found.tracebacks[at] = f"{op}: {rest}"
        if not op:
            raise RuntimeError(f"the child at seed {at} did not begin: exit status {child.returncode}")
        if child.returncode == -signal.SIGALRM:
            found.hangs[at] = op
        elif child.returncode:
            found.deaths[at] = f"{op}: exit status {child.returncode}"
        at += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=22_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.batch:
        run_batch(*given.batch)
        return
    found = fuzz(given.count, given.seed)
    print(
        f"{found.models} models, {found.opened} opened, {len(found.deaths)} deaths, {len(found.hangs)} hangs,"
        f" {len(found.tracebacks)} tracebacks"
    )
    for kind in ("deaths", "hangs", "tracebacks"):
        for number, story in getattr(found, kind).items():
            print(f"  {kind[:-1]} {number} {story}")


if __name__ == "__main__":
    main()
