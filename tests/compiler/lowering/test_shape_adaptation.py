"""A quantized graph at another shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.shape_adaptation import at_shape, zero_padding
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import add_constant, array_of
from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.tensor_spec import Array
from tests.fixtures.encoder import WHOLE, encoder

pytestmark = pytest.mark.needs_ort


def canonical(folder: Path, length: int) -> ir.Model:
    model = open_model(encoder(folder / "encoder.onnx"), {"ids": (1, length), "mask": (1, length)})
    run_passes(model)
    return model


def constants(model: ir.Model) -> dict[str, Array]:
    found = {name: array_of(value) for name, value in model.graph.initializers.items()}
    return {name: array for name, array in found.items() if array is not None}


def test_what_was_made_of_the_longest_graph_is_brought_to_the_shorter(tmp_path: Path) -> None:
    longest, shorter = canonical(tmp_path, WHOLE), canonical(tmp_path, 4)
    made = longest.clone()
    name, array = next((n, a) for n, a in constants(made).items() if a.size == 64 * 64)
    made.graph.initializers[name].const_value = ir.tensor(array * np.float32(0.5), name=name)
    found = at_shape(made, longest, shorter)
    assert [spec.shape for ends in signature(found) for spec in ends] == [(1, 4), (1, 4), (1, 4, 64)]
    ids = np.arange(WHOLE, dtype=np.int64)[None]
    mask = (np.arange(WHOLE) < 4).astype(np.int64)[None]
    whole = Reference(made).run({"ids": ids, "mask": mask})["tokens"]
    short = Reference(found).run({"ids": ids[:, :4], "mask": mask[:, :4]})["tokens"]
    assert short == pytest.approx(whole[:, :4], abs=1e-5)
    other = Reference(shorter).run({"ids": ids[:, :4], "mask": mask[:, :4]})["tokens"]
    assert np.abs(short - other).max() > 1e-3  # by the changed weight


def test_a_constant_that_depends_on_the_length_in_another_way_is_refused(tmp_path: Path) -> None:
    longest, shorter = canonical(tmp_path, WHOLE), canonical(tmp_path, 4)
    made = longest.clone()
    name, array = next((n, a) for n, a in constants(made).items() if a.shape[-2:] == (WHOLE, 64))
    made.graph.initializers[name].const_value = ir.tensor(array[..., ::-1, :2].copy(), name=name)
    with pytest.raises(
        UsageError, match=f"constant {name} cannot be adapted to another shape; use fp32 or fp16"
    ):
        at_shape(made, longest, shorter)


def test_other_nodes_are_refused(tmp_path: Path) -> None:
    longest, shorter = canonical(tmp_path, WHOLE), canonical(tmp_path, 4)
    add_constant(shorter, np.zeros(1, np.float32), "unused")
    zero_padding(shorter, "mask", {"tokens": (1,)})
    with pytest.raises(
        UsageError,
        match=r"^the graph has different nodes at different shapes, so it cannot be quantized for all of "
        r"them; use fp32 or fp16, or build one shape$",
    ):
        at_shape(longest.clone(), longest, shorter)
