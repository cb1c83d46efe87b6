"""ONNX's own node cases, collected from the installed onnx package.

Of those whose inputs and outputs are numeric tensors. Inputs that say a shape, an axis, a count or a mode are
frozen to the constants that exporters write: a model whose shapes depend on its data is no case for a device.
What ONNX Runtime itself does not answer as the case expects is left out: ``expected.toml`` lists it under
``[reference.fails]``, as does every run of ``python -m tests.conformance.expectations``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from edgekit.compiler.model.reference import Reference
from edgekit.errors import EdgeKitError
from edgekit.system.formats.strict_tables import load_toml
from edgekit.tensor_spec import Array

EXPECTED = Path(__file__).with_name("expected.toml")

FROZEN: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Operator -> places of the inputs that are frozen."""
NUMERIC = frozenset("bfiu")
ROUNDING = ("DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QuantizeLinear")
"""What is on the border of two steps may go either way."""
HALF_SNR_DB = 55.0
"""float16 has 11 bits: one rounding leaves 74 dB or less, and engines round at other places."""


@dataclass(frozen=True)
class NodeCase:
    """One of ONNX's node cases; the same questions as of a ``Case``, and the answers that ONNX expects."""

    name: str
    source: onnx.ModelProto
    given: tuple[Any, ...]
    wanted: tuple[Any, ...]
    rtol: float
    atol: float
    frozen: frozenset[str] = frozenset()
    snr_db: float = 100.0
    steps: int = 0

    def model(self) -> onnx.ModelProto:
        """The model with what is frozen as weights, and static shapes on its inputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self.source)
        graph = model.graph
        for index, node in enumerate(graph.node):
            node.name = node.name or f"{node.op_type}_{index}"
        for value in list(graph.input):
            if value.name in self.frozen:
                graph.initializer.append(numpy_helper.from_array(self._arrays[value.name], value.name))
                graph.input.remove(value)
        for value in graph.input:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            for size in self._arrays[value.name].shape:
                shape.dim.add(dim_value=size)
        return model

    def feeds(self, seed: int) -> dict[str, Array]:
        """The case's inputs, whatever the seed: a second run shows what is kept between runs."""
        return {name: array for name, array in self._arrays.items() if name not in self.frozen}

    def expected(self) -> dict[str, Array]:
        names = [value.name for value in self.source.graph.output]
        return {name: np.asarray(array) for name, array in zip(names, self.wanted, strict=True)}

    @cached_property
    def _arrays(self) -> dict[str, Array]:
        names = [value.name for value in self.source.graph.input]
        return {name: np.asarray(array) for name, array in zip(names, self.given, strict=True)}


def answered() -> list[NodeCase]:
    """The cases that ONNX Runtime answers as ONNX expects."""
    table = load_toml(EXPECTED.read_text("utf-8"), EXPECTED.name, ValueError) if EXPECTED.exists() else {}
    fails = table.get("reference", {}).get("fails", {})
    return [case for case in collected() if case.name not in fails]


def reference_fails() -> dict[str, str]:
    """The cases that ONNX Runtime, without optimizations, does not answer so, and what it does instead."""
    fails = {}
    for case in collected():
        try:
            answers = Reference(ir.from_proto(case.model())).run(case.feeds(0))
        except EdgeKitError:
            fails[case.name] = "it does not run it"
            continue
        except Exception:  # a type that numpy or onnx-ir does not know
            fails[case.name] = "it is not read"
            continue
        for name, wanted in case.expected().items():
            got = answers[name]
            rtol, atol = max(case.rtol, 1e-3), max(case.atol, 1e-7)
            if got.dtype != wanted.dtype or got.shape != wanted.shape:
                fails[case.name] = "another type or shape"
            elif not np.allclose(
                got.astype(np.float64), wanted.astype(np.float64), rtol, atol, equal_nan=True
            ):
                fails[case.name] = "other numbers"
    return fails


def _frozen(graph: Any) -> frozenset[str]:
    names = {value.name for value in graph.input}
    read = {
        node.input[place]
        for node in graph.node
        for place in FROZEN.get(node.op_type, ())
        if place < len(node.input)
    }
    return frozenset(read & names)


@cache
def collected() -> tuple[NodeCase, ...]:
    """All cases of numeric tensors and one graph."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, for the overflows that some cases are about
        found: list[Any] = collect_testcases(None)
    frozen = {one.name: _frozen(one.model.graph) for one in found}
    cases = []
    for one in found:
        values = [*one.model.graph.input, *one.model.graph.output]
        arrays = [*one.data_sets[0][0], *one.data_sets[0][1]]
        tensors = all(value.type.HasField("tensor_type") for value in values)
        if not tensors or one.model.functions or len(arrays) != len(values):
            continue
        if not all(isinstance(a, np.ndarray | np.generic) and a.dtype.kind in NUMERIC for a in arrays):
            continue
        name = one.name.removeprefix("test_")
        inputs, outputs = one.data_sets[0]
        # An op written out as its function freezes what the op itself does.
        fixed = frozen.get(one.name.partition("_expanded")[0], frozenset()) | frozen[one.name]
        half = any(np.asarray(a).dtype == np.float16 for a in arrays)
        snr_db = HALF_SNR_DB if half else 100.0
        steps = int(any(node.op_type in ROUNDING for node in one.model.graph.node))
        cases.append(
            NodeCase(name, one.model, tuple(inputs), tuple(outputs), one.rtol, one.atol, fixed, snr_db, steps)
        )
    return tuple(cases)
