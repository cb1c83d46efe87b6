"""Limits of a variant's loss of accuracy, and the number of samples that proves that it loses no more.

The tasks' own limits are in their metrics (``METRIC`` in edgekit/tasks/<task>/metric.py).
docs/quantization.md has all of them in one table, docs/measured/accuracy-limits.md the reasons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.compiler.evaluate.proof import USED_SAMPLES, Changes, Loss, more_to_count, samples_with_test
from edgekit.compiler.evaluate.task_metric import TaskMetric, metric_named
from edgekit.tensor_spec import Json

KEPT_DROP = 0.03
"""Share of the float model's sure findings, e.g. boxes, that may be lost."""
SURE_DROP = 0.01
"""Share of the answers with a margin above SURE_MARGIN that may change, besides one."""
SNR_DB = 20.0
"""Least SNR of the worst part of an output, without a task: noise of a tenth of the norm. Of 36 boxes of a
YOLOv8n (nudenet's 320n.onnx), int8 variants with 12.7, 14.8 and 17.5 dB kept 30, 34 and 35, two with 19.6
and 20.6 dB all."""
LABEL_LOSS, LABEL_LOSS_HIGH = 0.01, 0.05
"""Largest loss on labels, and its largest upper end, as shares of the float model's score. 1 % of an mAP of
.33 is a third of the width of its interval on 128 photographs."""
SEARCH_MARGIN = 1 / 3
"""Share of the allowed loss that a search leaves to chance. A YOLOX-nano's self-mAP of .959 has an interval
from .950 to .972 (95 %) on 128 photographs; a search has 28."""
NEAR = 1.7
"""Weights rounded to nearest may lose so many times the allowed loss if a better recipe is to help. Forms of
YOLOX-nano went from .916 to .971, from .920 to .976, from .923 to .969, but one from .903 to .916."""
CHANCE = 2.0
"""Number of standard errors of a proportion that count as chance, if the user gives the limit."""


@dataclass(frozen=True)
class Goal:
    """Accuracy goal: the accepted loss. Without either value the limits are those of the task.

    Attributes:
        drop: Share (0 to 1) of the task's own metric if the samples are labelled, else of the fidelity.
        snr_db: Minimum SNR of the worst output, in dB.
    """

    drop: float | None = None
    snr_db: float | None = None

    def missed(
        self,
        fidelity: Fidelity,
        parent: Score | None = None,
        chance_of: int | None = None,
        before: Kept | None = None,
        strict: bool = False,
    ) -> str:
        """Return why a variant misses the goal, as text for the manifest; "" if it meets it.

        Args:
            fidelity: Fidelity of the variant.
            parent: The float model's score on the same samples by the task's own metric; None if they have no
                labels.
            chance_of: Number of validation samples, None on the test samples. On validation samples a
                proportion may be low by up to CHANCE standard errors: 12 of 14 does not contradict 0.9.
            before: Predictions kept on the validation samples. They are added to those on the test samples,
                which are few.
            strict: Whether no lost prediction is attributed to chance.
        """
        if fidelity.lost and self.snr_db != -math.inf:
            return f"{fidelity.lost} of the float model vary, but are constant in int8"
        if self.snr_db is not None:
            enough = fidelity.snr_db >= self.snr_db
            figure = f"SNR {_figure(fidelity.snr_db)} dB{_samples_text(chance_of)}"
            return "" if enough else f"{figure}; {self.snr_db:g} dB is required"
        if self.drop is not None and fidelity.task is not None and parent is not None:
            return _below(fidelity.task, (1 - self.drop) * parent.value, chance_of)
        if fidelity.score.unit:
            # The proportion of the signal's norm that may be noise: 20 log10(1 / drop).
            drop_db = math.inf if not self.drop else -20 * math.log10(self.drop)
            return _below(fidelity.score, SNR_DB if self.drop is None else drop_db, chance_of)
        retained, basis = fidelity.kept, _samples_text(chance_of)
        if retained is not None and before is not None:
            retained, basis = retained.together(before), " on the validation and test samples"
        if self.drop is not None:
            missed = _below(fidelity.score, 1 - self.drop, chance_of)
            return missed or _lost(retained, 1 - self.drop, basis, strict)
        metric = metric_named(fidelity.score.metric)
        assert metric is not None  # the scores of all tasks without a unit are metrics
        if fidelity.changes is not None:
            missed = _changed(metric, fidelity.changes, chance_of)
        else:
            missed = _below(fidelity.score, metric.minimum, chance_of)
        return missed or _lost(retained, 1 - KEPT_DROP, basis, strict) or _disproved(fidelity)

    def has_margin(self, fidelity: Fidelity | None) -> bool:
        """Return whether the search may end with a variant, by its score on the validation samples: it leaves
        SEARCH_MARGIN of the allowed loss to chance, unless the user gave the limit or answers are counted."""
        loss = self._share_of_allowed_loss(fidelity)
        return loss is None or loss <= 1 - SEARCH_MARGIN or self != Goal()

    def is_near(self, fidelity: Fidelity | None) -> bool:
        """Return whether a better recipe may bring a variant with weights rounded to nearest to the limit."""
        loss = self._share_of_allowed_loss(fidelity)
        return loss is None or loss <= NEAR

    def _share_of_allowed_loss(self, fidelity: Fidelity | None) -> float | None:
        """Return the loss as a multiple of the allowed one; None if the score is not a task's metric, or
        counts answers."""
        if fidelity is None or self.snr_db is not None or fidelity.score.unit or fidelity.changes is not None:
            return None
        metric = metric_named(fidelity.score.metric)
        assert metric is not None  # the scores of all tasks without a unit are metrics
        allowed = 1 - metric.minimum if self.drop is None else self.drop
        return (1 - fidelity.score.value) / max(allowed, 1e-9)

    def not_proved(self, fidelity: Fidelity) -> str:
        """Return what the samples are too few to prove, and how many more would do; "" if they prove it, or
        the user gave the limit."""
        metric, proof = metric_named(fidelity.score.metric), fidelity.proof
        if self != Goal() or metric is None or proof is None:
            return ""
        more = max(_more(metric, fidelity), _more_for_interval(metric, fidelity))
        unproved = [f"{metric.name} of at least {metric.low:.2f}"] if more else []
        if proof.loss is not None and (more_labels := _more_labels(proof.loss, proof.samples)):
            unproved.append(f"a loss on labels of at most {100 * LABEL_LOSS_HIGH:g} %")
            more = max(more, more_labels)
        if not unproved:
            return ""
        objects = f" with {proof.objects} objects" if metric.objects else ""
        return (
            f"not proved on {proof.samples} test samples{objects}: {' and '.join(unproved)}; "
            f"{_remedy(proof.samples, more)}"
        )

    def is_doubtful(self, fidelity: Fidelity) -> bool:
        """Return whether the samples are enough for the task, but a variant is too close to its limit for
        them: a more accurate one may be proved."""
        metric = metric_named(fidelity.score.metric)
        if self != Goal() or metric is None or metric.counted or fidelity.proof is None:
            return False
        return not _more(metric, fidelity) and fidelity.proof.low < metric.low

    def as_json(self) -> Json:
        if self.snr_db is not None:
            return f"{self.snr_db:g}dB"
        return None if self.drop is None else f"{100 * self.drop:g}%"


def _remedy(tested: int, more: int) -> str:
    """Return what proves a variant that was tested on some samples, if it takes more of them."""
    enough = samples_with_test(tested + more)
    if enough > USED_SAMPLES:
        return f"a build uses {USED_SAMPLES} samples at most; evaluate the bundle on {tested + more}"
    return f"{enough - samples_with_test(tested)} more samples would do"


def _more(metric: TaskMetric, fidelity: Fidelity) -> int:
    """Return how many more test samples the task needs for any proof; 0 if these are enough."""
    proof = fidelity.proof
    assert proof is not None
    if fidelity.changes is not None:
        return more_to_count(fidelity.changes.changed, fidelity.changes.total, metric.low)
    missing = max(0, metric.objects - proof.objects) / max(proof.objects, 1)
    return max(0, metric.samples - proof.samples, math.ceil(missing * proof.samples))


def _more_for_interval(metric: TaskMetric, fidelity: Fidelity) -> int:
    """Return how many more test samples prove a score that meets its limit, as an interval's width shrinks
    with the square root of their number; 0 if these do."""
    proof, value = fidelity.proof, fidelity.score.value
    if metric.counted or proof is None or proof.low >= metric.low:
        return 0
    width, allowed = value - proof.low, max(value - metric.low, metric.minimum - metric.low)
    return max(1, math.ceil(proof.samples * ((width / allowed) ** 2 - 1)))


def _more_labels(loss: Loss, samples: int) -> int:
    """Return how many more test samples prove the loss on labels, as an interval's width shrinks with the
    square root of their number; 0 if these do."""
    if loss.value <= LABEL_LOSS and loss.high <= LABEL_LOSS_HIGH:
        return 0
    width, allowed = loss.high - loss.value, LABEL_LOSS_HIGH - min(max(loss.value, 0.0), LABEL_LOSS)
    return max(1, math.ceil(samples * ((width / allowed) ** 2 - 1)))


def _changed(metric: TaskMetric, changes: Changes, chance_of: int | None) -> str:
    """Return why too many answers change, as text. One of the test samples, and two of the validation
    samples may in any case, by chance."""
    least = 1 if chance_of is None else 2
    for changed, total, share, of in (
        (changes.changed, changes.total, 1 - metric.minimum, "answers"),
        (changes.sure_changed, changes.sure, SURE_DROP, "confident answers"),
    ):
        allowed = math.floor(least + share * total + 1e-9)
        if changed > allowed:
            return (
                f"{changed} of {total} {of} changed{_samples_text(chance_of)}; at most {allowed} are allowed"
            )
    return ""


def _disproved(fidelity: Fidelity) -> str:
    """Return why the samples contradict the limit of the loss on labels, beyond chance, as text."""
    loss = fidelity.proof.loss if fidelity.proof is not None else None
    if loss is not None and loss.value > LABEL_LOSS and loss.low > 0:
        return (
            f"{100 * loss.value:.1f} % of the float model's score on labels is lost ({100 * loss.low:.1f} to "
            f"{100 * loss.high:.1f} %); at most {100 * LABEL_LOSS:g} % is allowed"
        )
    return ""


def _below(score: Score, minimum: float, chance_of: int | None = None) -> str:
    chance = 0.0
    if chance_of and _is_counted(score.metric):
        chance = CHANCE * math.sqrt(minimum * (1 - minimum) / chance_of)
    if score.value >= minimum - chance:
        return ""
    required = (
        "an exact answer" if minimum == math.inf else f"{minimum:.1f} dB" if score.unit else f"{minimum:.3f}"
    )
    figure = f"{score.metric if score.unit else ''} {score}{_samples_text(chance_of)}".lstrip()
    return f"{figure}; {required} is required"


def _samples_text(chance_of: int | None) -> str:
    """Name the samples, unless they are the test samples, whose figures are in the report."""
    return "" if chance_of is None else " on the validation samples"


def _lost(boxes: Kept | None, minimum: float, location: str, strict: bool) -> str:
    """Return why too few predictions are kept, as text. Unless strict, one of those that the estimate is
    based on may be lost by chance."""
    if boxes is None or not boxes.total or boxes.share >= minimum - (not strict) / boxes.based_on:
        return ""
    counted = f"{boxes.matched} of {boxes.total} confident detections kept{location}"
    estimate = f"an estimated {100 * boxes.share:.1f} % by {boxes.based_on} changes of score"
    return f"{counted}, {estimate}; {100 * minimum:.3g} % is required"


def _is_counted(name: str) -> bool:
    """Return whether a metric is a proportion of the samples."""
    metric = metric_named(name)
    return name == "top-1" or (metric is not None and metric.counted)


def _figure(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else str(value)
