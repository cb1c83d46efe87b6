"""Models that stand for another one, e.g. of edgekit model shrink: their answers in float32 and int8.

    python tests/benchmarks/bench_students.py TEACHER.onnx STUDENT.onnx [STUDENT.onnx ...] --card CARD.toml \
        --samples PHOTOS --truth LABELLED [-t ort -t openvino -t tflite]

int8 is calibrated on PHOTOS. All are judged on LABELLED, photographs that nothing was fitted to or trained
on: by their labels and by the teacher's own answers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgekit.compiler.build.build_bundle import build_bundle
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.samples import FileSamples, read_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.processing import load_card
from edgekit.runtime import Session
from tests.benchmarks.bench_int8 import pictures


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("teacher", type=Path)
    arguments.add_argument("students", type=Path, nargs="+")
    arguments.add_argument("--card", type=Path, required=True)
    arguments.add_argument("--samples", type=Path, required=True)
    arguments.add_argument("--truth", type=Path, required=True)
    arguments.add_argument("-t", "--target", action="append", default=[])
    given = arguments.parse_args()
    card = load_card(given.card)
    teacher = open_model(given.teacher, card.shapes())
    truth = read_files(pictures(given.truth), signature(teacher)[0], card).arrays
    assert isinstance(truth, FileSamples)
    answers = Reference(teacher, optimize=True).run
    judge = Evaluator(card, [answers(sample) for sample in truth], find_labels(truth.paths, card))
    for path in (given.teacher, *given.students):
        run = Reference(open_model(path, card.shapes()), optimize=True).run
        found = judge.evaluate([run(sample) for sample in truth])
        print(f"{path.name:24} float32  {found.task}  {found.score}", flush=True)
        targets = given.target or ["ort", "openvino", "tflite"]
        bundle = build_bundle(
            BuildRequest(
                path, targets=targets, precision="int8", card=card, samples=given.samples, force=True
            )
        )
        for variant in bundle.variants:
            if variant.precision.startswith("int8"):
                with Session(bundle, variant=variant.name) as session:
                    found = judge.evaluate([session.run(sample) for sample in truth])
                print(f"{path.name:24} {variant.name}  {found.task}  {found.score}", flush=True)


if __name__ == "__main__":
    main()
