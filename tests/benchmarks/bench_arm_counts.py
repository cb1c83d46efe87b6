"""Instructions and estimated cycles of a network on ARM processors: fp32, and each placement of int8.

    python tests/benchmarks/bench_arm_counts.py MODEL.onnx --card CARD.toml --samples PHOTOS \\
        [--cpu cortex-a76] [--count 16] [--repeat 2] [--kernels]

Counted under qemu (``tests/arm/setup``) on LiteRT, one thread. Cycles are estimated, never measured: they
rank the rows of one network. ``repeat`` is the largest relative difference between the cycles of the same
file.
"""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from pathlib import Path

from edgekit.compiler.evaluate.arm import instructions as a64
from edgekit.compiler.evaluate.arm.emulator import EmulatedEngine
from edgekit.compiler.evaluate.arm.emulator_folder import emulator_folder
from edgekit.compiler.evaluate.arm.estimate import Estimate, Estimator
from edgekit.compiler.evaluate.arm.processors import PROCESSORS
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import QUICK, CandidateConfig
from edgekit.processing import load_card
from edgekit.target.build_target import resolve
from edgekit.target.contract import Artifact
from edgekit.target.installed_profiles import find_profile
from tests.benchmarks.bench_int8 import calibrated, pictures

TIMEOUT_SECONDS = 600.0
COUNTED = (a64.FMA_Q, a64.DOT, a64.WIDENING, a64.SHIFT)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("--cpu", action="append", default=[], choices=[*PROCESSORS])
    arguments.add_argument(
        "--placement", action="append", default=[], help="all of the target's if not given"
    )
    arguments.add_argument("--count", type=int, default=16, help="photographs to calibrate with")
    arguments.add_argument("--repeat", type=int, default=2, help="runs of each file")
    arguments.add_argument("--kernels", action="store_true", help="a line for each family of microkernels")
    given = arguments.parse_args()
    folder = emulator_folder()
    if folder is None:
        raise SystemExit("needs emulated ARM with counted instructions: tests/arm/setup makes it")
    card = load_card(given.card)
    source = open_model(given.model, card.shapes())
    canonical = source.clone()
    run_passes(canonical)
    context = calibrated(source, canonical, card, pictures(given.samples), given.count, 0).search_context
    target = resolve(find_profile("tflite"))
    assert target.rules is not None
    rows: dict[str, Artifact] = {"fp32": target.compiler.compile_model(context.model, target.profile, "fp32")}
    with Candidates(context, target, target.rules, None, "") as candidates:
        for placement in given.placement or candidates.placements:
            rows[f"int8 {placement}"] = candidates.compile(CandidateConfig(placement, QUICK)).artifact
    print(
        "  ".join(
            ("processor ", f"{'file':<28}", "instructions", *COUNTED, "cycles", "of fp32", "repeat", "s")
        )
    )
    for name in given.cpu or PROCESSORS:
        engine = EmulatedEngine(
            folder, PROCESSORS[name], "tflite", context.inputs, context.outputs, context.validation[0]
        )
        with closing(Estimator(engine, PROCESSORS[name])) as estimator:
            parent = 0.0
            for row, artifact in rows.items():
                started = time.monotonic()
                found = [estimator.estimate(artifact, TIMEOUT_SECONDS) for _ in range(given.repeat)]
                seconds = (time.monotonic() - started) / given.repeat
                parent = parent or found[0].cycles
                print(line(row, found, parent, seconds), flush=True)
                for family, (ran, cycles) in found[0].families.items() if given.kernels else ():
                    print(f"{'':12}{family:<28}  {ran:12,}  {'':63}{cycles:12,.0f}")


def line(row: str, found: list[Estimate], parent: float, seconds: float) -> str:
    """One file on one processor."""
    first = found[0]
    repeat = max(each.cycles for each in found) / min(each.cycles for each in found) - 1
    counts = [f"{first.classes.get(name, 0):{len(name)},}" for name in COUNTED]
    return "  ".join(
        (
            f"{first.processor:<10}",
            f"{row:<28}",
            f"{first.instructions:12,}",
            *counts,
            f"{first.cycles:,.0f}",
            f"{first.cycles / parent:.3f}",
            f"{repeat:.2%}",
            f"{seconds:.1f}",
        )
    )


if __name__ == "__main__":
    main()
