"""A network in fp16 for Core ML on the reference executor: processor time of a build and of one run, and the
task's own metric beside the float model's.

    python tests/benchmarks/bench_half.py MODEL.onnx --card CARD.toml --samples PHOTOS --truth OTHER_PHOTOS \
        [--draws 7]

One figure of 128 photographs wanders with a few detections that lie on an edge. So the photographs are also
moved by chance, by a tenth of a grey level, for both models alike: what remains in the mean of the draws is
the precision's, the rest is chance. OTHER_PHOTOS have labels, as edgekit/compiler/evaluate/labels.py finds
them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import edgekit
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.samples import FileSamples, read_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.processing import load_card
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.benchmarks.bench_int8 import pictures

MOVED = 0.1


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("--truth", type=Path, required=True)
    arguments.add_argument("--draws", type=int, default=7)
    given = arguments.parse_args()
    card, begun = load_card(given.card), time.process_time()
    bundle = edgekit.build(
        given.model, targets=["coreml"], precision="fp16", card=given.card, samples=given.samples
    )
    (built,) = bundle.variants
    print(f"build: {time.process_time() - begun:.1f} s of processor time, {built.status}")
    source = open_model(given.model, card.shapes())
    reference = Reference(source, optimize=True)
    truth = read_files(pictures(given.truth), signature(source)[0], card).arrays
    assert isinstance(truth, FileSamples)
    labels, rng = find_labels(truth.paths, card), np.random.default_rng(0)
    with Session(bundle, engine="coreml") as session:
        spent = []
        for draw in range(1 + given.draws):
            exact, half = [], []
            for sample in truth:
                moved = {name: _moved(array, rng) if draw else array for name, array in sample.items()}
                exact.append(reference.run(moved))
                begun = time.process_time()
                half.append(session.run(moved))
                spent.append(time.process_time() - begun)
            if not draw:
                print(f"one run: {min(spent):.3f} s of processor time\n\nfloat   fp16    difference")
            judge = Evaluator(card, exact, labels)
            scores = [found.value for found in (judge.evaluate(a).task for a in (exact, half)) if found]
            print(f"{scores[0]:.4f}  {scores[1]:.4f}  {scores[1] - scores[0]:+.4f}", flush=True)


def _moved(array: Array, rng: np.random.Generator) -> Array:
    return (array + rng.uniform(-MOVED, MOVED, array.shape)).astype(array.dtype)


if __name__ == "__main__":
    main()
