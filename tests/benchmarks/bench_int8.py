"""int8 for several targets, calibrated on several subsets of the samples: what the search ships, on others.

    python tests/benchmarks/bench_int8.py MODEL.onnx --card CARD.toml --samples PHOTOS --truth OTHER_PHOTOS \
        [-t ort -t coreml] [--subsets 3] [--count 64] [--seconds 60] [--precision auto]

For each subset and target the product's own search runs as a build's does; each point that it would ship is
then scored on OTHER_PHOTOS: agreement with the float model (self-mAP, top-1, or the SNR of the worst output),
the task's own metric where these are labelled, and the SNR. Where the target's engine is here it runs the
variant; where it is not, or stands in for hardware, the Q/DQ graph is run by ONNX Runtime. ``time`` is the
variant's CPU time over its float parent's, ``float`` the part of the products that stays in float.

Of a target whose int8 a build would reject, the candidate that ``--force`` ships is shown; ``!``: it is
slower here than float. Remembered measurements are used: EDGEKIT_CACHE elsewhere for a search from the start.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.samples import FileSamples, read_files
from edgekit.compiler.evaluate.verify import ReferenceOutputs, write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.int8_search import best_rejected, search_int8, why_missed
from edgekit.compiler.pipeline.quantization_data import QuantizationData, collect_quantization_data
from edgekit.compiler.pipeline.variant_build import runs_here
from edgekit.compiler.quantize.observe.calibrate import split
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.fronts import best_with_baseline, pareto_front
from edgekit.compiler.quantize.search.measurement import Measurement
from edgekit.compiler.quantize.search.search_context import run_qdq_graph
from edgekit.errors import MissingDependency
from edgekit.processing import Card, load_card
from edgekit.processing.picture_files import PICTURES
from edgekit.system.progress import unwatched
from edgekit.target import Artifact, Runner, contract
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.installed_profiles import find_profile


@dataclass(frozen=True)
class Row:
    """One point on one subset."""

    subset: int
    profile: str
    tried: Measurement
    found: Fidelity
    slow: bool


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("--truth", type=Path, required=True)
    arguments.add_argument("-t", "--target", action="append", default=[])
    arguments.add_argument("--subsets", type=int, default=3)
    arguments.add_argument("--count", type=int, default=64)
    arguments.add_argument("--precision", choices=("auto", "int8"), default="int8")
    arguments.add_argument("--seconds", type=float, default=60.0, help="for each search")
    given = arguments.parse_args()
    card = load_card(given.card)
    source = open_model(given.model, card.shapes())
    inputs, _ = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    truth = read_files(pictures(given.truth), inputs, card).arrays
    assert isinstance(truth, FileSamples)
    reference = Reference(source, optimize=True)
    judge = Evaluator(card, [reference.run(sample) for sample in truth], find_labels(truth.paths, card))
    real = judge.evaluate(judge.expected).task
    print(f"float: {real if real is not None else 'no labels'}, {len(truth)} photographs", flush=True)
    print(f"{'':4}{'target':10}{'agreement':>10}{'task':>8}{'SNR dB':>8}{'time':>7}{'float':>7}  choice")
    rows: list[Row] = []
    files = pictures(given.samples)
    for subset in range(given.subsets):
        ground = calibrated(source, canonical, card, files, given.count, subset)
        for name in given.target or ["ort", "openvino", "tflite", "coreml", "tensorrt"]:
            asked = BuildOptions(given.precision, seconds=given.seconds)
            for row in points(ground, resolve(find_profile(name)), asked, truth, judge, subset):
                rows.append(row)
                print(f"{subset:<4}{line(row.profile, [row])}  {row.tried.config}", flush=True)
    for profile in dict.fromkeys(row.profile for row in rows):
        own = [row for row in rows if row.profile == profile]
        best = [
            max((row for row in own if row.subset == subset), key=lambda row: row.found.rank)
            for subset in range(given.subsets)
        ]
        print(f"    {line(profile, best)}  mean over the subsets, of each the best point")


def calibrated(
    source: ir.Model, canonical: ir.Model, card: Card, files: Sequence[Path], count: int, seed: int
) -> QuantizationData:
    """What int8 is built from, of so many of the files, drawn by the seed."""
    inputs, outputs = signature(source)
    chosen = np.random.default_rng(seed).permutation(len(files))[:count]
    samples = read_files([files[i] for i in sorted(chosen)], inputs, card)
    expected, parts = ReferenceOutputs(inputs, outputs, ()), split(samples.arrays)
    return collect_quantization_data(source, canonical, expected, samples, parts, card)


def pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURES)


def points(
    ground: QuantizationData,
    target: BuildTarget,
    asked: BuildOptions,
    truth: FileSamples,
    judge: Evaluator,
    subset: int,
) -> list[Row]:
    """What the search for a target would ship, scored."""
    profile, rules = target.profile, target.rules
    assert rules is not None
    parent = target.compiler.compile_model(ground.search_context.model, profile, "fp32")
    version = engine_version(target, parent, ground)
    timed = parent if version and runs_here(profile) else None
    with Candidates(ground.search_context, target, rules, timed, version) as candidates:
        found = search_int8(ground, candidates, asked, asked.seconds, unwatched)
        tried = [*found.measured]
        good = [each for each in tried if not why_missed(asked, each, ground)]
        winners = pareto_front(good)
        winners = winners[:1] if asked.precision == "int8" else winners
        kept = [
            best_with_baseline(each, tried, candidates.measure) for each in winners or [best_rejected(tried)]
        ]
        rows = []
        for each in kept:
            made = candidates.compile(each.config)
            if version:
                with running(target, made.artifact, ground) as runner:
                    answers = keep_outputs(map(runner.run, truth))
            else:
                answers = run_qdq_graph(made.model, truth)
            rows.append(Row(subset, profile.name, each, judge.evaluate(answers), not each.faster))
    return rows


def engine_version(target: BuildTarget, parent: Artifact, ground: QuantizationData) -> str:
    """Of the target's engine; "" where nothing here is the real one."""
    try:
        version = target.executor().engine_version()
    except MissingDependency:
        return ""
    with running(target, parent, ground) as runner:
        return "" if contract.stands_in_for(runner) else version


@contextmanager
def running(target: BuildTarget, artifact: Artifact, ground: QuantizationData) -> Iterator[Runner]:
    context = ground.search_context
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(artifact, Path(folder))
        engine = target.executor()
        with closing(
            engine.open_runner(files, context.inputs, context.outputs, artifact.options, 1)
        ) as runner:
            yield runner


def line(profile: str, rows: Sequence[Row]) -> str:
    """The figures of one row, or the means of several."""

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    tasks = [row.found.task.value for row in rows if row.found.task is not None]
    ratios = [row.tried.ratio for row in rows if row.tried.ratio is not None]
    words = [
        f"{profile:10}{mean([row.found.score.value for row in rows]):10.3f}",
        f"{mean(tasks):8.4f}" if tasks else f"{'-':>8}",
        f"{mean([row.found.snr_db for row in rows]):8.1f}",
        f"{mean(ratios):6.2f}{'!' if any(row.slow for row in rows) else ' '}" if ratios else f"{'-':>6} ",
        f"{100 * mean([row.tried.float_share for row in rows]):6.0f}%",
    ]
    return "".join(words)


if __name__ == "__main__":
    main()
