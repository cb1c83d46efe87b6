from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgekit_ort.linear_layers import with_integer_products
from edgekit_ort.quant_rules import rules

from edgekit.compiler.model.onnx_file import open_model, save_model
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from tests.fixtures import models
from tests.targets.engine_trial import profile

pytestmark = pytest.mark.needs_ort


def test_the_products_are_of_integers_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    model = open_model(models.dense_network(tmp_path), {})
    run_passes(model)
    found = rules(profile("ort"))
    stored, names = with_stored_weights(model, found, found.weight_forms[1], [])
    made = onnx.load_from_string(save_model(with_integer_products(stored)))
    onnx.checker.check_model(made, full_check=True)
    ops = Counter(node.op_type for node in made.graph.node)
    assert len(names) == 2
    assert (ops["MatMulInteger"], ops["DynamicQuantizeLinear"], ops["DequantizeLinear"]) == (2, 2, 0)
    assert (ops["Conv"], ops["Gemm"], ops["MatMul"]) == (2, 0, 1)
    floats = [t for t in made.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    assert not any(np.prod(t.dims) == 128 * 128 for t in floats)
    assert [value.name for value in made.graph.output] == ["y"]
