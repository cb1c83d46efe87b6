"""Samples with the predictions of the float model and each variant side by side, worst disagreements first.

The float model is the bundle's fp32 variant that is closest to the source model, which the bundle does not
hold. The task's metric (``metric.py`` in the task's folder) measures the distance of two predictions. Without
a metric it is the SNR of the outputs.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.bundle.advice import choices
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import lowest_snr
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity
from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.samples import spread
from edgekit.errors import EdgeKitError, UsageError, printable, reason_of
from edgekit.processing.card import Card
from edgekit.processing.drawing import Canvas, draw
from edgekit.processing.nms import overlaps
from edgekit.processing.picture_files import PICTURES, read_picture
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime import Session
from edgekit.runtime.session_card import card_of
from edgekit.system.progress import counted
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Array

COMPARED = 24
"""Number of samples to run, evenly spread over those given."""
SHOWN = 6
"""Number of samples to show, if few variants are shown of each."""
PICTURES_SHOWN = 16
"""Most images on the page, which keeps it below 1 MB."""
LOST, NEW = (220, 20, 30), (230, 120, 0)
"""Colours of boxes that the float model alone, or the variant alone, has."""
WIDTH_PIXELS = 480
"""Maximum width of an image on the page."""
QUALITY = 65
"""WebP quality of an image."""
OVERLAP = 0.5
"""Least intersection over union of boxes that are the same."""
TEXT_LIMIT_CHARS = 600


@dataclass(frozen=True)
class SamplePrediction:
    """Prediction of a variant for a sample.

    Attributes:
        summary: Difference from the float model's prediction, in words.
        picture: WebP in base64 with the prediction drawn into it, or "" if it cannot be drawn.
        width, height: Size of the image in pixels.
    """

    variant: str
    summary: str
    text: str
    picture: str
    width: int
    height: int


@dataclass(frozen=True)
class Sample:
    """Sample: its file, the worst disagreement in words, and the predictions, the float model's first."""

    name: str
    disagreement: str
    answers: tuple[SamplePrediction, ...]


@dataclass(frozen=True)
class ShownSamples:
    """The samples that are shown, the worst disagreement first.

    Attributes:
        samples: At most SHOWN.
        missing: (variant, why it gave no answers).
    """

    summary: str
    samples: tuple[Sample, ...]
    missing: tuple[tuple[str, str], ...]


def answers_of(bundle: Bundle, source: str) -> ShownSamples:
    """Run the variants to choose from on images.

    Args:
        bundle: With a card that has a task.
        source: An image, a folder or a glob of images.

    Raises:
        UsageError: there is no card with a task, it takes no images, or there is no fp32 variant.
        SampleError: there are no images, or one can't be read.
        NoVariantError: the float variant does not run here.
    """
    card = card_of(bundle)
    if card.task is None:
        raise UsageError(f"--samples: the card of {bundle.name} has no task, so it has no answers to show")
    if card.sources()[0].kind != "image" or bundle.stages:
        raise UsageError(f"--samples: {bundle.name} does not take single pictures; leave --samples out")
    paths = spread(find_files(source, PICTURES), COMPARED)
    reference = _reference(bundle)
    offered = [choice.variant for group in choices(bundle.variants).values() for choice in group]
    others = [v for v in offered if v is not reference]
    pictures = [read_picture(path) for path in paths]
    expected, placed = _run(bundle, reference, pictures)
    results: dict[str, list[Mapping[str, Array]]] = {}
    missing: list[tuple[str, str]] = []
    for variant in others:
        try:
            results[variant.name] = _run(bundle, variant, pictures)[0]
        except EdgeKitError as problem:
            missing.append((variant.name, printable(reason_of(problem))))
    judged = [
        {name: _judge(card, expected[i], outputs[i], placed[i]) for name, outputs in results.items()}
        for i in range(len(paths))
    ]
    order = sorted(range(len(paths)), key=lambda i: min(map(_rank, judged[i].values()), default=(1.0, 0.0)))
    samples = tuple(
        _sample(card, paths[i].name, pictures[i], placed[i], reference, expected[i], judged[i], results, i)
        for i in order[: max(1, min(SHOWN, PICTURES_SHOWN // (1 + len(results))))]
    )
    count = f"{len(paths)} picture{'s' if len(paths) > 1 else ''}"
    shown = "worst disagreements first" if len(samples) == len(paths) else f"{len(samples)} worst are shown"
    caption = (
        f"The answers of {reference.name} (SNR {lowest_snr(reference)} against the source model) and of the "
        f"variants to choose from, on {count}; "
        f"the {shown}."
    )
    return ShownSamples(caption, samples, tuple(missing))


def _reference(bundle: Bundle) -> Variant:
    """Return the fp32 variant that ran on its own engine and is closest to the source model."""
    floats = [v for v in bundle.variants if v.usable and v.precision == FULL_PRECISION and v.verified]
    floats = [v for v in floats if v.shrunk is None]
    floats = [v for v in floats if not (v.evidence.get("executed") or {}).get("stands_in_for")] or floats
    if not floats:
        raise UsageError(f"--samples: {bundle.name} has no verified fp32 variant to compare answers with")

    def closeness(variant: Variant) -> float:
        figures = [error["snr_db"] for error in (variant.evidence.get("accuracy") or {}).values()]
        return min((math.inf if snr is None else float(snr) for snr in figures), default=-math.inf)

    return max(floats, key=closeness)


def _run(
    bundle: Bundle, variant: Variant, pictures: Sequence[Array]
) -> tuple[list[Mapping[str, Array]], list[Any]]:
    outputs: list[Mapping[str, Array]] = []
    placed = []
    with Session(bundle, variant=variant.name, strict=True) as session:
        for picture in counted(pictures, "pictures", name=variant.name):
            feeds, placement = session.prepare(picture)
            outputs.append(session.run(feeds))
            placed.append(placement)
    return outputs, placed


def _judge(card: Card, expected: Mapping[str, Array], outputs: Mapping[str, Array], placed: Any) -> Fidelity:
    return Evaluator(card, [expected], placed=[placed]).evaluate([outputs])


def _rank(fidelity: Fidelity) -> tuple[float, float]:
    """Return the sort key of a sample, worst first. A sample without a score of the task's metric (no box in
    it) comes after the others."""
    return (fidelity.score.value, fidelity.snr_db) if not fidelity.score.unit else (1.0, fidelity.snr_db)


def _sample(
    card: Card,
    name: str,
    picture: Array,
    placed: Any,
    reference: Variant,
    expected: Mapping[str, Array],
    judged: Mapping[str, Fidelity],
    outputs: Mapping[str, Sequence[Mapping[str, Array]]],
    index: int,
) -> Sample:
    answers = [_answer(card, picture, placed, reference.name, "the float model", expected)]
    for variant, fidelity in judged.items():
        found = outputs[variant][index]
        answers.append(_answer(card, picture, placed, variant, str(fidelity.score), found, expected))
    worst = min(judged.values(), key=_rank, default=None)
    return Sample(printable(name), f"worst {worst.score}" if worst is not None else "", tuple(answers))


def _answer(
    card: Card,
    picture: Array,
    placed: Any,
    variant: str,
    score: str,
    outputs: Mapping[str, Array],
    expected: Mapping[str, Array] | None = None,
) -> SamplePrediction:
    from edgekit.processing import processing

    prediction = processing.decode(card, outputs, placed)
    text = printable(" ".join(str(prediction).split()))[:TEXT_LIMIT_CHARS] or "nothing found"
    canvas = Canvas(picture)
    try:
        draw(prediction, canvas)
    except UsageError:  # predictions of this kind have no image
        return SamplePrediction(variant, score, text, "", 0, 0)
    if expected is not None and isinstance(prediction, Detections):
        lost, new = _mark_changes(processing.decode(card, expected, placed), prediction, canvas)
        changes = [f"{count} {word}" for count, word in ((lost, "lost"), (new, "new")) if count]
        score = f"{score}: {', '.join(changes)}" if changes else score
    canvas.image.thumbnail((WIDTH_PIXELS, WIDTH_PIXELS))
    whole = io.BytesIO()
    canvas.image.convert("RGB").save(whole, "WEBP", quality=QUALITY)
    encoded = base64.b64encode(whole.getvalue()).decode("ascii")
    return SamplePrediction(variant, score, text, encoded, canvas.image.width, canvas.image.height)


def _mark_changes(expected: Detections, found: Detections, canvas: Canvas) -> tuple[int, int]:
    """Draw the boxes that only one of two predictions has. Return the number of lost and of new ones."""
    same = overlaps(expected.boxes, found.boxes, OVERLAP) & (expected.classes[:, None] == found.classes)
    counts = []
    for boxes, word, colour in (
        (expected.boxes[~same.any(axis=1)], "lost", LOST),
        (found.boxes[~same.any(axis=0)], "new", NEW),
    ):
        for box in boxes.tolist():
            canvas.box(box, colour)
            canvas.label(word, (box[0], box[3]), colour)
        counts.append(len(boxes))
    return counts[0], counts[1]
