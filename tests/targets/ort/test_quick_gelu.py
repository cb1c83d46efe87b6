"""SiLU behind integers is one node, and the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_ort.quant_rules import rules
from edgekit_ort.quick_gelu import with_quick_gelu

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen, with_weights

pytestmark = pytest.mark.needs_ort


def test_behind_integers_only(tmp_path: Path) -> None:
    g = Graph({"x": (1, 4, 8, 8)})
    first = g.conv("x", 4, 4)
    silu = g("Mul", first, g("Sigmoid", first))
    soft = g("Softmax", silu)
    beside = g("Mul", soft, g("Sigmoid", soft))
    model = g.model(tmp_path, g.conv(silu, 4, 4), beside)
    assert with_quick_gelu(model) is model
    given = rules(find_profile("ort"))
    made = emit(model, with_weights(model, place(model, given, seen(model), NEAREST), given), given)
    before = save_model(made)
    written = with_quick_gelu(made)
    assert [node.op_type for node in written.graph].count("QuickGelu") == 1
    assert [node.op_type for node in written.graph].count("Sigmoid") == 1
    assert save_model(made) == before
    x = samples_for(model)[0]
    exact, ours = Reference(made).run(x), Reference(written).run(x)
    step = max(float(np.abs(value).max()) for value in exact.values()) / 255
    assert all(np.abs(exact[name] - ours[name]).max() <= 2 * step for name in exact)
