"""The int8 search against an exhaustive one: every placement of a target by every recipe.

    python tests/benchmarks/bench_exhaustive.py MODEL.onnx --card CARD.toml --samples PHOTOS \\
        [-t ort] [--count 64] [--seconds 60]

For each target: what ``--precision int8`` chooses, and the fastest of all candidates that are accurate
enough, both on the validation samples; ``refused`` where there is none. Where the search refuses or is slower
than the exhaustive one by more than timing noise, the line ends in ``!``. Times are relative to the float
parent, CPU time on one thread. All candidates without float regions are measured; regions are the search's.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from edgekit.compiler.build.build_options import BuildOptions
from edgekit.compiler.build.int8_search import search_int8, why_missed
from edgekit.compiler.build.quantization_data import QuantizationData
from edgekit.compiler.evaluate.relative_time import FASTER
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.fronts import pareto_front
from edgekit.compiler.quantize.search.measurement import (
    BASELINE,
    COMPENSATED,
    DEFAULT,
    L2_RANGES,
    NO_BIAS_CORRECTION,
    CandidateConfig,
    Measurement,
)
from edgekit.processing import load_card
from edgekit.system.progress import unheard
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.installed_profiles import find_profile
from tests.benchmarks.bench_int8 import calibrated, engine_version, pictures

RECIPES = (DEFAULT, BASELINE, L2_RANGES, NO_BIAS_CORRECTION, COMPENSATED)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("-t", "--target", action="append", default=[])
    arguments.add_argument("--count", type=int, default=64)
    arguments.add_argument("--seconds", type=float, default=60.0, help="for each search")
    given = arguments.parse_args()
    card = load_card(given.card)
    source = open_model(given.model, card.shapes())
    canonical = source.clone()
    run_passes(canonical)
    data = calibrated(source, canonical, card, pictures(given.samples), given.count, 0)
    for name in given.target or ["ort", "openvino", "tflite"]:
        print(compared(data, resolve(find_profile(name)), given.seconds), flush=True)


def compared(data: QuantizationData, target: BuildTarget, seconds: float) -> str:
    """One line: what the search chooses, and the best of all."""
    profile, rules = target.profile, target.rules
    assert rules is not None
    parent = target.compiler.compile_model(data.search_context.model, profile, "fp32")
    version = engine_version(target, parent, data)
    options = BuildOptions("int8", seconds=seconds)
    with Candidates(data.search_context, target, rules, parent, version) as candidates:
        started = time.monotonic()
        result = search_int8(data, profile, rules, candidates, options, seconds, version, unheard)
        took, candidate_count = time.monotonic() - started, len(result.measured)
        everything = [
            candidates.measure(CandidateConfig(placement, recipe))
            for placement in candidates.placements
            for recipe in RECIPES
        ]
    own = _fastest([each for each in result.measured if not why_missed(options, each, data)])
    best = _fastest([each for each in everything if not why_missed(options, each, data)])
    worse = best is not None and (own is None or FASTER * (own.ratio or 1) > (best.ratio or 1))
    counts = f"searched {candidate_count} in {took:.1f} s", f"of {len(everything)}"
    text = f"{profile.name:10}{counts[0]}: {_text(own)}; {counts[1]}: {_text(best)}"
    return text + (" !" if worse else "")


def _fastest(good: list[Measurement]) -> Measurement | None:
    front = pareto_front(good)
    return front[0] if front else None


def _text(point: Measurement | None) -> str:
    if point is None or point.fidelity is None:
        return "refused"
    return f"{point.ratio:.2f}, {point.fidelity.score} ({point.config})"


if __name__ == "__main__":
    main()
