"""Products of integers on processors without VNNI, which QEMU emulates: their sums are exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgekit_ort.linear_layers import PAIR_LIMIT

from tests.targets.engine_trial import put_down
from tests.targets.ort.emulated_products import compiled_product, largest_error, needs_emulator

pytestmark = pytest.mark.needs_ort

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
