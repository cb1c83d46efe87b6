"""A pass on a model written as text: what it leaves, and that the answers are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.passes.fold_constants import fold_constants

Array = npt.NDArray[Any]
Pass = Callable[[ir.Model], bool]
Weight = Array | float | list[Any]


def model_of(body: str, opset: int = 23, **weights: Weight) -> ir.Model:
    """A model from the text of its graph, ``g (float[..] x) => (float[..] y) {...}``; shapes inferred, nodes
    named.

    ``weights`` are arrays for names that the graph uses and does not define; lists and numbers become
    float32.
    """
    names = {
        k: ir.tensor(np.asarray(v, None if isinstance(v, np.ndarray) else np.float32), name=k)
        for k, v in weights.items()
    }
    head, _, rest = body.partition("=>")
    declared = ", ".join(f"{_onnx_type(t)} {k}" for k, t in names.items())
    outputs, _, nodes = rest.partition("{")
    ml = f', "ai.onnx.ml" : {5 if "TreeEnsemble <" in nodes else 3}' if "ai.onnx.ml" in nodes else ""
    ml += ', "com.microsoft" : 1' if "com.microsoft" in nodes else ""
    text = f'<ir_version: 10, opset_import: ["" : {opset}{ml}]> {head} => {outputs} <{declared}> {{ {nodes}'
    model = ir.from_onnx_text(text if names else text.replace("<>", ""), initializers=list(names.values()))
    for index, node in enumerate(model.graph.all_nodes()):
        node.name = node.name or f"{node.op_type}_{index}"
    infer_shapes(model)
    return model


def _onnx_type(tensor: ir.TensorProtocol) -> str:
    dims = ",".join(str(d) for d in tensor.shape.numpy())
    return f"{tensor.dtype.name.lower()}[{dims}]"


def folded(body: str, opset: int = 23, **weights: Weight) -> ir.Model:
    """``model_of`` with its Constant nodes made weights, as the passes behind fold_constants see it."""
    model = model_of(body, opset, **weights)
    fold_constants(model)
    return model


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def answers(model: ir.Model, seed: int = 0) -> list[dict[str, Array]]:
    """Two answers of ONNX Runtime to random inputs, one of them large enough to reach every bound."""
    inputs, _ = signature(model)
    rng = np.random.default_rng(seed)
    session = Reference(model)
    results = []
    for scale in (1.0, 5.0):
        feeds = {}
        for spec in inputs:
            values = rng.standard_normal(spec.shape) * scale
            feeds[spec.name] = np.asarray(values > 0 if spec.dtype == "bool" else values).astype(spec.dtype)
        results.append(session.run(feeds))
    return results


def snr_db(want: Array, got: Array) -> float:
    """Signal to noise in dB, infinite for equal arrays."""
    a, b = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a)
    assert np.array_equal(a[~finite], b[~finite], equal_nan=True)
    noise = float(np.sum((a - b)[finite] ** 2))
    return np.inf if noise == 0 else 10 * float(np.log10(np.sum(a[finite] ** 2) / noise))


def assert_same(want: list[dict[str, Array]], model: ir.Model, minimum_db: float = 110) -> None:
    """Check that the model still gives these answers; an infinite limit means bit for bit."""
    for wanted, got in zip(want, answers(model), strict=True):
        assert list(wanted) == list(got)
        for name, array in wanted.items():
            assert (array.dtype, array.shape) == (got[name].dtype, got[name].shape)
            assert snr_db(array, got[name]) >= minimum_db, name


def rewritten(model: ir.Model, one: Pass, minimum_db: float = 110) -> list[str]:
    """Run the pass, check that it says whether it changed something, that it is done, and that the meaning is
    kept.

    Returns:
        The ops that are left, in order.
    """
    before, want, spec = save_model(model), answers(model), signature(model)
    changed = one(model)
    after = save_model(model)
    assert changed == (after != before), "the pass says otherwise than what it did"
    assert not one(model), "the pass finds more to do the second time"
    assert signature(model) == spec
    names = [node.name for node in model.graph.all_nodes()]
    assert len(set(names)) == len(names)
    assert_same(want, model, minimum_db)
    return ops(model)
