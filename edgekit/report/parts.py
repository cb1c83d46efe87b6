"""Parts of the page by kind of evidence: each is there if its evidence is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgekit.bundle.advice import machine, p50_ms, timed_on_its_kind
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import kept_of
from edgekit.errors import printable
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.memory_plan import plan_memory
from edgekit.processing.generation import is_generation, read_generation
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.embed import Embedding
from edgekit.processing.predictions.rank import Relevance
from edgekit.processing.predictions.transcribe import Transcript
from edgekit.report import charts
from edgekit.report.answers import Runs, ShownSamples, first_class
from edgekit.report.sources import Answer
from edgekit.runtime.session_card import card_of
from edgekit.system.formats.plain_text import milliseconds, size
from edgekit.tensor_spec import Array

CONFUSIONS, CLASSES_DRAWN = 20, 12
"""Most rows of the table of confusions, and most classes of its chart."""
NAMED = 3
"""Samples that a row names."""
NEAR = 5
"""Neighbours of an embedding that are compared."""
POINTS = 600
"""Most residuals in a chart, evenly spread."""


@dataclass(frozen=True)
class Evidence:
    """A bundle, and the answers of its variants to samples if there are any."""

    bundle: Bundle
    answers: ShownSamples | None


@dataclass(frozen=True)
class Part:
    """A section: a caption, a chart and a table.

    Attributes:
        spec: Vega-Lite specification of the chart; None without a chart.
        numbers: Columns that are aligned as numbers.
    """

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: Sequence[str] = ()
    spec: charts.Spec | None = field(default=None, repr=False)


def parts_of(evidence: Evidence) -> Iterator[tuple[str, str, Part]]:
    """Yield (id, title, part) of each kind of evidence that is there."""
    for name, (title, find) in PARTS.items():
        part = find(evidence)
        if part is not None:
            yield name, title, part


def _runs(evidence: Evidence) -> Runs | None:
    return None if evidence.answers is None else evidence.answers.runs


def confusion(evidence: Evidence) -> Part | None:
    """Return what classifiers take for what: labels against answers; without labels, the float model's."""
    runs = _runs(evidence)
    if runs is None or not isinstance(runs.expected[0].prediction, Classes):
        return None
    own = [first_class(answer) for answer in runs.expected]
    rights, by = (runs.labels, "label") if runs.labels else (own, "float model says")
    everyone = {**({runs.reference: runs.expected} if runs.labels else {}), **runs.found}
    counts: dict[str, Counter[tuple[str, str]]] = {}
    where: dict[tuple[str, str], dict[str, None]] = {}
    for name, answers in everyone.items():
        wrong = [
            (pair, sample)
            for *pair, sample in zip(rights, map(first_class, answers), runs.names, strict=True)
            if pair[0] != pair[1]
        ]
        counts[name] = Counter((right, found) for (right, found), _ in wrong)
        for (right, found), sample in wrong:
            where.setdefault((right, found), {})[sample] = None
    pairs: Counter[tuple[str, str]] = sum(counts.values(), Counter())
    said = ", ".join(f"{name} {each.total()}" for name, each in counts.items())
    rows = [
        (*map(printable, pair), *(str(each[pair] or "-") for each in counts.values()), _some(where[pair]))
        for pair, _ in pairs.most_common(CONFUSIONS)
    ]
    caption = (
        f"Answers other than the {by.removesuffix(' says')}'s on {len(rights)} samples: {said or 'none'}."
    )
    columns = (by, "answer", *counts, "samples")
    return Part(caption, columns, rows, tuple(counts), _confusion_chart(pairs, by))


def _some(names: Collection[str]) -> str:
    """Return the first names of samples, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(list(names)[:NAMED]) + more


def _confusion_chart(pairs: Counter[tuple[str, str]], by: str) -> charts.Spec | None:
    names = Counter[str]()
    for pair, count in pairs.items():
        names.update(dict.fromkeys(pair, count))
    shown = sorted(name for name, _ in names.most_common(CLASSES_DRAWN))
    rows = [
        {"right": right, "answer": found, "count": count, "said": f"{right} taken for {found}: {count}"}
        for (right, found), count in pairs.items()
        if right in shown and found in shown
    ]
    return charts.matrix_chart(rows, shown, by) if len(rows) > 1 else None


def speech(evidence: Evidence) -> Part | None:
    """Return the speed of speech models beside the sound's, and how many words are changed."""
    bundle, runs = evidence.bundle, _runs(evidence)
    variants = [v for v in kept_of(bundle.variants) if "transcription" in v.evidence]
    if not variants:
        return None
    entry = card_of(bundle).sources()[0]
    assert isinstance(entry, AudioInput)
    window_s, rows = entry.window / entry.rate, []
    everyone = {runs.reference: runs.expected, **runs.found} if runs is not None else {}
    for variant in variants:
        own, ms = variant.evidence["transcription"], p50_ms(variant)
        timed = ms is not None and timed_on_its_kind(variant)
        words = f"{own['different']} of {own['words']}" if own["given"] else "-"
        here, changed = "-", "-"
        if runs is not None and variant.name in everyone:
            answers = everyone[variant.name]
            here = _factor(sum(answer.ms for answer in answers), sum(runs.seconds))
            changed = _words_changed(runs, variant.name)
        rows.append(
            (variant.name, milliseconds(ms) if timed and ms else "not timed",
             _factor(ms, window_s) if timed and ms else "-", words, here, changed)
        )  # fmt: skip
    columns = (
        "variant", "a run at build", "real-time factor at build", "words changed at build",
        "real-time factor here", "words changed here",
    )  # fmt: skip
    used = 6 if runs is not None else 4
    machines = ", ".join(dict.fromkeys(machine(v) for v in variants if p50_ms(v) is not None)) or "nothing"
    caption = (
        f"A run takes a window of {window_s:g} s; the build timed it on {machines}. The real-time factor is "
        "the time over the length of the sound: below 1 is faster than speech."
    )
    return Part(caption, columns[:used], [row[:used] for row in rows], columns[1:used])


def _factor(ms: float, seconds: float) -> str:
    return f"{ms / 1000 / seconds:.3f}" if seconds else "-"


def _words_changed(runs: Runs, variant: str) -> str:
    from edgekit.processing.transcripts.words import word_edits, words_of

    pairs = list(zip(runs.expected, runs.found.get(variant, runs.expected), strict=True))
    pairs = [pair for pair in pairs if all(isinstance(one.prediction, Transcript) for one in pair)]
    edits = sum(word_edits(a.prediction.text, b.prediction.text) for a, b in pairs)
    return f"{edits} of {sum(len(words_of(a.prediction.text)) for a, _ in pairs)}"


def language(evidence: Evidence) -> Part | None:
    """Return tokens a second, memory and context of a language model's variants."""
    bundle, runs = evidence.bundle, _runs(evidence)
    if not is_generation(bundle.card) or bundle.card is None:
        return None
    context = read_generation(bundle.card, bundle.name).context_length
    everyone = {runs.reference: runs.expected, **runs.found} if runs is not None else {}
    rows = []
    for variant in kept_of(bundle.variants):
        timing, ms = variant.evidence.get("timing") or {}, p50_ms(variant)
        timed = bool(ms) and timed_on_its_kind(variant)
        read_ms = timing.get("prompt_token_ms")
        weights_bytes = sum(bundle.size_bytes(entry) for entry in variant.files.values())
        plan = plan_memory(variant.options, weights_bytes, None, 1, 0)
        texts = [answer.prediction for answer in everyone.get(variant.name, ())]
        speeds = [
            text.tokens_per_s for text in texts if isinstance(text, GeneratedText) and text.tokens_per_s
        ]
        rows.append(
            (variant.name, f"{1000 / ms:.1f}" if timed and ms else "not timed",
             f"{1000 / read_ms:.0f}" if timed and read_ms else "-", size(plan.total_bytes),
             f"{plan.capacity:,}", f"{np.median(speeds):.1f}" if speeds else "-")
        )  # fmt: skip
    columns = ("variant", "tokens/s at build", "prompt tokens/s", "memory", "at context", "tokens/s here")
    used = 6 if runs is not None else 5
    caption = (
        f"Memory is that of weights, one cache and the engine's work. The model reads at most {context:,} "
        "tokens; a longer context takes a larger cache."
    )
    return Part(caption, columns[:used], [row[:used] for row in rows], columns[1:used])


def neighbours(evidence: Evidence) -> Part | None:
    """Return how many neighbours of each embedding are the same as among the float model's."""
    runs = _runs(evidence)
    if runs is None or not isinstance(runs.expected[0].prediction, Embedding) or len(runs.names) < 3:
        return None
    most = min(NEAR, len(runs.names) - 2)
    own, rows = _nearest(runs.expected, most), []
    for variant, answers in runs.found.items():
        found = _nearest(answers, most)
        kept = np.mean([len({*a} & {*b}) / most for a, b in zip(own, found, strict=True)])
        cosines = [a.prediction.cosine(b.prediction) for a, b in zip(runs.expected, answers, strict=True)]
        changed = [name for name, a, b in zip(runs.names, own, found, strict=True) if a[0] != b[0]]
        first = f"{len(own) - len(changed)} of {len(own)}"
        rows.append((variant, first, f"{100 * kept:.1f} %", f"{min(cosines):.4f}", _some(changed) or "-"))
    columns = ("variant", "nearest kept", f"nearest {most} kept", "least cosine", "other nearest")
    caption = (
        f"Each of {len(own)} samples is looked up among the others by cosine similarity: how often a variant "
        "finds those that the float model finds. The cosine is that to the float model's embedding."
    )
    return Part(caption, columns, rows, columns[1:4])


def _nearest(answers: Sequence[Answer], most: int) -> Array:
    """Return the indices of the nearest other samples, [n, most], the nearest first."""
    vectors = np.stack([answer.prediction.vector for answer in answers]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-30)
    alike = vectors @ vectors.T
    np.fill_diagonal(alike, -np.inf)
    return np.argsort(-alike, axis=1, kind="stable")[:, :most]


def residuals(evidence: Evidence) -> Part | None:
    """Return what variants add to the float model's numbers: outputs without a task, or scores of pairs."""
    runs = _runs(evidence)
    if runs is None or not (own_numbers := _numbers(runs.expected[0])):
        return None
    rows, points = [], []
    for variant, answers in runs.found.items():
        for name in own_numbers:
            own = np.concatenate([_numbers(answer)[name] for answer in runs.expected])
            errors = np.concatenate([_numbers(answer)[name] for answer in answers]) - own
            rows.append((variant, name, *(f"{figure:.4g}" for figure in _figures(own, errors))))
            chosen = np.linspace(0, len(own) - 1, min(POINTS // max(1, len(runs.found)), len(own))).astype(
                int
            )
            points += [
                {"variant": printable(variant), "own": float(own[i]), "residual": float(errors[i])}
                for i in chosen
                if np.isfinite(errors[i])
            ]
    columns = ("variant", "output", "mean", "95 %", "largest", "spread")
    count = f"{len(runs.expected)} sample{'s' if len(runs.expected) > 1 else ''}"
    caption = (
        f"A residual is a variant's value less the float model's, on {count}, in the output's own unit. 95 % "
        "are smaller than the figure in that column; the spread is the standard deviation of the output."
    )
    return Part(caption, columns, rows, columns[2:], charts.residuals_chart(points) if points else None)


def _numbers(answer: Answer) -> Mapping[str, Array]:
    """Return an answer's numbers by name, float64 [n]; nothing of a task with other answers."""
    if isinstance(answer.prediction, Relevance):
        return {"score": np.array([answer.prediction.score])}
    outputs = answer.outputs or {} if answer.prediction is None else {}
    return {name: array.astype(float).ravel() for name, array in outputs.items() if array.dtype.kind == "f"}


def _figures(own: Array, errors: Array) -> tuple[float, ...]:
    sizes = np.abs(errors)
    return errors.mean(), np.quantile(sizes, 0.95), sizes.max(), own.std()


PARTS: dict[str, tuple[str, Callable[[Evidence], Part | None]]] = {
    "confusion": ("Wrong classes", confusion),
    "speech": ("Speech", speech),
    "language": ("Text", language),
    "neighbours": ("Neighbours", neighbours),
    "residuals": ("Residuals", residuals),
}
"""Id -> title, and what finds the part in the evidence."""
