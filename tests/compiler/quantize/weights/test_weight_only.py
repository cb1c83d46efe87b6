from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of, producer_of
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.target.quant_rules import OpRule, Rules, WeightForm
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort

RULES = Rules(
    "anything",
    "uint8",
    False,
    (
        OpRule("Conv", "own", "", (0,), 1, 0, bias=2),
        OpRule("Gemm", "own", "", (0,), 1, 0, bias=2, where=(("transB", (1,)),)),
        OpRule("MatMul", "own", "", (0,), 1, 1, weight_ranks=(2,)),
        OpRule("Relu", "own", ""),
    ),
    bias="int32",
    pair_limit=128,
)
EVERYTHING = WeightForm("int8-weights", ("Conv", "Gemm", "MatMul"), "")


@pytest.fixture
def model(tmp_path: Path) -> ir.Model:
    found = open_model(models.dense_network(tmp_path), {})
    run_passes(found)
    return found


def stored(model: ir.Model) -> dict[str, str]:
    """Node -> the element type that its weights are stored in."""
    weighty = [node for node in model.graph if node.op_type in ("Conv", "Gemm", "MatMul")]
    found = {}
    for node in weighty:
        pair = producer_of(node.inputs[1], "DequantizeLinear")
        array = array_of(pair.inputs[0] if pair else node.inputs[1])
        assert array is not None
        found[str(node.outputs[0].name)] = str(array.dtype)
    return found


def test_large_weights_are_stored_and_nothing_else(model: ir.Model) -> None:
    made, names = with_stored_weights(model, RULES, EVERYTHING, [])
    kept = {"y": "float32"}
    assert stored(made) == dict.fromkeys(names, "int8") | kept
    assert len(names) == 4
    assert not any(node.op_type == "QuantizeLinear" for node in made.graph)
    assert stored(model) == dict.fromkeys(stored(made), "float32")  # the model is as it was


@pytest.mark.parametrize(
    ("form", "ops"),
    [
        (WeightForm("int8-dynamic", ("Gemm", "MatMul"), ""), ["Gemm", "MatMul"]),
        (WeightForm("int8-dynamic", ("Conv",), "", grouped=False), ["Conv"]),
        (WeightForm("int8-weights", ("ConvTranspose",), ""), []),
    ],
)
def test_a_form_says_which(model: ir.Model, form: WeightForm, ops: list[str]) -> None:
    made, names = with_stored_weights(model, RULES, form, [])
    nodes = {str(node.outputs[0].name): node.op_type for node in made.graph}
    assert sorted(nodes[name] for name in names) == ops


def test_weights_are_off_by_half_a_step_at_most(model: ir.Model) -> None:
    before = {n.outputs[0].name: array_of(n.inputs[1]) for n in model.graph if n.inputs[1:]}
    made, names = with_stored_weights(model, RULES, EVERYTHING, [])
    nodes = [n for n in made.graph if n.outputs[0].name in names]
    assert len(nodes) == len(names) > 0
    for node in nodes:
        pair, name = producer_of(node.inputs[1], "DequantizeLinear"), node.outputs[0].name
        assert pair is not None
        integers, scale, real = array_of(pair.inputs[0]), array_of(pair.inputs[1]), before[name]
        assert integers is not None
        assert scale is not None
        assert real is not None
        axis = pair.attributes["axis"].as_int()
        steps = scale.reshape([-1 if a == axis else 1 for a in range(integers.ndim)])
        assert np.all(np.abs(integers * steps - real) <= steps * 0.5001)


def test_only_integer_products_keep_to_the_limit_of_their_kernels(model: ir.Model) -> None:
    def highest(form: WeightForm) -> int:
        made, _ = with_stored_weights(model, RULES, form, [])
        arrays = [array_of(n.inputs[0]) for n in made.graph if n.op_type == "DequantizeLinear"]
        return max(int(np.abs(array).max()) for array in arrays if array is not None)

    def pairs(form: WeightForm) -> int:
        """The largest sum of two weights that meet in a kernel."""
        made, _ = with_stored_weights(model, RULES, form, [])
        product = next(n for n in made.graph if n.op_type == "MatMul" and n.outputs[0].name != "y")
        pair = producer_of(product.inputs[1], "DequantizeLinear")
        array = array_of(pair.inputs[0]) if pair else None
        assert array is not None
        both = array[0::2].astype(int) + array[1::2]
        return int(np.abs(both).max())

    float_form, integer_form = EVERYTHING, WeightForm("int8-dynamic", ("Gemm", "MatMul"), "")
    assert highest(float_form) == 127
    assert pairs(float_form) > 128 >= pairs(integer_form)


def test_samples_make_it_better(model: ir.Model) -> None:
    rng = np.random.default_rng(1)
    mix = rng.normal(0, 1, (8 * 8 * 8, 6))  # inputs of few dimensions, as real ones are

    def samples(count: int) -> list[dict[str, np.ndarray]]:
        return [
            {"x": (mix @ rng.normal(0, 1, 6)).reshape(1, 8, 8, 8).astype(np.float32)} for _ in range(count)
        ]

    fit, prove = samples(16), samples(8)
    reference = Reference(model)
    expected = [reference.run(sample)["y"] for sample in prove]

    def snr_db(of: ir.Model) -> float:
        made = Reference(of)
        found = compare(expected, [made.run(sample)["y"] for sample in prove], 0).snr_db
        assert found is not None
        return found

    nearest, fitted = (snr_db(with_stored_weights(model, RULES, EVERYTHING, given)[0]) for given in ([], fit))
    assert nearest > 25
    assert fitted > nearest + 3
