"""Trial of the card on the user's samples, before anything is compiled.

with labels        a card with which the model is worth nothing stops the build, and the lines that are most
                   likely wrong are named; of another one a better card is offered, if there is one
without labels     what no right card does stops the build (edgekit/compiler/evaluate/card_rules.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.card_inference.lines import key_path, toml_value
from edgekit.compiler.evaluate.card_check import class_count
from edgekit.compiler.evaluate.card_rules import (
    COLOUR_PHOTOGRAPHS,
    UNCHECKED,
    check_colour,
    check_texts,
    check_without_labels,
)
from edgekit.compiler.evaluate.label_score import LabelScore, score_on_labels
from edgekit.compiler.evaluate.labels import Label, find_labels, place_labels
from edgekit.compiler.evaluate.samples import FileSamples, Samples, load_samples, read_sample, spread
from edgekit.compiler.evaluate.text_files import is_line
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.better_card import (
    COMPARED_SAMPLES,
    STANDARD_PIXELS,
    TRIED_SAMPLES,
    Outputs,
    find_better_card,
)
from edgekit.errors import CardError, EdgeKitError, SampleError, UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.inputs.image import ImageInput
from edgekit.processing.inputs.text import TextInput
from edgekit.processing.picture_files import PICTURES
from edgekit.system.progress import Progress, stage
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.compiler.pipeline.build_job import BuildJob

LABELLED_SAMPLES = 64
"""Maximum number of labelled samples that a card is tried on: 32 to 64 prove that a classifier that is right
in 5 % is worth nothing."""
NEARLY_BEST = 0.8
"""Lines whose score reaches this share of the best one's are named too."""


class CardChange(NamedTuple):
    """Another value of a line of a card.

    Attributes:
        path: Keys of the line, e.g. ``("inputs", "images", "std")``.
        current: Value in the card; None if the line is missing.
        other: The other value; None to leave the line out.
        drafted: Whether ``edgekit model card`` writes it.
        task: Whole task of the draft, if the line is its decoder, which has options of its own.
    """

    path: tuple[str, ...]
    current: Json
    other: Json
    drafted: bool = False
    task: Json = None

    def __str__(self) -> str:
        origin = " as edgekit model card drafts it" if self.drafted else ""
        return f"{key_path(*self.path)} is {_value(self.current)}, not {_value(self.other)}{origin}"


def are_labelled(samples: Samples, card: Card | None) -> bool:
    """Return whether the samples have labels for the card's task, be they malformed."""
    try:
        return isinstance(samples.arrays, FileSamples) and bool(find_labels(samples.arrays.paths, card))
    except SampleError:
        return True


def try_card(job: BuildJob, samples: Samples, progress: Progress) -> dict[str, Json]:
    """Try the card on labelled samples, or on photographs or texts without labels.

    Returns:
        Entries of the manifest's ``samples``: with labels ``labels``, the score or ``{unused}`` with the
        reason that they can't be used; on photographs and texts without labels ``card``, a list of findings.

    Raises:
        CardError: the model is worth nothing with this card, or the card does not fit the model, and the
            build is not forced.
        SampleError: the labels are malformed, and variants are tested on them.
        UsageError: the build is forced, but there is nothing to try the card on and no accuracy goal.
    """
    card = job.card
    if card is not None and card.task is not None and are_labelled(samples, card):
        score = _try_on_labels(job, card, samples, progress)
        return {} if score is None else {"labels": score}
    if card is not None and isinstance(samples.arrays, FileSamples):
        findings = _try_without_labels(job, card, samples.arrays, progress)
        if findings is not None:
            return {"card": findings}
    if job.request.force and not job.options.has_goal:
        raise UsageError("--force applies to int8 and to a card with photographs or labels; leave it out")
    return {}


def _try_without_labels(
    job: BuildJob, card: Card, samples: FileSamples, progress: Progress
) -> list[str] | None:
    """Return the findings on the card, as text; None if its inputs or the samples can't be checked."""
    inputs = card.fed_inputs()
    has_text = any(isinstance(entry, TextInput) and entry.part == "ids" for entry in inputs)
    if not has_text and (len(inputs) != 1 or not isinstance(inputs[0], ImageInput)):
        return None
    if not (any(map(is_line, samples.paths)) if has_text else _photographs(samples)):
        return None
    with stage(progress, "card") as notify:
        if not job.holds_out:  # only a few were loaded, to verify variants
            limit = LABELLED_SAMPLES if has_text else COLOUR_PHOTOGRAPHS
            loaded = load_samples(job.request.samples, job.inputs, card, limit).arrays
            samples = loaded if isinstance(loaded, FileSamples) else samples
        if has_text:
            findings = list(check_texts(job.source, card, samples[:LABELLED_SAMPLES]))
        else:
            findings = check_without_labels(job.source, card, _photographs(samples))
        errors = [finding.text for finding in findings if finding.is_error]
        if errors and not job.request.force:
            fix = "correct the card, or use --force to build anyway"
            raise CardError("\n  ".join([f"{card.title}: this card does not fit the model", *errors, fix]))
        notify("; ".join(finding.text for finding in findings) or "nothing contradicts it")
        return [*(finding.text for finding in findings), *([] if has_text else [UNCHECKED])]


def _photographs(samples: FileSamples) -> list[Path]:
    return [path for path in samples.paths if path.suffix.lower() in PICTURES]


def _try_on_labels(job: BuildJob, card: Card, samples: Samples, progress: Progress) -> dict[str, Json] | None:
    assert card.task is not None
    with stage(progress, "labels", live=True) as notify:
        if not job.holds_out:  # only a few were loaded, to verify variants
            samples = load_samples(job.request.samples, job.inputs, card, COLOUR_PHOTOGRAPHS)
        arrays = samples.arrays
        assert isinstance(arrays, FileSamples)
        indices = spread(range(len(arrays)), LABELLED_SAMPLES)
        chosen = arrays.select(indices)
        try:
            labels = find_labels(chosen.paths, card) or []
        except SampleError as problem:
            if job.holds_out:
                raise
            notify(f"not used: {problem}")
            return {"unused": str(problem)}
        count = class_count(card, job.outputs) or len(card.task.labels)
        numbers = [int(index) for label in labels for index in (label.index, *label.boxes.classes)]
        if count and max(numbers) >= count:
            unused = f"they have a class number of {max(numbers)}, but the model has {count} classes"
            notify(f"not used: {unused}")
            return {"unused": unused}
        reference = Reference(job.source, optimize=True)
        outputs: list[Mapping[str, Array]] = []
        for sample in chosen:
            notify("", len(outputs), len(chosen), "samples")
            outputs.append(reference.run(sample))
        score = score_on_labels(card, outputs, labels)
        if score is None:
            return None
        notify(str(score))
        if score.is_nothing and not job.request.force:
            _refuse(job, card, score, chosen, outputs, labels, reference)
        others = sorted({*range(len(arrays))} - {*indices})
        further = arrays.select(spread(others, COMPARED_SAMPLES - LABELLED_SAMPLES))
        better = (
            ""
            if score.is_nothing or job.image is not None
            else find_better_card(job.inputs, card, score, chosen, outputs, labels, further, reference)
            or check_colour(job.source, card, _photographs(arrays))
        )
        return {**score.as_json(), **({"better": better} if better else {})}


def _refuse(
    job: BuildJob,
    card: Card,
    score: LabelScore,
    samples: FileSamples,
    outputs: Outputs,
    labels: Sequence[Label],
    reference: Reference,
) -> None:
    """Raise CardError, unless the labels are of another numbering and no other card is better."""
    written = card if job.image is None else replace(card, inputs={**card.inputs, job.image.name: job.image})
    changes = list(_changes_of_draft(job, written))
    tried = spread(range(len(samples)), TRIED_SAMPLES)
    subset = [outputs[index] for index in tried], [labels[index] for index in tried]
    better: list[tuple[float, Sequence[CardChange]]] = []
    drafted = [[change] for change in changes] + ([changes] if len(changes) > 1 else [])
    for alternatives in (drafted, _standard_pixels(written)) if job.image is None else ():
        for lines in alternatives:
            value = _score_with(job, written, lines, samples.select(tried).paths, subset, reference)
            better += [] if value is None else [(value, lines)]
        if better:
            break
    if score.numbering and not better:
        return
    nearly = [one for one in better if one[0] >= NEARLY_BEST * max(value for value, _ in better)]
    fewest = min((len(lines) for _, lines in nearly), default=0)
    named = [
        f"most likely wrong: {'; '.join(map(str, lines))}: {score.metric} is {value:.3f} with that on "
        f"{len(tried)} samples"
        for value, lines in nearly
        if len(lines) == fewest
    ]
    if not named and changes:
        named = [f"edgekit model card writes these lines differently: {'; '.join(map(str, changes))}"]
    if not named:
        named = [
            "compare the lines of [inputs] and [task] with the training code, and the labels with its classes"
        ]
    raise CardError(
        "\n  ".join([
            f"{card.title}: with this card the model is worth nothing: {score}",
            *named,
            "correct the card or the labels, or use --force to build anyway",
        ])
    )  # fmt: skip


def _changes_of_draft(job: BuildJob, card: Card) -> Iterator[CardChange]:
    """Yield the lines that change results and that ``edgekit model card`` would write differently."""
    request = job.request
    shapes = {spec.name: spec.shape for spec in job.inputs} if job.image is None else {}
    try:
        drafted = draft_card(request.model, shapes, request.example_inputs, request.trust_pickle).card
    except EdgeKitError:  # a model that has no draft, e.g. without a usual size
        return
    current, other = card.as_json(), drafted.as_json()
    for table, one, two in (
        *(
            (("inputs", name), current["inputs"][name], other["inputs"].get(name))
            for name in current["inputs"]
        ),
        (("task",), current["task"], other.get("task")),
    ):
        if two is None or one.get("kind") != two.get("kind"):
            continue  # the draft knows less than the card
        keys = dict.fromkeys([*one, *two])
        if one.get("decode") != two.get("decode"):
            keys = {"decode": None}  # the options are those of the decoder
        for key in keys:
            if key not in ("labels", "shape") and one.get(key) != two.get(key):
                whole = {**two, "labels": one["labels"]} if key == "decode" else None
                yield CardChange((*table, key), one.get(key), two.get(key), True, whole)


def _standard_pixels(card: Card) -> Iterator[list[CardChange]]:
    """Yield the other standard ranges of pixels and the other order of colours for the card's picture."""
    for name, entry in card.inputs.items():
        if not isinstance(entry, ImageInput) or entry.channels != 3:
            continue
        other = {"RGB": "BGR", "BGR": "RGB"}.get(entry.colour)
        if other is not None:
            yield [CardChange(("inputs", name, "colour"), entry.colour, other)]
        for mean, std in STANDARD_PIXELS:
            lines = [("mean", entry.mean, mean), ("std", entry.std, std)]
            yield [
                CardChange(("inputs", name, key), list(current), list(value))
                for key, current, value in lines
                if tuple(current) != value
            ]


def _score_with(
    job: BuildJob,
    card: Card,
    lines: Sequence[CardChange],
    paths: Sequence[Path],
    tried: tuple[Outputs, Sequence[Label]],
    reference: Reference,
) -> float | None:
    """Return the score with other lines; None if they do not fit the model or the model does not work."""
    outputs, labels = tried
    table = card.as_json()
    for line in lines:
        *keys, last = line.path
        entry = table
        for key in keys:
            entry = entry[key]
        if line.task is not None:
            table["task"] = line.task
        elif line.other is None:
            entry.pop(last)
        else:
            entry[last] = line.other
    try:
        other = parse_card(table, job.inputs, job.outputs)
        if any(line.path[0] == "inputs" for line in lines):
            outputs = [reference.run(read_sample(path, job.inputs, other)) for path in paths]
            labels = place_labels(labels, other)
        score = score_on_labels(other, outputs, labels)
    except EdgeKitError:  # a line that needs another one, e.g. place = "center" without a letterbox
        return None
    return score.value if score is not None and score.works else None


def _value(value: Json) -> str:
    return "missing" if value is None else toml_value(value)
