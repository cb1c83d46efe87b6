"""Cycles estimated under qemu: counted as expected, again the same, and used where nothing can be timed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.compiler.evaluate.arm import instructions as a64
from edgekit.compiler.evaluate.arm.emulator import EmulatedEngine
from edgekit.compiler.evaluate.arm.emulator_folder import emulator_folder
from edgekit.compiler.evaluate.arm.estimate import Estimate, Estimator
from edgekit.compiler.evaluate.arm.processors import PROCESSORS
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.target.build_target import resolve
from edgekit.target.contract import Artifact
from edgekit.target.installed_profiles import find_profile

pytestmark = [
    pytest.mark.needs_arm_counts,
    pytest.mark.needs_ort,
    pytest.mark.needs_tflite,
    pytest.mark.needs_shared,
    pytest.mark.slow,
]


def estimates(shared: Path, name: str, processor: str, runs: int = 1) -> list[Estimate]:
    """Of a network on LiteRT."""
    model, folder = open_model(shared / "models" / f"{name}.onnx"), emulator_folder()
    assert folder is not None
    inputs, outputs = signature(model)
    sample = {spec.name: spec.zeros() for spec in inputs}
    run_passes(model)
    target = resolve(find_profile("tflite"))
    artifact = target.compiler.compile_model(model, target.profile, "fp32")
    engine = EmulatedEngine(folder, PROCESSORS[processor], "tflite", inputs, outputs, sample)
    with closing(Estimator(engine, PROCESSORS[processor])) as estimator:
        return [estimator.estimate(artifact, 120.0) for _ in range(runs)]


def test_kernels_are_those_of_the_processor(shared: Path) -> None:
    a72, a76 = (estimates(shared, "vww_96_int8", name)[0] for name in ("cortex-a72", "cortex-a76"))
    assert a64.DOT not in a72.classes
    assert a72.classes[a64.WIDENING] > 100_000
    assert a76.classes[a64.DOT] > 100_000
    assert next(iter(a76.families)) == "qs8_qc8w_gemm"
    assert a76.cycles < a72.cycles


def test_counts_are_repeated(shared: Path) -> None:
    first, *others = estimates(shared, "vww_96_float", "cortex-a76", runs=3)
    # Not below what the multiplications take alone, two a cycle, and not far above.
    least = first.classes[a64.FMA_Q] / 2
    assert least < first.cycles < 1.5 * least
    for again in others:
        assert again.instructions == pytest.approx(first.instructions, rel=0.002)
        assert again.cycles == pytest.approx(first.cycles, rel=0.002)


def test_a_file_that_does_not_run_is_an_error_and_the_next_one_runs(shared: Path) -> None:
    folder = emulator_folder()
    assert folder is not None
    model = open_model(shared / "models" / "vww_96_float.onnx")
    inputs, outputs = signature(model)
    sample = {spec.name: spec.zeros() for spec in inputs}
    run_passes(model)
    target = resolve(find_profile("tflite"))
    good = target.compiler.compile_model(model, target.profile, "fp32")
    engine = EmulatedEngine(folder, PROCESSORS["cortex-a76"], "tflite", inputs, outputs, sample)
    with closing(engine):
        with pytest.raises(edgekit.EdgeKitError, match=r"^the run under qemu failed: "):
            engine.count_blocks(Artifact({"model.tflite": b"x"}, good.options), 60.0)
        with pytest.raises(edgekit.EdgeKitError, match=r"^the time limit for runs under qemu was reached$"):
            engine.count_blocks(good, 0.1)
        assert engine.count_blocks(good, 60.0)


def test_a_build_for_a_board_says_what_was_estimated(shared: Path) -> None:
    path = shared / "models" / "vww_96_float.onnx"
    rng = np.random.default_rng(0)
    samples = [{"input_1": rng.random((1, 96, 96, 3), np.float32)} for _ in range(16)]
    bundle = edgekit.build(path, targets=["rpi5"], precision="int8", samples=samples, force=True)
    (int8,) = (v for v in bundle.variants if v.precision.startswith("int8"))
    estimated = int8.evidence["estimated"]
    assert estimated["method"] == "instruction counts under qemu"
    assert estimated["processor"] == "Cortex-A76"
    assert 0.3 < estimated["ratio"] < 0.8
    assert f"estimated {estimated['ratio']:.2f}x the cycles of fp32 by instruction counts" in bundle.report
    tried = int8.evidence["search"]["tried"]
    assert all(row["ratio"] is None for row in tried)
    assert len({row["estimated_ratio"] for row in tried}) > 1
    assert np.isfinite([row["estimated_ratio"] for row in tried]).all()
