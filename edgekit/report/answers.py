"""Samples with the predictions of the float model and each variant side by side, worst disagreements first.

The float model is the bundle's fp32 variant that is closest to the source model, which the bundle does not
hold. The task's metric (``metric.py`` in the task's folder) measures the distance of two predictions. Without
a metric it is the SNR of the outputs.
"""

from __future__ import annotations

import base64
import difflib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.bundle.advice import choices
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import kept_of, lowest_snr
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.fidelity import Evaluator, Score
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.samples import spread
from edgekit.compiler.evaluate.task_metric import metric_of
from edgekit.errors import EdgeKitError, SampleError, UsageError, printable, reason_of
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.processing.card import Card
from edgekit.processing.drawing import Canvas
from edgekit.processing.nms import overlaps
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.label import label_of
from edgekit.processing.predictions.text2text import WrittenText
from edgekit.processing.predictions.transcribe import Transcript
from edgekit.report.sources import Answer, Item, sample_name, source_of
from edgekit.runtime.session_card import card_of
from edgekit.target.precisions import FULL_PRECISION

COMPARED = 48
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


class Word(NamedTuple):
    """Words of a text: ``same``, ``lost`` (the float model alone has them) or ``new`` (the variant alone)."""

    state: str
    text: str


@dataclass(frozen=True)
class SamplePrediction:
    """Prediction of a variant for a sample.

    Attributes:
        summary: Difference from the float model's prediction, in words.
        picture: WebP in base64 with the prediction drawn into it, or "" if it cannot be drawn.
        width, height: Size of the image in pixels.
        words: Its text with the changes marked; () of an image.
    """

    variant: str
    summary: str
    text: str
    picture: str = ""
    width: int = 0
    height: int = 0
    words: tuple[Word, ...] = ()


@dataclass(frozen=True)
class Sample:
    """Sample: its file, the worst disagreement in words, and the predictions, the float model's first.

    Attributes:
        photo: The image as it is, of predictions that are about the whole of it; else None.
    """

    name: str
    disagreement: str
    answers: tuple[SamplePrediction, ...]
    photo: SamplePrediction | None = None


@dataclass(frozen=True)
class Runs:
    """All that ran, for tables and charts over every sample.

    Attributes:
        reference: Name of the variant that others are compared with.
        is_float: Whether it is the float model.
        expected: Its answers.
        found: Variant -> its answers.
        seconds: Length of each recording; 0 of other samples.
        labels: Name of the label of each sample; () without labels.
        names: Name of each sample.
    """

    reference: str
    is_float: bool
    expected: Sequence[Answer]
    found: Mapping[str, Sequence[Answer]]
    seconds: Sequence[float]
    labels: Sequence[str]
    names: Sequence[str]


@dataclass(frozen=True)
class ShownSamples:
    """The samples that are shown, the worst disagreement first.

    Attributes:
        samples: At most SHOWN, or of photographs without a drawing PICTURES_SHOWN.
        missing: (variant, why it gave no answers).
    """

    summary: str
    samples: tuple[Sample, ...]
    missing: tuple[tuple[str, str], ...]
    runs: Runs


def answers_of(bundle: Bundle, source: str) -> ShownSamples:
    """Run the variants to choose from on samples.

    Args:
        bundle: Any bundle but a cascade.
        source: A folder, a glob or a file of what its card takes: images, recordings, or texts, one a line.
            A model without a task takes arrays.

    Raises:
        UsageError: it is a cascade, or has no fp32 variant.
        SampleError: there are no such samples, or one can't be read.
        NoVariantError: the float variant does not run here.
    """
    kind = source_of(bundle)
    card = card_of(bundle) if bundle.card is not None and kind.noun != "prompt" else None
    try:
        paths = spread(kind.paths(source), COMPARED)
    except SampleError as problem:
        if kind.noun != "sample":
            raise
        why = "has no card with a task, so its samples are arrays"
        raise SampleError(f"{problem}: {bundle.name} {why}") from None
    reads = [partial(kind.read, bundle, path) for path in paths]
    reference = _reference(bundle, quantized=kind.noun == "prompt")
    task = card.task.kind if card is not None and card.task is not None else ""
    offered = [v for v in kept_of(bundle.variants) if v.usable and v.shrunk is None]
    if kind.noun == "picture" and task != "classify":  # each has its own picture
        offered = [choice.variant for group in choices(bundle.variants).values() for choice in group]
    expected = kind.answers(bundle, reference, reads)
    found: dict[str, list[Answer]] = {}
    missing: list[tuple[str, str]] = []
    for variant in offered:
        if variant is not reference:
            try:
                found[variant.name] = kind.answers(bundle, variant, reads)
            except EdgeKitError as problem:
                missing.append((variant.name, printable(reason_of(problem))))
    labels = _labels(paths, card)
    seconds = [read().seconds if kind.noun == "recording" else 0.0 for read in reads]
    is_float, names = reference.precision == FULL_PRECISION, [printable(sample_name(p)) for p in paths]
    runs = Runs(reference.name, is_float, expected, found, seconds, labels, names)
    judged = [_judged(card, runs, index) for index in range(len(paths))]
    order = sorted(range(len(paths)), key=lambda index: _rank(runs, index, judged[index]))
    whole = kind.noun == "picture" and isinstance(expected[0].prediction, Classes)
    most = PICTURES_SHOWN if whole else min(SHOWN, PICTURES_SHOWN // (1 + len(found)))
    worst = [index for index in order if not whole or _is_wrong(runs, index)] or order[:1]
    shown_paths = worst[: max(1, most)] if kind.noun != "sample" else []
    samples = tuple(_sample(reads[i], runs, i, judged[i], whole) for i in shown_paths)
    count = f"{len(paths)} {kind.noun}{'s' if len(paths) > 1 else ''}"
    shown = f"the {len(samples)} worst are shown"
    if not samples:
        shown = "the residuals are below"
    elif len(samples) == len(paths):
        shown = "the worst disagreements first"
    elif whole:
        wrong = sum(_is_wrong(runs, index) for index in range(len(paths)))
        shown = (
            f"the {wrong} that a variant gets wrong come first" if wrong else "none is wrong; one is shown"
        )
    caption = (
        f"The answers of {reference.name} (SNR {lowest_snr(reference)} against the source model) and of the "
        f"{'other variants' if len(offered) > 1 else 'others'}, on {count}; {shown}."
    )
    return ShownSamples(caption, samples, tuple(missing), runs)


def _reference(bundle: Bundle, quantized: bool = False) -> Variant:
    """Return the fp32 variant that ran on its own engine and is closest to the source model.

    Args:
        quantized: Whether another variant may stand in for it: bundles of language models seldom have floats.
    """
    able = [v for v in bundle.variants if v.usable and v.verified]
    floats = [v for v in able if v.precision == FULL_PRECISION] or (able if quantized else [])
    floats = [v for v in floats if v.shrunk is None]
    floats = [v for v in floats if not (v.evidence.get("executed") or {}).get("stands_in_for")] or floats
    if not floats:
        raise UsageError(f"--samples: {bundle.name} has no verified fp32 variant to compare answers with")

    def closeness(variant: Variant) -> float:
        figures = [error["snr_db"] for error in (variant.evidence.get("accuracy") or {}).values()]
        return min((math.inf if snr is None else float(snr) for snr in figures), default=-math.inf)

    return max(floats, key=closeness)


def _labels(paths: Sequence[Path], card: Card | None) -> list[str]:
    """Return the names of the classes that files next to the samples say; nothing unless all are labelled."""
    if card is None or card.task is None or card.task.kind != "classify":
        return []
    try:
        labels = find_labels(paths, card) or []
    except SampleError:
        return []
    names = card.task.labels
    if names and any(label.index >= len(names) for label in labels):  # they are of other classes
        return []
    return [label_of(names, label.index) for label in labels]


def _judged(card: Card | None, runs: Runs, index: int) -> dict[str, tuple[Score, float]]:
    """Return the score of each variant on a sample, and the SNR of its outputs in dB."""
    return {name: _judge(card, runs.expected[index], answers[index]) for name, answers in runs.found.items()}


def _judge(card: Card | None, expected: Answer, found: Answer) -> tuple[Score, float]:
    if expected.outputs is not None and found.outputs is not None:
        placed = [expected.placed]
        fidelity = Evaluator(card, [expected.outputs], placed=placed).evaluate([found.outputs])
        return fidelity.score, fidelity.snr_db
    metric = metric_of(card.task.kind) if card is not None and card.task is not None else None
    value = metric.compare([expected.prediction], [found.prediction]) if metric is not None else None
    if value is None or metric is None:
        ratio = difflib.SequenceMatcher(None, expected.prediction.text.split(), found.prediction.text.split())
        return Score("words kept", ratio.ratio()), math.inf
    return Score(metric.name, value), math.inf


def _rank(runs: Runs, index: int, judged: Mapping[str, tuple[Score, float]]) -> tuple[float, float, float]:
    """Return the sort key of a sample, worst first: wrong by its label, then by the score, then by the SNR. A
    sample without a score of the task's metric (no box in it) comes after the others."""
    by_label = -sum(not right for right in _right(runs, index).values()) if runs.labels else 0
    worst = min(((1.0 if score.unit else score.value, snr) for score, snr in judged.values()), default=(1, 0))
    return (by_label, *worst)


def _right(runs: Runs, index: int) -> dict[str, bool]:
    """Return whether each answer is the label; without labels, whether it is the float model's."""
    answers = {runs.reference: runs.expected, **runs.found}
    right = runs.labels[index] if runs.labels else first_class(runs.expected[index])
    return {name: first_class(each[index]) == right for name, each in answers.items()}


def _is_wrong(runs: Runs, index: int) -> bool:
    return isinstance(runs.expected[index].prediction, Classes) and not all(_right(runs, index).values())


def first_class(answer: Answer) -> str:
    """Return the name of the best class of an answer; "" without one."""
    prediction = answer.prediction
    return prediction[0].label if isinstance(prediction, Classes) and len(prediction) else ""


def _sample(
    read: Callable[[], Item], runs: Runs, index: int, judged: Mapping[str, tuple[Score, float]], whole: bool
) -> Sample:
    name, item, expected = runs.names[index], read().value, runs.expected[index]
    canvas = Canvas(item) if isinstance(item, np.ndarray) and item.ndim == 3 else None

    def fresh() -> Canvas | None:
        return None if canvas is None or whole else Canvas(item)

    role = "the float model" if runs.is_float else "closest to the source model"
    answers = [_answer(fresh(), runs.reference, role, expected, expected)]
    for variant, (score, _) in judged.items():
        answers.append(_answer(fresh(), variant, str(score), runs.found[variant][index], expected))
    worst = min((score for score, _ in judged.values()), key=lambda score: score.value, default=None)
    said = [f"labelled {runs.labels[index]}"] if runs.labels else []
    if isinstance(expected.prediction, Classes):
        others = [name for name in judged if first_class(runs.found[name][index]) != first_class(expected)]
        said += [f"other than the float model's: {', '.join(others)}"] if others else []
    elif worst is not None:
        said.append(f"worst {worst}")
    photo = None
    if whole and canvas is not None:
        photo = _picture(canvas, SamplePrediction("", "", name))
    return Sample(name, printable(", ".join(said)), tuple(answers), photo)


def _answer(
    canvas: Canvas | None, variant: str, score: str, found: Answer, expected: Answer
) -> SamplePrediction:
    prediction = found.prediction
    if prediction is None:
        assert found.outputs is not None
        prediction = ", ".join(f"{name} {array.ravel()[:4]}" for name, array in found.outputs.items())
    text = prediction.text if isinstance(prediction, TEXTUAL) else str(prediction)
    text = printable(" ".join(text.split()))[:TEXT_LIMIT_CHARS] or "nothing found"
    shown = SamplePrediction(variant, score, text)
    if canvas is None or found.prediction is None:
        return _worded(shown, found, expected)
    try:
        found.prediction.draw_on(canvas)
    except UsageError:  # predictions of this kind have no image
        return _worded(shown, found, expected)
    if found is not expected and isinstance(prediction, Detections):
        lost, new = _mark_changes(expected.prediction, prediction, canvas)
        changes = [f"{count} {word}" for count, word in ((lost, "lost"), (new, "new")) if count]
        score = f"{score}: {', '.join(changes)}" if changes else score
    return _picture(canvas, SamplePrediction(variant, score, text))


TEXTUAL = (Transcript, WrittenText, GeneratedText)


def _worded(shown: SamplePrediction, found: Answer, expected: Answer) -> SamplePrediction:
    """Return a prediction with its words: of a text the changed ones are marked, of classes the best one."""
    words: tuple[Word, ...] = ()
    if isinstance(found.prediction, TEXTUAL):
        words = changed_words(expected.prediction.text, found.prediction.text)
    elif isinstance(found.prediction, Classes):
        same = first_class(found) == first_class(expected)
        best, *others = [f"{each.label} {each.score:.2f}" for each in found.prediction]
        words = (Word("same" if same else "new", best), Word("same", f"(then {', '.join(others[:2])})"))[
            : 1 + bool(others)
        ]
    return SamplePrediction(
        shown.variant, shown.summary, shown.text, words=tuple(Word(w.state, printable(w.text)) for w in words)
    )


def changed_words(expected: str, found: str) -> tuple[Word, ...]:
    """Return the words of two texts, those that only one of them has marked.

    >>> [tuple(word) for word in changed_words("try again now", "try once now")]
    [('same', 'try'), ('lost', 'again'), ('new', 'once'), ('same', 'now')]
    """
    a, b = expected.split(), found.split()
    words: list[Word] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            words.append(Word("same", " ".join(a[i:j])))
            continue
        words += [Word(state, " ".join(part)) for state, part in (("lost", a[i:j]), ("new", b[k:m])) if part]
    return tuple(words)


def _picture(canvas: Canvas, shown: SamplePrediction) -> SamplePrediction:
    canvas.image.thumbnail((WIDTH_PIXELS, WIDTH_PIXELS))
    whole = io.BytesIO()
    canvas.image.convert("RGB").save(whole, "WEBP", quality=QUALITY)
    encoded = base64.b64encode(whole.getvalue()).decode("ascii")
    width, height = canvas.image.size
    return SamplePrediction(shown.variant, shown.summary, shown.text, encoded, width, height)


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
