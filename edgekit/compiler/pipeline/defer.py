"""Deferral between two classifiers: the large one runs only if the small one is uncertain."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.deferral_threshold import NEVER, Threshold, find_threshold, samples_needed
from edgekit.compiler.evaluate.samples import Sample, load_samples
from edgekit.compiler.pipeline.deferral_bundle import DeferralPart, deferral_bundle, in_bundle_of_large
from edgekit.errors import MissingDependency, SampleError, UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.runtime.clopper_pearson import CONFIDENCE
from edgekit.runtime.loading import unpacked_files
from edgekit.system import cpu
from edgekit.system.cpu import default_threads
from edgekit.system.formats.plain_text import milliseconds
from edgekit.system.progress import Progress, counted, report, stage
from edgekit.target import registry
from edgekit.target.contract import Runner
from edgekit.target.deferral import LARGE, SMALL, top_and_margin
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Json

SHARE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*")


@dataclass(frozen=True)
class Deferral:
    """Two variants, their joint figures on the samples, and the bundle that has both.

    Attributes:
        small, large: Names of the variants.
        small_ms, large_ms: Median time of a run of each, measured in turns.
        bundle: With the variant ``deferral``; None where it is not ``worthwhile``.
    """

    small: str
    large: str
    threshold: Threshold
    small_ms: float
    large_ms: float
    bundle: Bundle | None = None

    @property
    def expected_ms(self) -> float:
        """The mean time of a run: the small one's, and the large one's for the share that is deferred."""
        return self.small_ms + self.threshold.deferred * self.large_ms

    @property
    def refusal(self) -> str:
        """Return why there is no gain; "" if there is one."""
        if self.threshold.threshold == NEVER:
            return f"{self.small} alone is within the bound: use it without a deferral"
        if self.expected_ms >= self.large_ms:
            return f"{self.large} alone is as fast: use a smaller model, or allow more disagreement"
        return ""

    @property
    def worthwhile(self) -> bool:
        return not self.refusal

    def text(self) -> str:
        proof = self.threshold
        times = f"{milliseconds(self.small_ms)} and {milliseconds(self.large_ms)}"
        ratio = f"{self.expected_ms / self.large_ms:.2f}x of {self.large}"
        condition = (
            "nowhere" if proof.threshold == NEVER else f"where the margin is at most {proof.threshold:.4g}"
        )
        lines = [
            f"  answers   {self.small}; {self.large} {condition}",
            f"  deferred  {proof.deferred:.1%} of {proof.samples} samples",
            f"  differs   {proof.differing} of {proof.samples} from {self.large}: at most {proof.bound:.2%} "
            f"with {proof.confidence:.0%} confidence",
            f"  expected  {milliseconds(self.expected_ms)} a run, {ratio} ({times} alone)",
        ]
        return "\n".join([*lines, *([] if self.worthwhile else [f"  rejected  {self.refusal}"])])

    def as_json(self) -> dict[str, Json]:
        return {
            "small": self.small,
            "large": self.large,
            **self.threshold.as_json(),
            "small_ms": self.small_ms,
            "large_ms": self.large_ms,
            "expected_ms": self.expected_ms,
            "rejected": self.refusal,
        }


def defer(
    small: Bundle | str | Path,
    large: Bundle | str | Path | None = None,
    *,
    samples: str | Path | Sequence[Sample],
    disagreement: str | float,
    confidence: str | float = CONFIDENCE,
    small_variant: str | None = None,
    large_variant: str | None = None,
    progress: Progress = report,
) -> Deferral:
    """Join two classifiers: the large one runs only if the small one is uncertain.

    Args:
        small: The bundle of the small model.
        large: File of the large model, with the same inputs, outputs and card; None: both are variants of
            ``small``, e.g. int8 and fp32.
        samples: Samples in a form that :func:`edgekit.build` takes, without labels: inputs like those of use,
            that neither model was fitted to. 1 % at 95 % confidence needs 299 or more.
        disagreement: Maximum share of results that differ from the large one's: ``1%`` or 0.01.
        confidence: Confidence of that bound: ``95%`` or 0.95.
        small_variant: None: the fastest.
        large_variant: None: the most accurate precision, the fastest of it.
        progress: Called as each stage begins, goes on and ends.

    Raises:
        UsageError: a share is malformed, a variant is unknown, or the two bundles do not fit each other.
        SampleError: there are too few samples to show the bound, or one does not fit.
        MissingDependency: the engine of a variant is not installed.
        BundleError: a bundle can't be opened.
    """
    limit, sure = share_of("--disagreement", disagreement), share_of("--confidence", confidence)
    bundles = [part if isinstance(part, Bundle) else Bundle.open(part) for part in (small, large or small)]
    card = _check_fit(*bundles)
    chosen = [
        _chosen(bundles[0], small_variant, "--small", _fastest),
        _chosen(bundles[1], large_variant, "--large", _most_accurate),
    ]
    if chosen[0].name == chosen[1].name and bundles[0].digest == bundles[1].digest:
        raise UsageError(
            f"{bundles[0].name}: {chosen[0].name} would be both the small and the large variant\n"
            "  pass the bundle of a larger model too, or name two variants with --small and --large"
        )
    names = (in_bundle_of_large(chosen[0].name, *bundles), chosen[1].name)
    inputs = bundles[1].inputs
    with stage(progress, "samples") as notify:
        loaded = load_samples(samples, inputs, card)
        notify(loaded.origin)
    needed = samples_needed(limit, sure)
    if len(loaded.arrays) < needed:
        raise SampleError(
            f"{loaded.origin} are too few to prove a bound of {100 * limit:g} % with {100 * sure:g} % "
            "confidence\n"
            f"  use {needed} or more, or allow more disagreement"
        )
    with ExitStack() as stack, stage(progress, "compared") as notify:
        runners = [_opened(stack, *part) for part in zip(bundles, chosen, strict=True)]
        runs = _Runs(runners, card)
        for sample in counted(loaded.arrays, "samples"):
            runs.add(sample)
        golden = [[runner.run(feeds) for feeds, _ in bundles[1].golden] for runner in runners]
        notify(f"{names[0]} with {names[1]}")
    threshold = find_threshold(runs.margins, runs.differs, limit, sure)
    assert threshold is not None  # there are enough samples
    small_ms, large_ms = (float(f"{1000 * np.median(times):.4g}") for times in runs.seconds)
    result = Deferral(*names, threshold, small_ms, large_ms)
    if not result.worthwhile:
        return result
    parts = [
        DeferralPart(*part)
        for part in zip((SMALL, LARGE), bundles, chosen, golden, (small_ms, large_ms), strict=True)
    ]
    figures = {**result.as_json(), "samples_sha256": loaded.digest}
    bundle = deferral_bundle(parts[0], parts[1], card, threshold, result.expected_ms, figures, runners)
    return replace(result, bundle=bundle)


def share_of(option: str, value: str | float) -> float:
    """Parse a share above 0 and below 1.

    >>> share_of("--disagreement", "1%"), share_of("--confidence", 0.95)
    (0.01, 0.95)

    Raises:
        UsageError: it is none.
    """
    match = SHARE.fullmatch(str(value))
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"{option} is {str(value)!r}; it must be above 0 and below 100 %, e.g. 1% or 0.01")
    return share


class _Runs:
    """Both variants on every sample, in turns: margins, whether they differ, and seconds."""

    def __init__(self, runners: Sequence[Runner], card: Card) -> None:
        assert card.task is not None
        self.margins: list[float] = []
        self.differs: list[bool] = []
        self.seconds: list[list[float]] = [[] for _ in runners]
        self._runners, self._task = runners, card.task

    def add(self, sample: Sample) -> None:
        predictions = []
        for runner, seconds in zip(self._runners, self.seconds, strict=True):
            if not seconds:  # to warm up
                runner.run(sample)
            started = time.perf_counter()
            outputs = runner.run(sample)
            seconds.append(time.perf_counter() - started)
            scores = outputs[self._task.outputs["scores"]]
            predictions.append(top_and_margin(scores, self._task.decode, self._task.options.scale))
        if not all(np.isfinite(margin) for _, margin in predictions):
            raise SampleError(f"sample {len(self.margins)}: the scores are not finite")
        self.margins.append(predictions[0][1])
        self.differs.append(predictions[0][0] != predictions[1][0])


def _check_fit(small: Bundle, large: Bundle) -> Card:
    """Check that two classifiers can be joined, and return the card that both share.

    Raises:
        UsageError: there is none, its task is another, or the two bundles differ.
    """
    for bundle in (small, large):
        if any(v.target == "deferral" for v in bundle.variants):
            raise UsageError(f"{bundle.name} already has a deferral; pass the bundles it was made from")
        if bundle.card is None:
            raise UsageError(f"{bundle.name} has no card, which names the scores; build it with --card")
    if (small.inputs, small.outputs) != (large.inputs, large.outputs):
        raise UsageError(
            f"{small.name} and {large.name} have different inputs or outputs; build them with the same "
            "names, dtypes and shapes"
        )
    if _plain(small) != _plain(large):
        raise UsageError(f"{small.name} and {large.name} have different cards; build both with the same card")
    card = parse_card(large.card or {}, large.inputs, large.outputs)
    if card.task is None or card.task.kind != "classify":
        kind = "none" if card.task is None else card.task.kind
        raise UsageError(f"{large.name}: its card has task {kind}; a deferral needs classify")
    scores = next(spec for spec in large.outputs if spec.name == card.task.outputs["scores"])
    if len(scores.shape) > 1 and scores.shape[0] != 1:
        raise UsageError(f"{large.name} runs a batch of {scores.shape[0]}; build it with a batch of 1")
    return card


def _plain(bundle: Bundle) -> dict[str, Any]:
    return {key: value for key, value in (bundle.card or {}).items() if key != "title"}


def _chosen(bundle: Bundle, name: str | None, option: str, best: Any) -> Variant:
    """Return the variant of this name or, without a name, the best one whose engine is installed."""
    if name is not None:
        named = next((v for v in bundle.variants if v.name == name), None)
        if named is None or not named.verified or not named.usable:
            have = ", ".join(v.name for v in bundle.variants if v.verified and v.usable) or "none"
            raise UsageError(
                f"{bundle.name} has no verified variant {name!r} for {option}; available: {have}"
            )
        registry.engine(named.target).engine_version()
        return named
    usable = [v for v in bundle.variants if v.verified and v.usable and not cpu.lacking(v.options)]
    installed = [v for v in usable if _installed(v.target)]
    if not installed:
        raise UsageError(f"no variant of {bundle.name} can run here; run edgekit verify to see why")
    chosen: Variant = min(installed, key=best)
    return chosen


def _installed(target: str) -> bool:
    try:
        registry.engine(target).engine_version()
    except MissingDependency:
        return False
    return True


def _time_ms(variant: Variant) -> float:
    timing = variant.evidence.get("timing")
    p50 = timing.get("p50_ms") if isinstance(timing, Mapping) else None
    return float(p50) if isinstance(p50, int | float) else float("inf")


def _fastest(variant: Variant) -> float:
    return _time_ms(variant)


def _most_accurate(variant: Variant) -> tuple[bool, int, float]:
    return variant.shrunk is not None, precision_of(variant.precision).accuracy_rank, _time_ms(variant)


def _opened(stack: ExitStack, bundle: Bundle, variant: Variant) -> Runner:
    files = unpacked_files.unpack(bundle, variant)
    engine = registry.engine(variant.target)
    runner = registry.open_ready(
        engine, files, bundle.inputs, bundle.outputs, variant.options, default_threads()
    )
    return stack.enter_context(closing(runner))
