"""Mutated bundles for both implementations; the library runs under AddressSanitizer and UBSan.

    python -m tests.native.mutations 100000 [--first 0]

Each case is one of tests/fixtures/bundle_mutations.py: bytes of the file, values of the manifest (the card
among them), entries or their content, resealed so that the change is read. What Python opens or refuses the
library opens or refuses, with the same text but for the description of a JSON syntax error. A card that the
library does not compute is refused with a text that names libedgekit. test_mutations.py is the short form.
"""

from __future__ import annotations

import argparse
import collections
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.bundle import Bundle
from edgekit.errors import EdgeKitError
from edgekit.native import build
from edgekit.processing.card import parse_card
from edgekit.system.formats.npy import npy_bytes
from edgekit.tensor_spec import Json
from tests.fixtures.bundle_mutations import mutated
from tests.fixtures.bundles import packed_parts
from tests.native.sound_models import TONE_CARD

SANITIZERS = (
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)
CARD = {
    "title": "Colours",
    "inputs": {
        "image": {
            "kind": "image", "shape": [1, 3, 8, 6], "layout": "NCHW", "colour": "RGB", "resize": "letterbox",
            "place": "center", "pad": 114, "rounding": "nearest", "interpolation": "cubic", "antialias": True,
            "mean": [120.0, 110.5, 100.0], "std": [58.0, 57.0, 57.5], "dtype": "float32",
        },
    },
    "task": {
        "kind": "detect", "decode": "yolox", "labels": ["red", "green"], "outputs": {"predictions": "boxes"},
        "score": 0.25, "iou": 0.5, "top": 10, "class_agnostic": False, "strides": [2, 4],
    },
}  # fmt: skip


class Difference(NamedTuple):
    """One case that the two do not agree on."""

    case: int
    python: str
    library: str


class Original(NamedTuple):
    """Model and card of a bundle that is mutated."""

    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]
    card: dict[str, Json]


ORIGINALS = (
    Original({"image": [1, 3, 8, 6]}, {"boxes": [1, 18, 7]}, CARD),
    Original(
        {"bands": [1, 8, 3], "before": [1, 3], "gain": [1]}, {"scores": [1, 3], "after": [1, 3]}, TONE_CARD
    ),
)
"""A picture; a sound beside a state and a constant."""


def write_original(path: Path, original: Original) -> None:
    """Write a bundle that is mutated: two variants, golden vectors, a card."""
    inputs, outputs = (
        [{"name": name, "dtype": "float32", "shape": shape} for name, shape in side.items()]
        for side in (original.inputs, original.outputs)
    )
    accuracy = {name: {"limit_db": 40} for name in original.outputs}
    timing = {"timing": {"p50_ms": 2.5, "machine": "x86_64"}, "accuracy": accuracy}
    variants = [
        {"name": f"ort-{precision}", "target": "ort", "profile": "ort", "precision": precision, "options": {},
         "files": {"model.onnx": f"variants/{precision}/model.onnx"}, "status": status, "evidence": timing}
        for precision, status in (("fp32", "verified on ONNX Runtime"), ("int8", "not run: no engine"))
    ]  # fmt: skip
    entries = {
        **{f"golden/{x}.npy": npy_bytes(np.zeros(shape, np.float32)) for x, shape in original.inputs.items()},
        **{f"golden/{y}.npy": npy_bytes(np.ones(shape, np.float32)) for y, shape in original.outputs.items()},
        "variants/fp32/model.onnx": b"a model" * 20,
        "variants/int8/model.onnx": b"another",
    }
    manifest = {
        "source": {"file": "m.onnx", "sha256": "0" * 64, "opset": 17, "nodes": 3},
        "inputs": inputs, "outputs": outputs, "variants": variants, "card": original.card,
        "profiles": {"ort": {"facts": {"arch": {"value": "x86_64"}}}},
        "golden": [
            {
                "inputs": {name: f"golden/{name}.npy" for name in original.inputs},
                "outputs": {name: f"golden/{name}.npy" for name in original.outputs},
            }
        ],
    }  # fmt: skip
    Bundle.create(manifest, entries).save(path)


def python_steps(path: Path) -> dict[str, str]:
    """Return what Python makes of a bundle: step -> "" or the refusal."""
    steps = {}
    try:
        bundle = Bundle.open(path)
    except EdgeKitError as problem:
        return {"open": str(problem)}
    steps["open"] = ""
    with bundle:
        for step in ("verify", "prepare"):
            try:
                if step == "verify":
                    bundle.verify_entries()
                elif bundle.card is None:
                    steps[step] = "no card"
                    continue
                else:
                    parse_card(bundle.card, bundle.inputs, bundle.outputs)
                steps[step] = ""
            except EdgeKitError as problem:
                steps[step] = str(problem)
    return steps


def library_steps(line: str) -> dict[str, str]:
    """Return what the program answered for a bundle, in the same form."""
    parts = line.rstrip("\n").split("\t")
    texts = (part.replace("\\n", "\n").replace("\\\\", "\\") for part in parts[1::2])
    return dict(zip(parts[0::2], texts, strict=False))


def run_cases(
    program: Path, folder: Path, cases: range, counts: collections.Counter[str]
) -> Iterator[Difference]:
    """Yield the cases on which the two differ.

    Args:
        program: tests/native/read_bundles.cpp, compiled.
        folder: Scratch folder.
        cases: Numbers of the cases.
        counts: Steps by their end are counted here.

    Raises:
        RuntimeError: the program died; the text names the case and holds the sanitizer's report.
    """
    path = folder / "case.edgekit"
    parts = []
    for original in ORIGINALS:
        write_original(path, original)
        with Bundle.open(path) as bundle:
            parts.append((path.read_bytes(), *packed_parts(bundle)))
    environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1"}
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="surrogateescape", env=environment,
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for case in cases:
            path.write_bytes(mutated(*parts[case % len(parts)], case))
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"case {case} ended the program\n{process.stderr.read()[-6000:]}")
            found, expected = library_steps(line), python_steps(path)
            yield from _differences(case, expected, found, counts)
        process.stdin.close()
        if process.wait():
            raise RuntimeError(
                f"the program ended with {process.returncode}\n{process.stderr.read()[-6000:]}"
            )


def _differences(
    case: int, expected: dict[str, str], found: dict[str, str], counts: collections.Counter[str]
) -> Iterator[Difference]:
    for step, wanted in expected.items():
        text = found.get(step, "step not reached")
        if text == wanted:
            counts[f"{step} {'refused with the same text' if text else 'done'}"] += 1
        elif text and wanted:
            counts[f"{step} refused with another text"] += 1
        elif "libedgekit" in text:
            counts[f"{step} refused as beyond the library"] += 1
        elif step == "prepare" and wanted.startswith(UNREAD):
            counts[f"{step} of a card whose {wanted.split(':')[1].split('.')[0].strip()} is not read"] += 1
        else:
            yield Difference(case, f"{step}: {wanted or 'done'}", f"{step}: {text or 'done'}")


UNREAD = ("card: latency", "card: schedule", "card: about", "card must")
"""Tables of a card that the library does not read."""


def main(arguments: list[str] | None = None) -> int:
    """Run cases; print the counts and each difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    counts: collections.Counter[str] = collections.Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(__file__).with_name("read_bundles.cpp")
        program = build.compile_program(source, folder / "read_bundles", flags=SANITIZERS)
        for difference in run_cases(
            program, folder, range(options.first, options.first + options.cases), counts
        ):
            wrong += 1
            print(difference)
    for end, count in sorted(counts.items()):
        print(f"{count:8} {end}")
    print(f"{wrong} differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
