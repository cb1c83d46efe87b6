"""``edgekit.evaluate``: the accuracy of a bundle's variants, or of a model, on labelled samples."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle.bundle import MAGIC, Bundle
from edgekit.bundle.kept_variants import kept_variants
from edgekit.bundle.report import lowest_snr_db
from edgekit.bundle.variant import Variant
from edgekit.compiler.accuracy.estimates import RESAMPLES, Resampled, estimate, loss, resamples
from edgekit.compiler.accuracy.evaluation import WORST, Evaluation, VariantAccuracy
from edgekit.compiler.accuracy.exported_file import exported_bundle
from edgekit.compiler.evaluate.card_check import class_count
from edgekit.compiler.evaluate.label_metric import (
    Item,
    LabelledSample,
    LabelledSamples,
    LabelMetric,
    Scores,
    label_metric,
)
from edgekit.errors import EdgeKitError, SampleError, UsageError, printable, reason_of
from edgekit.processing.audio_preparation import loudest, mono
from edgekit.processing.card import Card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.picture_files import read_picture
from edgekit.processing.processing import predicts_in_parts
from edgekit.processing.sound_files import read_sound
from edgekit.runtime import Session
from edgekit.runtime.session_card import card_of
from edgekit.system.progress import counted, step
from edgekit.system.python_calls import public
from edgekit.target import registry
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Array, TensorSpec


@public
def evaluate(
    model: str | os.PathLike[str] | Bundle,
    samples: str | os.PathLike[str],
    *,
    card: Card | str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    variant: str | None = None,
    engine: str | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> Evaluation:
    """Evaluate variants, or a model, on labelled samples.

    The metric is that of the card's task, e.g. mAP or top-1, with a 95 % interval. Losses refer to the source
    model, or without it to the float variant that is closest to it.

    Args:
        model: A bundle or its path; or a model's path, which ``card`` describes.
        samples: Folder of samples and their labels (docs/evaluate.md).
        card: Card of a model that is not a bundle, or the card's path.
        source: Model that the bundle was built from, to evaluate it too.
        variant: Name of the only variant to evaluate. None means all.
        engine: Target whose variants are evaluated, or that runs the model. None means all, or ONNX Runtime.
        threads: Number of threads of one inference. None means the session's default.
        progress: Whether a terminal or a notebook shows a line while it runs.

    Raises:
        UsageError: there is no card with a task that has a metric, or the variant is unknown.
        SampleError: the samples or labels can't be read.
        MissingDependency: the format of the labels needs a package that is not installed.
        ModelError, CardError: the model can't be opened, or the card does not describe it.
    """
    with opened(model, card, source, engine) as (name, bundle, float_bundle):
        bundle_card = card_of(bundle)
        metric = label_metric(bundle_card)
        labelled = read_labelled(metric, samples, bundle_card, bundle.outputs)
        run = _Run(metric, bundle_card, labelled.samples, threads)
        rows = []
        if float_bundle is not None:
            rows.append(run.row(name, float_bundle, kept_variants(float_bundle)[0]))
        for one in _chosen(bundle, variant, engine) if bundle is not float_bundle else ():
            rows.append(run.row(one.name, bundle, one))
        return Evaluation(
            bundle_card.title,
            metric.name,
            metric.is_error,
            len(labelled.samples),
            run.labelled,
            metric.units,
            labelled.form,
            [*labelled.notes, *run.notes],
            run.reference,
            rows,
        )


def read_labelled(
    metric: LabelMetric, samples: str | os.PathLike[str], card: Card, outputs: Sequence[TensorSpec]
) -> LabelledSamples:
    """Read the samples and labels.

    Args:
        outputs: Outputs of the model.

    Raises:
        SampleError: the samples or labels can't be read, there are none, or the model has fewer classes.
        MissingDependency: the format of the labels needs a package that is not installed.
    """
    labelled = metric.read(Path(samples), card)
    if not labelled.samples:
        raise SampleError(f"{samples}: no sample has a label that the model knows")
    classes = class_count(card, outputs)
    highest = max((s.label for s in labelled.samples if isinstance(s.label, int)), default=-1)
    if classes and highest >= classes:
        raise SampleError(f"{samples} has a class number of {highest}, but the model has {classes} classes")
    return labelled


@contextmanager
def opened(
    model: str | os.PathLike[str] | Bundle,
    card: Card | str | os.PathLike[str] | None,
    source: str | os.PathLike[str] | None,
    engine: str | None,
) -> Iterator[tuple[str, Bundle, Bundle | None]]:
    """Yield the name of the float model, the bundle, and the float model as a bundle if there is one.

    Args and errors are those of :func:`evaluate`.
    """
    if not isinstance(model, Bundle) and not _is_bundle(Path(model)):
        if card is None:
            raise UsageError(
                f"{model} is a model, so it needs a card: add --card card.toml (edgekit model card {model} "
                "-o card.toml drafts one)"
            )
        if source is not None:
            raise UsageError(f"--source goes with a bundle, but {model} is a model")
        built = exported_bundle(model, card, engine) or _float_bundle(model, card, engine)
        yield Path(model).name, built, built
        return
    bundle = model if isinstance(model, Bundle) else Bundle.open(model)
    try:
        if card is not None:
            raise UsageError("--card goes with a model; a bundle has its own card")
        bundle.verify_entries()
        yield Path(source or "").name, bundle, _float_bundle(source, card_of(bundle)) if source else None
    finally:
        if bundle is not model:
            bundle.close()


def _is_bundle(path: Path) -> bool:
    """Return whether a file begins as bundles do. A missing file is one too: opening it says so."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except FileNotFoundError:
        return True
    except OSError:  # a folder of a model
        return False


def _float_bundle(
    model: str | os.PathLike[str], card: Card | str | os.PathLike[str], engine: str | None = None
) -> Bundle:
    from edgekit.compiler.sandbox.public import build  # here: a device that evaluates a bundle builds none

    described = card if isinstance(card, Card) else Path(card)
    with step("opening") as notify:
        notify(Path(model).name)
        return build(
            Path(model),
            targets=[engine or "ort"],
            card=described,
            precision=FULL_PRECISION,
            progress=False,
        )


def _chosen(bundle: Bundle, name: str | None, engine: str | None) -> list[Variant]:
    """Return the variants to evaluate, the reference first."""
    variants = [v for v in kept_variants(bundle) if name in (None, v.name) and engine in (None, v.target)]
    if not variants:
        available = ", ".join(v.name for v in kept_variants(bundle))
        raise UsageError(f"{bundle.name} has no variant {name or f'for {engine}'}; available: {available}")

    def closeness(variant: Variant) -> tuple[bool, float]:
        return variant.precision == FULL_PRECISION and variant.shrunk is None, lowest_snr_db(variant) or 0.0

    reference = max(variants, key=closeness)
    return [reference, *(v for v in variants if v is not reference)]


class _Run:
    """Evaluation of variants on the same samples.

    Args:
        metric: The task's metric.
        card: Card of the model.
        samples: The labelled samples.
        threads: Threads of a session.

    Attributes:
        reference: Name of the first row that ran.
        labelled: Number of labelled objects.
        notes: Rows that ran on a substitute for their device.
    """

    def __init__(
        self, metric: LabelMetric, card: Card, samples: Sequence[LabelledSample], threads: int | None
    ) -> None:
        self._metric, self._card, self._samples, self._threads = metric, card, samples, threads
        self._draws = resamples(len(samples))
        self._reference: tuple[Resampled, Scores] | None = None
        self.reference, self.labelled = "", 0
        self.notes: list[str] = []

    def row(self, name: str, bundle: Bundle, variant: Variant) -> VariantAccuracy:
        """Evaluate a variant."""
        try:
            scores = self._scores(name, bundle, variant)
        except EdgeKitError as problem:
            if isinstance(problem, SampleError):
                raise
            return VariantAccuracy(name, f"not run: {printable(reason_of(problem))}")
        metric = estimate(
            scores, [self._draws[index] for index in counted(range(RESAMPLES), "resamples", name=name)]
        )
        self.labelled = scores.labelled
        emulated = registry.engine(variant.target).ENGINE.stands_in_for
        if emulated and (device := emulated()):
            self.notes.append(f"{name} was not run on {device}, but by an emulation of it")
        if metric is None:
            raise SampleError("no sample has a labelled object, so there is nothing to compare with")
        if self._reference is None:
            self._reference, self.reference = (metric, scores), name
            return VariantAccuracy(
                name, score=metric.estimate, groups=scores.groups, worst=self._worst(scores)
            )
        base, base_scores = self._reference
        lost = loss(base, metric, scores, self._metric.is_error)
        worst = self._worst(scores, base_scores.errors)
        return VariantAccuracy(name, score=metric.estimate, loss=lost, groups=scores.groups, worst=worst)

    def _scores(self, name: str, bundle: Bundle, variant: Variant) -> Scores:
        measures = []
        with Session(bundle, variant=variant.name, strict=True, threads=self._threads) as session:
            for sample in counted(self._samples, "samples", name=name):
                prediction = _predict(session, sample.item, self._metric)
                measures.append(self._metric.measure(sample.label, prediction, self._card))
        return self._metric.score(measures, self._card)

    def _worst(self, scores: Scores, base: Array | None = None) -> list[tuple[str, str]]:
        """Return the worst samples: those with the largest errors, or the largest excess over a base."""
        excess = scores.errors - (0 if base is None else base)
        order = [int(index) for index in np.argsort(-excess, kind="stable")[:WORST] if excess[index] > 0]
        return [(self._samples[index].name, scores.faults[index]) for index in order]


def _predict(session: Session, item: Item | tuple[Item, ...], metric: LabelMetric) -> Any:
    """Predict for one sample; of a recording that is longer than the model's window, for its loudest part."""
    if isinstance(item, tuple):
        return [_predict(session, part, metric) for part in item]
    card = session.card
    if card.carries:
        session.reset()
    if isinstance(item, str):
        return session.predict(item, **metric.options)
    source = card.sources()[0]
    if isinstance(source, AudioInput):
        sound = read_sound(item)
        if predicts_in_parts(card):
            return session.predict(sound.samples, rate=sound.rate, **metric.options)
        window = loudest(mono(sound.samples, source, sound.rate), source)
        return session.predict(window, rate=source.rate, **metric.options)
    return session.predict(read_picture(item), **metric.options)
