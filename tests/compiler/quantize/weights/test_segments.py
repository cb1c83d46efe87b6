"""A stretch of the graph, run on every sample."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.quantize.recipe import QuantizationPlan
from edgekit.compiler.quantize.weights import segments


def test_outputs_of_one_sample_are_freed_before_the_next_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples' outputs of a large layer at once are what a build has no memory for."""

    class Outputs(list[Any]):
        """A list that a weak reference can point to."""

    class Session:
        last: weakref.ref[Outputs] | None = None

        def get_inputs(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name="x")]

        def run(self, fetched: list[str], feeds: dict[str, Any]) -> Outputs:
            assert self.last is None or self.last() is None
            outputs = Outputs([feeds["x"] + 1])
            self.last = weakref.ref(outputs)
            return outputs

    ort = SimpleNamespace(InferenceSession=lambda *args, **options: Session())
    monkeypatch.setattr(segments, "onnxruntime", lambda: ort)
    monkeypatch.setattr(segments, "session_options", lambda *args, **options: None)
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 23]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    kept = {"x": segments.SampleValues([np.full(2, each, np.float32) for each in range(3)])}
    plan = QuantizationPlan({}, frozenset())
    found = segments.run_segment(list(model.graph), plan, {}, kept, {"y": False}, 3)
    assert [array.tolist() for array in found["y"].arrays] == [[1, 1], [2, 2], [3, 3]]
