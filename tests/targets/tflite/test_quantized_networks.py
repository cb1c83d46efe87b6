"""Quantized networks on photographs: all on integers, and the answers that ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_tflite.quant_rules import rules

from edgekit.compiler.evaluate.samples import Sample, read_files
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.processing import load_card
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array, TensorSpec
from tests.targets.tflite.running import compiled, ops_of, ran, snr_db

CARDS = Path(__file__).resolve().parents[3] / "samples" / "cards"
NEAREST = Recipe(rounding="nearest", bias_correction=False)


def photographs(shared: Path, name: str, model: ir.Model, count: int) -> list[Sample]:
    """The first photographs of coco128/val, as the card of the network prepares them."""
    specs = []
    for value in model.graph.inputs:
        assert value.dtype is not None
        shape = tuple(int(str(n)) for n in value.shape or ())
        specs.append(TensorSpec(str(value.name), value.dtype.numpy().name, shape))
    files = sorted((shared / "data" / "coco128" / "val").rglob("*.jpg"))[:count]
    return list(read_files(files, specs, load_card(CARDS / f"{name}.toml")).arrays)


def by_engine(content: bytes) -> Callable[[Array], Array]:
    """A .tflite file with one input and one output, as a function."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    target = interpreter.get_output_details()[0]["index"]

    def run(x: Array) -> Array:
        interpreter.set_tensor(source, x)
        interpreter.invoke()
        return np.array(interpreter.get_tensor(target))

    return run


@pytest.mark.needs_shared
@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize(
    ("name", "size", "ops", "equal"),
    [
        ("resnet8_cifar10_int8_qdq", 32, {"ADD": 3, "CONV_2D": 9}, 0.85),
        ("vww_96_int8", 96, {"CONV_2D": 14, "DEPTHWISE_CONV_2D": 13}, 0.9),
    ],
)
def test_a_network_with_pairs_of_its_own_is_all_on_integers(
    name: str, size: int, ops: dict[str, int], equal: float, shared: Path
) -> None:
    model = open_model(shared / "models" / f"{name}.onnx", {"input_1_int8": (1, size, size, 3)})
    reference = Reference(model)
    samples = photographs(shared, name, model, 48)
    expected = np.array([reference.run(sample)["Identity_int8"][0] for sample in samples]).astype(int)
    run_passes(model)
    artifact = compiled(model)
    assert ops_of(artifact) == {**ops, "FULLY_CONNECTED": 1, "MEAN": 1, "RESHAPE": 1, "SOFTMAX": 1}
    assert artifact.facts["float_islands"] == []
    assert artifact.facts["requantizations"] == []
    assert artifact.facts["tables"] == []
    assert [row["op"] for row in artifact.facts["outside_xnnpack"]] == ["SOFTMAX of int8"]
    ours = np.array([ran(artifact, sample)["Identity_int8"][0] for sample in samples])
    assert np.mean(ours.argmax(1) == expected.argmax(1)) >= 0.97
    assert np.mean(ours.astype(int) == expected) >= equal
    origin = shared / "models" / f"{name}.tflite"
    if origin.exists():  # what the network was converted from: the same kernels, the same numbers
        answer = by_engine(origin.read_bytes())
        assert all(
            np.array_equal(answer(s["input_1_int8"])[0], y) for s, y in zip(samples, ours, strict=True)
        )


@pytest.mark.needs_shared
@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_yolox_nano_is_requantized_nowhere(shared: Path) -> None:
    model = open_model(shared / "models" / "yolox_nano.onnx")
    run_passes(model)
    target = rules(find_profile("tflite"))
    samples = photographs(shared, "yolox_nano", model, 2)
    plan = place(model, target, observe(model, samples), NEAREST)
    quantized = emit(model, optimize(model, plan, target, samples, NEAREST), target)
    artifact = compiled(quantized)
    facts = artifact.facts
    assert facts["requantizations"] == []
    assert facts["outside_xnnpack"] == []
    assert len(facts["transposes"]) == 1
    assert facts["ops"]["QUANTIZE"] == 1
    assert [row["op"] for row in facts["float_islands"]] == [
        "Sigmoid"
    ]  # the head, which is float by its rule
    expected = Reference(quantized).run(samples[0])["output"]
    # One step of 256 here and there; the weights' rounding costs four times as much.
    assert snr_db(expected, ran(artifact, samples[0])["output"]) > 18
