from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.average_precision import (
    RESAMPLES,
    bootstrap,
    mean_average_precision,
    resample_average_precision,
)
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity, Score
from edgekit.compiler.evaluate.labels import Label
from edgekit.compiler.evaluate.proof import (
    Changes,
    Loss,
    Proof,
    lost_answers,
    lost_precision,
    lowest_score,
)
from edgekit.compiler.evaluate.task_metric import TaskMetric, metric_of
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.task_table import all_tasks
from edgekit.tasks.detect.metric import HALVING_GAIN
from edgekit.tensor_spec import Array
from tests.fixtures.cards import CLASSES

DOCS = Path(__file__).parents[3] / "docs" / "quantization.md"
NO_BOXES = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))


def classes(changed: int, total: int, sure_changed: int = 0, sure: int = 0) -> Fidelity:
    proof = Proof(total, 0, 1 - changed / total)
    score = Score("top-1 agreement", 1 - changed / total)
    return Fidelity(score, 25.0, changes=Changes(changed, total, sure_changed, sure), proof=proof)


def detector(value: float, low: float, samples: int = 43, objects: int = 200, **proof: Loss) -> Fidelity:
    return Fidelity(Score("self-mAP", value), 15.0, proof=Proof(samples, objects, low, **proof))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (classes(1, 14), ""),  # one may be chance
        (classes(2, 14), "2 of 14 answers changed; at most 1 are allowed"),
        (classes(9, 500, 0, 458), ""),  # Lite0's best int8
        (classes(12, 500), "12 of 500 answers changed; at most 11 are allowed"),
        (classes(3, 150, 3, 120), "3 of 120 confident answers changed; at most 2 are allowed"),
        (detector(0.96, 0.89), ""),  # not proved
        (detector(0.94, 0.93), "self-mAP 0.940; 0.950 is required"),
        (
            detector(0.98, 0.97, loss=Loss(0.024, 0.01, 0.04)),
            "2.4 % of the float model's score on labels is lost (1.0 to 4.0 %); at most 1 % is allowed",
        ),
        (detector(0.98, 0.97, loss=Loss(0.024, -0.01, 0.06)), ""),  # chance: not proved
    ],
)
def test_a_task_has_limits_that_samples_can_contradict(found: Fidelity, why: str) -> None:
    assert Goal().missed(found) == why


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (detector(0.97, 0.94), ""),
        (
            detector(0.97, 0.95, 14, 80),
            "not proved on 14 test samples with 80 objects: self-mAP of at least 0.94; 6 more "
            "samples would do",
        ),
        (
            detector(0.97, 0.95, 20, 50),
            "not proved on 20 test samples with 50 objects: self-mAP of at least 0.94; 36 more "
            "samples would do",
        ),
        (
            detector(0.96, 0.93, 20, 75),  # more for the interval than for the boxes
            "not proved on 20 test samples with 75 objects: self-mAP of at least 0.94; 71 more "
            "samples would do",
        ),
        (
            detector(0.96, 0.93),
            "not proved on 43 test samples with 200 objects: self-mAP of at least 0.94; 54 more "
            "samples would do",
        ),
        (
            detector(0.95, 0.92),
            "not proved on 43 test samples with 200 objects: self-mAP of at least 0.94; a build uses 192 "
            "samples at most; evaluate the bundle on 387",
        ),
        (classes(0, 43), ""),
        (
            classes(1, 43),
            "not proved on 43 test samples: top-1 agreement of at least 0.90; 3 more samples would do",
        ),
        (
            detector(0.98, 0.97, 43, loss=Loss(0.005, -0.05, 0.08)),
            "not proved on 43 test samples with 200 objects: a loss on labels of at most 5 %; a build "
            "uses 192 samples at most; evaluate the bundle on 120",
        ),
        (Fidelity(Score("SNR", 25.0, "dB"), 25.0), ""),
    ],
)
def test_too_few_samples_are_never_a_silent_pass(found: Fidelity, why: str) -> None:
    assert Goal().missed(found) == ""
    assert Goal().not_proved(found) == why
    assert Goal(drop=0.1).not_proved(found) == ""  # the user's own limit is that of the observed score


def test_a_variant_is_doubtful_if_the_samples_are_enough_but_its_score_is_too_close_to_the_limit() -> None:
    assert Goal().is_doubtful(detector(0.96, 0.93))
    assert not Goal().is_doubtful(detector(0.97, 0.95))
    assert not Goal().is_doubtful(detector(0.96, 0.93, 14))  # no variant would be proved on so few
    assert not Goal().is_doubtful(classes(1, 43))  # one change is chance
    assert not Goal(drop=0.1).is_doubtful(detector(0.96, 0.93))


def test_max_drop_loosens_the_limits() -> None:
    assert Goal(drop=0.2).missed(classes(9, 50, 9, 50)) == ""
    assert Goal(drop=0.2).missed(detector(0.81, 0.5)) == ""
    assert Goal(drop=0.2).missed(detector(0.79, 0.5)) == "self-mAP 0.790; 0.800 is required"


def test_the_documented_limits_are_those_of_the_tasks() -> None:
    rows = [line.split("|") for line in DOCS.read_text("utf-8").splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): row[3:5] for row in rows if len(row) > 5}
    for task in all_tasks():
        metric = metric_of(task.kind)
        if metric is None:
            continue
        numbers = [float(cell.split()[0]) for cell in documented[task.kind]]
        assert numbers == [metric.minimum, metric.low], task.kind


def shuffled(seed: int, pictures: int) -> tuple[list[Detections], list[Detections]]:
    """Boxes, and the same moved and scored at random."""
    rng = np.random.default_rng(seed)
    truth, found = [], []
    for _ in range(pictures):
        corner = rng.uniform(0, 300, (6, 2))
        boxes = np.concatenate([corner, corner + rng.uniform(20, 90, (6, 2))], axis=1).astype(np.float32)
        kinds = rng.integers(0, 4, 6)
        truth.append(Detections(boxes, np.ones(6, np.float32), kinds))
        moved = (boxes + rng.normal(0, 4, boxes.shape)).astype(np.float32)
        found.append(Detections(moved, rng.uniform(0, 1, 6).astype(np.float32), kinds))
    return truth, found


def test_resamples_are_the_map_of_the_pictures_that_were_drawn() -> None:
    truth, found = shuffled(0, 9)
    resampled = resample_average_precision(truth, found, bootstrap(9))
    draws = np.random.default_rng(0).integers(9, size=(RESAMPLES, 9))
    for index in range(0, RESAMPLES, 40):
        one, other = ([pictures[i] for i in draws[index]] for pictures in (truth, found))
        assert resampled[index] == pytest.approx(mean_average_precision(one, other), abs=0.002)


def test_the_lower_end_of_a_mean_is_as_far_from_it_as_its_standard_error_says() -> None:
    scores = np.random.default_rng(4).uniform(0.9, 1, 64)
    metric = TaskMetric("mean", lambda _, found: float(np.mean(found)), minimum=0.95)
    low, error = lowest_score(metric, list(scores), list(scores)), float(scores.std() / 8)
    assert scores.mean() - low == pytest.approx(1.645 * error, rel=0.2)


def test_the_lower_end_of_a_self_map_is_that_on_many_images() -> None:
    metric = metric_of("detect")
    assert metric is not None
    truth, _ = shuffled(2, 128)
    assert lowest_score(metric, truth, truth) == 1
    assert lowest_score(metric, truth[:32], truth[:32]) == pytest.approx(1 - 2 * HALVING_GAIN)


def test_a_loss_on_labels_has_an_interval() -> None:
    right = np.ones(100, np.bool_)
    loss = lost_answers(right, right)
    assert loss == pytest.approx((0, -0.0295, 0.0295), abs=1e-3)  # no change in 100: at most 3 % with 95 %
    worse = lost_answers(right, np.arange(100) >= 30)
    assert worse is not None
    assert 0.19 < worse.low < worse.value == 0.3 < worse.high < 0.4
    assert lost_answers(~right, right) is None  # worth nothing on these labels
    truth, found = shuffled(1, 20)
    same = lost_precision(truth, found, found)
    assert same == (0, 0, 0)
    lossy = lost_precision(truth, found, [NO_BOXES if i % 2 else boxes for i, boxes in enumerate(found)])
    assert lossy is not None
    assert 0.2 < lossy.low < lossy.value < lossy.high < 0.9


def test_an_evaluator_counts_changes_and_proves() -> None:
    def logits(rows: Array) -> list[dict[str, Array]]:
        return [{"y": row[None].astype(np.float32)} for row in rows]

    sure, unsure = np.array([4.0, 0]), np.array([0.1, 0])
    evaluator = Evaluator(
        CLASSES, logits(np.stack([sure] * 30 + [unsure] * 10)), [Label(0, NO_BOXES, None)] * 40
    )
    swapped = np.stack([sure[::-1]] + [sure] * 29 + [unsure[::-1]] * 2 + [unsure] * 8)
    found = evaluator.evaluate(logits(swapped), prove=True)
    assert found.changes == (3, 40, 1, 30)
    assert found.proof is not None
    assert found.proof.low == pytest.approx(0.8174, abs=1e-3)
    assert found.proof.loss is not None
    assert found.proof.loss.value == 3 / 40
    assert evaluator.evaluate(logits(swapped)).proof is None
