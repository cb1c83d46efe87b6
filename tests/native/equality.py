"""Python and libedgekit on the same random cards, pictures and outputs.

    python -m tests.native.equality 10000 [--first 0]

Preparation is equal bit for bit. So are the decoders, except the two with an exponential. numpy's, of
float32, is within 2.52 units in the last place (ulp) by its own statement, and differs between processors;
the library's is rounded to nearest. test_equality.py is the short form.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.bundle import Bundle
from edgekit.processing.card import parse_card
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.processing import decode, prepare
from edgekit.tensor_spec import Array, TensorSpec
from tests.native.cases import EXACT, Case, make_case
from tests.native.library import Found, NativeBundle

SCORE_LIMIT_ULP = 8
"""Limit of a softmax score: 3 for the power, 3 for the sum, 1 for the quotient, 1 for rounding both."""
BOX_LIMIT_ULP = 8
"""Limit of a YOLOX corner, in ulp of the largest centre or half side: 3 for the power, 5 roundings."""


class Totals:
    """Counts of a comparison, and the largest differences in ulp."""

    def __init__(self) -> None:
        self.cases: collections.Counter[str] = collections.Counter()
        self.predictions = 0
        self.worst: dict[str, float] = {"scores": 0.0, "boxes": 0.0}

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.cases.items()))
        worst = ", ".join(f"{name} {ulp:.2f} ulp" for name, ulp in self.worst.items())
        return f"{self.cases.total()} cases ({kinds})\n{self.predictions} classes and boxes; largest: {worst}"


def specs_of(case: Case) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Return the input and the output of a case's model."""
    image, output = case.card["inputs"]["x"], case.output
    inputs = [TensorSpec("x", image["dtype"], tuple(image["shape"]))]
    return inputs, [TensorSpec("y", str(output.dtype), output.shape)]


def write_bundle(case: Case, path: Path) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Write a bundle without variants that holds the case's card."""
    inputs, outputs = specs_of(case)
    source = {"file": "m.onnx", "sha256": "0" * 64, "opset": 17, "nodes": 1}
    manifest = {
        "source": source,
        "inputs": [{**spec._asdict(), "shape": list(spec.shape)} for spec in inputs],
        "outputs": [{**spec._asdict(), "shape": list(spec.shape)} for spec in outputs],
        "variants": [],
        "card": case.card,
    }
    path.write_bytes(b"".join(bytes(piece) for piece in Bundle.create(manifest, {}).pieces()))
    return inputs, outputs


class Answer(NamedTuple):
    """Results of a core for a case."""

    prepared: bytes
    placement: list[float]
    found: Found


def compare(case: Case, path: Path, totals: Totals) -> None:
    """Run a case in both. Raises AssertionError where they differ."""
    write_bundle(case, path)
    with NativeBundle(path) as bundle:
        made, placement = bundle.prepare(case.frame, case.order)
        found = bundle.decode({"y": case.output}, placement)
    numbers = [getattr(placement, name) for name, *_ in placement._fields_]
    judge(case, Answer(made.tobytes(), numbers, found), totals)


def judge(case: Case, answer: Answer, totals: Totals) -> None:
    """Compare a core's answer with Python's. Raises AssertionError where they differ."""
    card = parse_card(case.card, *specs_of(case))
    feeds, placed = prepare(card, case.frame, case.order)
    expected = decode(card, {"y": case.output}, placed)
    found = answer.found
    assert answer.prepared == feeds["x"].tobytes(), "the prepared inputs differ"
    assert ImagePlacement(*answer.placement) == placed  # type: ignore[arg-type]
    task = case.card["task"]
    totals.cases[f"{task['kind']} {task['decode']}"] += 1
    totals.predictions += len(found.indices)
    _compare_predictions(case, placed, expected, found, totals)


def _compare_predictions(
    case: Case, placed: ImagePlacement, expected: object, found: Found, totals: Totals
) -> None:
    task = case.card["task"]
    is_detection = task["kind"] == "detect"
    indices: Array = expected.classes if is_detection else expected.indices  # type: ignore[attr-defined]
    scores: Array = expected.scores  # type: ignore[attr-defined]
    boxes: Array = expected.boxes if is_detection else np.zeros((len(scores), 4), np.float32)  # type: ignore[attr-defined]
    assert found.kind == task["kind"]
    if (task["kind"], task["decode"]) in EXACT:
        assert found.indices.tolist() == indices.tolist()
        assert found.scores.tobytes() == scores.tobytes()
        assert np.array_equal(found.boxes, boxes)
    elif is_detection:
        assert found.indices.tolist() == indices.tolist()
        assert found.scores.tobytes() == scores.tobytes()
        difference = _difference(found.boxes, boxes) / _corner_ulp(case, placed)
        totals.worst["boxes"] = max(totals.worst["boxes"], difference)
        assert difference <= BOX_LIMIT_ULP, f"a corner differs by {difference:.1f} ulp"
    else:
        spacing = np.spacing(np.maximum(scores, np.float32(1e-38)))
        difference = float((np.abs(found.scores - scores) / spacing).max())
        totals.worst["scores"] = max(totals.worst["scores"], difference)
        assert difference <= SCORE_LIMIT_ULP, f"a score differs by {difference:.1f} ulp"
        swapped = found.indices != indices  # only between scores that are as close as that
        assert (np.abs(scores[swapped] - found.scores[swapped]) <= SCORE_LIMIT_ULP * spacing[swapped]).all()
    assert found.labels == [one.label for one in expected][: len(found.labels)] or (  # type: ignore[attr-defined]
        found.indices.tolist() != indices.tolist()
    )


def _difference(a: Array, b: Array) -> float:
    assert a.shape == b.shape
    return float(np.abs(a.astype(np.float64) - b).max()) if a.size else 0.0


def _corner_ulp(case: Case, placed: ImagePlacement) -> float:
    """Unit in the last place of the largest centre or half side of a YOLOX output, in the frame's pixels."""
    strides = np.float64(max(case.card["task"]["strides"]))
    half = np.exp(case.output[..., 2:4].max()) * strides / 2
    centre = np.abs(case.output[..., :2]).max() * strides + max(placed.input_width, placed.input_height)
    return float(np.spacing(np.float32(max(half, centre)))) / min(placed.scale_x, placed.scale_y)


def main(arguments: list[str] | None = None) -> int:
    """Compare cases; print the totals, or each case that differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=int)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    totals, wrong = Totals(), 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.first, options.first + options.cases):
            try:
                compare(make_case(number), Path(folder) / "case.edgekit", totals)
            except Exception as problem:
                wrong += 1
                print(f"case {number}: {type(problem).__name__}: {problem}")
    print(totals)
    print(f"{wrong} differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
