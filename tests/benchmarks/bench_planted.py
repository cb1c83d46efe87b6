"""What the float layers cost that the search leaves in networks with one layer that int8 can't hold.

    python tests/benchmarks/bench_planted.py

Prints the time of the mixed network over that of int8 alone: minima of interleaved runs on one thread, in the
process's own time. The search's limit is a tenth more.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from edgekit.compiler.evaluate.timing import OWN_TIME, turns
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.quantize.search.candidates import Candidates, CompiledCandidate
from edgekit.compiler.quantize.search.measurement import CandidateConfig
from edgekit.compiler.quantize.search.search_context import SearchContext
from edgekit.target import registry
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from tests.compiler.quantize.search import planted

ROUNDS = 20
NETWORKS: tuple[tuple[Callable[[Path], Path], frozenset[str]], ...] = (
    (planted.fragile_layer, frozenset({"fragile", "fragile.relu"})),
    (planted.outlier_channel, frozenset({"wide", "wide.relu", "narrow", "narrow.relu"})),
)


def time_ratio(context: SearchContext, pair: tuple[CompiledCandidate, CompiledCandidate]) -> float:
    """Least time of the first over that of the second."""
    engine = registry.engine("ort")
    best = [float("inf")] * 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runners = []
        for number, made in enumerate(pair):
            (folder / str(number)).mkdir()
            files = write_files(made.artifact, folder / str(number))
            runner = engine.open_runner(files, context.inputs, context.outputs, made.artifact.options, 1)
            runners.append(stack.enter_context(closing(runner)))
        for _ in range(ROUNDS):
            times = turns(runners, context.validation[0], OWN_TIME)
            best = [min(so_far, *own) for so_far, own in zip(best, times, strict=True)]
    return best[0] / best[1]


def main() -> None:
    target = resolve(find_profile("ort"))
    assert target.rules is not None
    for make, floats in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            ground = planted.ground_of(make(Path(folder)))
        parent = target.compiler.compile_model(ground.search_context.model, target.profile, "fp32")
        with Candidates(ground.search_context, target, target.rules, parent, "bench") as candidates:
            pair = (
                candidates.compile(CandidateConfig("all", floats=floats)),
                candidates.compile(CandidateConfig("all")),
            )
        ratio = time_ratio(ground.search_context, pair)
        print(f"{make.__name__:16} {ratio:.3f} of int8's time")


if __name__ == "__main__":
    main()
