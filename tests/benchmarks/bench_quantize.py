"""Time and memory of int8 without a search: calibrate, place, optimise, emit, compile. Goals: 15 s, 700 MB.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_quantize.py MODEL.onnx \\
        --card CARD.toml --samples PHOTOS

Two threads of OpenBLAS wait for each other: they take as long by the clock, and more CPU time.

One candidate for each target, its likeliest placement by the default recipe, from one calibration on 64
samples that are in files. Imports and opening are not counted, reading the samples is; nothing is remembered
from an earlier run. The peak is that of the process so far.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.quantization_data import collect_quantization_data
from edgekit.compiler.quantize.observe.calibrate import split
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.processing import load_card
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile

GOAL_S, GOAL_MB = 15.0, 700


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("-t", "--target", action="append", default=[])
    arguments.add_argument("--count", type=int, default=64)
    given = arguments.parse_args()
    card = load_card(given.card)
    source = open_model(given.model, card.shapes())
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGEKIT_CACHE"] = folder
        times = [time.process_time()]
        samples = load_samples(given.samples, inputs, card, limit=given.count)
        say("samples read", times)
        reference = ReferenceOutputs(inputs, outputs, ())
        parts = split(samples.arrays)
        ground = collect_quantization_data(source, canonical, reference, samples, parts, card)
        say("calibrated", times)
        for name in given.target or ["ort", "openvino", "tflite"]:
            target = resolve(find_profile(name))
            assert target.rules is not None
            with Candidates(ground.search_context, target, target.rules, None, "") as candidates:
                candidates.compile(CandidateConfig(target.rules.placements[0]))
            say(name, times)
    within = times[-1] - times[0] <= GOAL_S and peak_mb() <= GOAL_MB
    print(
        f"{times[-1] - times[0]:.1f} s CPU, {peak_mb():.0f} MB;"
        f" {'within' if within else 'OVER'} the goal of {GOAL_S:.0f} s and {GOAL_MB} MB"
    )


def say(step: str, times: list[float]) -> None:
    """What a step took, in seconds of CPU time; ``times`` has the ends of all steps."""
    times.append(time.process_time())
    print(f"{step:14}{times[-1] - times[-2]:7.1f} s CPU {peak_mb():7.0f} MB", flush=True)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KB


if __name__ == "__main__":
    main()
