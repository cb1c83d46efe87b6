"""Products of integers: as emulated, and exact sums."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgekit_ort.linear_layers import PAIR_LIMIT, with_integer_products
from edgekit_ort.quant_rules import rules

from edgekit.compiler.model.onnx_file import open_model, save_model
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from tests.fixtures import models
from tests.targets.engine_trial import profile, put_down
from tests.targets.ort.emulated_products import compiled_product, largest_error, needs_emulator

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


IN_THE_EMULATOR = """
import sys
from pathlib import Path
import numpy as np
from edgekit.system import cpu
cpu.instruction_sets = lambda: ("avx2",)  # /proc/cpuinfo is the host's
from edgekit_ort.run import open_runner
from edgekit.tensor_spec import TensorSpec
folder, wide = Path(sys.argv[1]), sys.argv[2] == "wide"
ends = [TensorSpec(name, "float32", shape) for name, shape in (("x", (4, 384)), ("y", (4, 64)))]
runner = open_runner({"model.onnx": folder / "model.onnx"}, ends[:1], ends[1:], {"wide_sums": wide}, 1)
np.save(folder / "y.npy", runner.run({"x": np.load(folder / "x.npy")})["y"])
"""


@pytest.mark.parametrize(
    ("largest", "wide"), [(127, True), (PAIR_LIMIT // 2 + 1, True), (PAIR_LIMIT // 2, False)]
)
def test_the_artifact_says_whether_pairs_are_too_large(largest: int, wide: bool, tmp_path: Path) -> None:
    artifact, _ = compiled_product(tmp_path, largest)
    assert ("wide_sums" in artifact.options) is wide


@needs_emulator
def test_sums_are_exact_without_vnni(tmp_path: Path) -> None:
    artifact, weights = compiled_product(tmp_path, 127)
    put_down(artifact, tmp_path)
    off = {kind: largest_error(tmp_path, weights, IN_THE_EMULATOR, kind) for kind in ("narrow", "wide")}
    assert off["wide"] < 0.001
    assert off["narrow"] > 0.003  # the emulated processor does saturate
