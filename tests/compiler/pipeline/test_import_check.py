"""The comparison of an imported model with its original: on what, and how close the two must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.compiler.evaluate.random_samples import random_arrays, sample_ranges
from edgekit.compiler.importers.contract import FrameworkOutputs, Importer
from edgekit.compiler.importers.conversion import Imported
from edgekit.compiler.model.onnx_file import open_bytes, signature
from edgekit.compiler.pipeline.import_check import ImportCheck, check_import
from edgekit.compiler.pipeline.variant_build import run_reference
from edgekit.errors import ModelError
from edgekit.tensor_spec import Array, TensorSpec

pytestmark = pytest.mark.needs_ort

Samples = Sequence[Mapping[str, Array]]

DOUBLED = """
<ir_version: 10, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y)
{
    y = Add(x, x)
}
"""
QUERIES = """
<ir_version: 10, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,2] y)
{
    zero = Constant <value = float {0.0}> ()
    two = Constant <value = int64[1] {2}> ()
    scores = Mul(x, zero)
    best, places = TopK(scores, two)
    y = GatherElements <axis = 1> (x, places)
}
"""
"""All scores are equal, as those of an untrained detector: the order of queries is the framework's own."""


def compared(
    text: str,
    run: Callable[[Array], Array],
    example: Mapping[str, Array] | None = None,
    own: bool = False,
    **options: Any,
) -> ImportCheck:
    """Compare a model with an original that ``run`` computes; ``own``: not by a framework's exporter."""
    data = onnx.parser.parse_model(text).SerializeToString()

    def answers(samples: Samples) -> FrameworkOutputs:
        return FrameworkOutputs("a framework", [{"y": run(sample["x"])} for sample in samples])

    importer = Importer("a format", (), lambda head, path: False, lambda source, options: None)  # type: ignore[arg-type, return-value]
    importer = importer._replace(answers=(lambda path, samples: answers(samples)) if own else None)
    tools = {"edgekit-sdk": "0.1", "exporter": "2.0"}
    imported = Imported(data, "m.bin", Path("m.bin"), "", importer, "fake", tools, (), "", answers, example)
    model = open_bytes(data, "m.bin")
    inputs, outputs = signature(model)
    samples = [{"x": np.arange(1, 5, dtype=np.float32)[None]}]
    return check_import(imported, model, run_reference(model, inputs, outputs, samples), **options)


RANDOM = (
    "the inputs were random: pass some that the model is made for, as samples or example_inputs. If the "
    "results differ on those too, the framework's exporter is wrong (exporter 2.0)"
)
YOURS = (
    "the framework's exporter is wrong on your inputs (exporter 2.0): try another version of it, or export "
    "the model to ONNX yourself and build the .onnx file"
)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"own": True}, "this is a bug of the importer: please report it with the model"),
        ({"are_random": True}, RANDOM),
        ({}, YOURS),
        ({"are_random": True, "example": {"x": np.full((1, 4), 7, np.float32)}}, YOURS),
    ],
)
def test_other_results_are_refused_with_what_to_do(options: dict[str, Any], advice: str) -> None:
    """Only EdgeKit's own conversions are to be reported to it."""
    with pytest.raises(ModelError) as error:
        compared(DOUBLED, lambda x: 2.001 * x, **options)
    assert str(error.value) == (
        "m.bin: the imported ONNX model gives other results than a framework:\n"
        f"  output y: SNR 66.0 dB; 100 dB is required\n  {advice}"
    )


def test_the_user_s_example_comes_before_random_inputs() -> None:
    seen: list[Array] = []

    def run(x: Array) -> Array:
        seen.append(x)
        return 2 * x

    example = {"x": np.full((1, 4), 7, np.float32)}
    assert compared(DOUBLED, run, example, are_random=True).samples == 1
    assert [float(x[0, 0]) for x in seen] == [7]
    compared(DOUBLED, run, example)
    assert [float(x[0, 0]) for x in seen] == [7, 1]  # samples of the user are not random


@pytest.mark.parametrize(
    "example", [{"x": np.zeros((2, 4), np.float32)}, {"x": np.zeros((1, 4), np.uint8)}, {"z": np.zeros(1)}]
)
def test_an_example_of_another_form_is_not_used(example: dict[str, Array]) -> None:
    assert compared(DOUBLED, lambda x: 2 * x, example, are_random=True).engine == "a framework"


def test_the_order_of_equal_scores_is_no_fault() -> None:
    assert compared(QUERIES, lambda x: x[:, :2]).engine == "a framework"
    assert compared(QUERIES, lambda x: x[:, 3:1:-1]).engine == "a framework"


def test_a_mask_of_tokens_leaves_something_to_attend_to() -> None:
    masks = [TensorSpec("attention_mask", dtype, (3, 8)) for dtype in ("int64", "bool")]
    others = [TensorSpec("token_type_ids", "int64", (3, 8)), TensorSpec("mask", "int64", (1, 1, 8, 8))]
    for spec in masks:
        for sample in random_arrays([spec], sample_ranges([spec], None, {}), count=20):
            mask = sample[spec.name]
            assert mask.dtype == np.dtype(spec.dtype)
            assert (np.diff(mask.astype(int), axis=1) <= 0).all()
            assert (mask[:, 0] == 1).all()
            assert (mask[:, -1] == 0).all()
    for spec in others:
        found = [sample[spec.name] for sample in random_arrays([spec], sample_ranges([spec], None, {}), 20)]
        assert any((np.diff(values, axis=-1) > 0).any() for values in found)
