"""A network with fewer and fewer channels: accuracy on photographs nobody used, and time on each engine.

    python tests/benchmarks/bench_shrink.py MODEL.onnx --card CARD.toml --samples PHOTOS --truth LABELLED \
        [--shares .1 .2 .3] [--int8] [-t ort -t openvino -t tflite]

Three quarters of PHOTOS fit weights, a quarter chooses channels. LABELLED are others with labels, as
edgekit/compiler/evaluate/labels.py finds them; without labels they are judged by the whole model's answers.
Times are of one thread, over the unpruned float32 of the same engine.
With --int8 the variants are those of ``build --shrink auto``, float32 and int8, also those that it rejects.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from unittest.mock import patch

from edgekit.compiler.build import shrunk, stages, variant_build
from edgekit.compiler.build.build_bundle import build_bundle
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.shrink import ModelTimer, targets_to_time
from edgekit.compiler.compress.network_cost import multiplications
from edgekit.compiler.compress.prune import allocate, plan_pruning, pruned_model
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.samples import FileSamples, read_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.processing import load_card
from edgekit.runtime import Session
from edgekit.system.progress import unheard
from tests.benchmarks.bench_int8 import pictures


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("--truth", type=Path, required=True)
    arguments.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    arguments.add_argument("--int8", action="store_true")
    arguments.add_argument("-t", "--target", action="append", default=[])
    given = arguments.parse_args()
    card = load_card(given.card)
    source = open_model(given.model, card.shapes())
    inputs = signature(source)[0]
    model = source.clone()
    run_passes(model)
    reference = Reference(source, optimize=True)
    truth = read_files(pictures(given.truth), inputs, card).arrays
    assert isinstance(truth, FileSamples)
    judge = Evaluator(card, [reference.run(sample) for sample in truth], find_labels(truth.paths, card))
    if given.int8:
        _every_variant(given, judge, truth)
        return
    photographs = read_files(pictures(given.samples), inputs, card).arrays
    fitting = [photographs[i] for i in range(len(photographs)) if i % 4]
    choosing = [photographs[i] for i in range(0, len(photographs), 4)]
    begun = time.process_time()
    chooser = Evaluator(card, [reference.run(sample) for sample in choosing])
    plan = plan_pruning(model, fitting, choosing, chooser, unheard)
    print(f"{len(plan.groups)} groups of channels; {time.process_time() - begun:.0f} s of processor time")
    timer = ModelTimer(model, choosing[:1], targets_to_time(given.target))
    total = multiplications(model)
    for share in (0.0, *given.shares):
        removed = allocate(plan, "multiplications", share, total) if share else {}
        if removed is None:
            print(f"{share:.0%}: the groups do not have that much")
            continue
        pruned = pruned_model(plan, removed)
        run = Reference(pruned, optimize=True, threads=2).run
        found = judge.evaluate([run(sample) for sample in truth])
        times = "  ".join(f"{name} {ratio:.2f}x" for name, ratio in timer.ratios(pruned).items())
        left = multiplications(pruned) / total
        print(f"{left:.3f}  {found.task}  {found.score}  {found.snr_db:.1f} dB  {times}", flush=True)


def _every_variant(given: argparse.Namespace, judge: Evaluator, truth: FileSamples) -> None:
    """All that ``build --shrink auto`` makes, kept or not: task, fidelity, ms and the ratio to its parent."""
    with (
        patch.object(shrunk, "SHARES", tuple(given.shares)),
        patch.object(stages, "select_shrunk", lambda variants, reference: list(variants)),
        patch.object(variant_build, "SHRUNK_LIMIT", math.inf),
    ):
        bundle = build_bundle(BuildRequest(
            given.model, targets=given.target or ["ort", "openvino", "tflite"], precision="int8",
            shrink="auto", card=given.card, samples=given.samples, max_drop="100%",
            progress=lambda stage: print(stage, flush=True) if stage.seconds else None,
        ))  # fmt: skip
    for variant in bundle.variants:
        if not variant.usable:
            print(f"{variant.name}  {variant.status}")
            continue
        with Session(bundle, variant=variant.name) as session:
            found = judge.evaluate([session.run(sample) for sample in truth])
        timing, search = variant.evidence["timing"], variant.evidence.get("search", {"tried": ()})
        chosen = [each["ratio"] for each in search["tried"] if not each["lost"]]
        known = [timing["ratio"]] if "ratio" in timing else chosen
        ratio = f"{known[0]:.2f}x its parent" if known else ""
        left = 1 - variant.smaller_by
        print(
            f"{variant.name:28} {left:.3f}  {found.task}  {found.score}  {found.snr_db:.1f} dB"
            f"  {timing['min_ms']:6.2f} ms  {ratio}",
            flush=True,
        )


if __name__ == "__main__":
    main()
