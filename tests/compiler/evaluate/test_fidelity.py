from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity, Score
from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.compiler.evaluate.labels import Label
from edgekit.processing import load_card
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tensor_spec import Array
from tests.fixtures.cards import BOXES, CLASSES, card

CARDS = Path(__file__).resolve().parents[3] / "samples" / "cards"


def logits(*rows: list[float]) -> list[dict[str, Array]]:
    return [{"y": np.array([row], np.float32)} for row in rows]


def boxes(rows: list[list[float]], scores: list[float]) -> list[dict[str, Array]]:
    """One picture with one class; boxes are y1, x1, y2, x2 in parts of the input."""
    return [{"b": np.array([rows], np.float32), "s": np.array([scores], np.float32).reshape(1, -1, 1)}]


def test_classes_agree_where_the_best_is_the_same() -> None:
    judge = Evaluator(CLASSES, logits([1, 2], [2, 1], [3, 1], [0, 1]))
    found = judge.evaluate(logits([0, 9], [5, 1], [1, 2], [0, 1]))
    assert found.score == Score("top-1 agreement", 0.75)
    assert found.rank == found.snr_db  # four pictures: the SNR tells candidates apart
    assert found.task is None


def test_boxes_agree_where_the_float_model_is_sure() -> None:
    a, b = [0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]
    judge = Evaluator(BOXES, boxes([a, b], [0.9, 0.2]))  # the second is below .25: not asked for
    assert judge.metric == "self-mAP"
    assert judge.evaluate(boxes([a, b], [0.8, 0.0])).score == Score("self-mAP", 1.0)
    assert judge.evaluate(boxes([a, b], [0.0, 0.8])).score == Score("self-mAP", 0.0)
    # What is found late, below any usual threshold, still counts as found.
    assert judge.evaluate(boxes([a, b], [0.02, 0.0])).rank == 1.0


def test_a_decoder_that_averages_boxes_agrees_with_itself() -> None:
    """BlazeFace's boxes are means over those above the score, unsure ones included."""
    faces = card(
        {"kind": "detect", "decode": "blazeface", "strides": [8], "outputs": {"boxes": "b", "scores": "s"}}
    )
    outputs = {
        "b": np.array([[[0, 0, 4, 4], [2, 0, 4, 4]]], np.float32),
        "s": np.array([[[1], [-1.2]]], np.float32),
    }
    assert Evaluator(faces, [outputs]).evaluate([outputs]).score == Score("self-mAP", 1.0)


def test_boxes_below_an_apps_threshold_are_not_kept() -> None:
    """mAP depends on the order of the scores, an app on their size."""
    a, b = [0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]
    judge = Evaluator(BOXES, boxes([a, b], [0.9, 0.8]))
    lowered = judge.evaluate(boxes([a, b], [0.3, 0.1]))
    assert lowered.score == Score("self-mAP", 1.0)
    assert counts(lowered) == (1, 2)
    assert counts(judge.evaluate(boxes([a, b], [0.3, 0.25]))) == (2, 2)
    assert counts(judge.evaluate(boxes([a, a], [0.9, 0.8]))) == (1, 2)  # the other is elsewhere


def counts(found: Fidelity) -> tuple[int, int]:
    assert found.kept is not None
    return found.kept.matched, found.kept.total


def test_boxes_that_are_not_sure_tell_how_many_sure_ones_are_kept() -> None:
    """The sure box stays, but scores sink so far that one just above the threshold would not."""
    rows = [[0.0, 0.1 * n, 0.05, 0.1 * n + 0.05] for n in range(4)]
    judge = Evaluator(BOXES, boxes(rows, [0.32, 0.2, 0.2, 0.2]))
    same = judge.evaluate(boxes(rows, [0.32, 0.2, 0.2, 0.2])).kept
    assert same == Kept(1, 1, 1.0, 4)
    # From .2 to .1 the odds are 4/9; from .32 they are then .173. The box's own change leaves it at .25.
    assert judge.evaluate(boxes(rows, [0.25, 0.1, 0.1, 0.2])).kept == Kept(1, 1, 0.5, 4)
    # Two are gone: nothing of their kind is kept.
    assert judge.evaluate(boxes(rows, [0.9, 0.9, 0.0, 0.0])).kept == Kept(1, 1, 0.5, 4)


def test_sure_boxes_are_kept_but_for_one_that_may_be_chance() -> None:
    def missed(
        count: int, of: int, share: float, drop: float | None = None, before: Kept | None = None
    ) -> str:
        found = Fidelity(Score("self-mAP", 0.95), 20.0, kept=Kept(count, of, share, of))
        return Goal(drop).missed(found, before=before)

    assert missed(1, 2, 0.5) == ""
    assert missed(47, 50, 0.955) == ""
    lenient = Fidelity(Score("self-mAP", 0.95), 20.0, kept=Kept(47, 50, 0.955, 50))
    assert "an estimated 95.5 % by 50" in Goal().missed(lenient, strict=True)
    assert missed(47, 50, 0.94) == (
        "47 of 50 confident detections kept, an estimated 94.0 % by 50 changes of score; 97 % is required"
    )
    assert missed(35, 50, 0.7, drop=0.3) == ""
    assert missed(0, 0, 1.0) == ""
    # Counted together with the validation samples: .94 of 50 and .99 of 150.
    assert missed(47, 50, 0.94, before=Kept(149, 150, 0.99, 150)) == ""
    figures = (
        "190 of 200 confident detections kept on the validation and test samples, an estimated 94.8 % by 200"
    )
    assert missed(50, 50, 1.0, before=Kept(140, 150, 0.93, 150)).startswith(figures)


def test_a_detector_that_finds_nothing_is_judged_by_snr() -> None:
    judge = Evaluator(BOXES, boxes([[0, 0, 1, 1]], [0.1]))
    found = judge.evaluate(boxes([[0, 0, 1, 1]], [0.2]))
    assert judge.metric == "SNR"
    assert found.score == Score("SNR", 0.0, "dB")


def test_small_changes_are_measured_where_there_are_most_boxes() -> None:
    at: list[list[float]] = [[0.1, 0.1, 0.2, 0.2], [0.3, 0.3, 0.4, 0.4]]
    expected = [*boxes(at, [0.9, 0.01]), *boxes(at, [0.9, 0.8]), *boxes(at, [0.01, 0.01])]
    evaluator = Evaluator(BOXES, expected)
    assert evaluator.most_telling(1, 2) == [0, 1]
    assert evaluator.most_telling(1, 1) == [1]
    assert evaluator.change_db(expected[1:2], [1]) == math.inf
    halved = evaluator.change_db(boxes(at, [0.45, 0.8]), [1])
    assert halved == pytest.approx(-10 * math.log10(0.25 / 2))
    # The raw output of a background score may change as much, and nothing is lost.
    assert evaluator.change_db(boxes(at, [0.9, 0.008]), [0]) == math.inf
    plain = Evaluator(None, expected)
    assert list(plain.most_telling(2, 9)) == [0, 1]
    assert plain.change_db(expected[:1], [0]) == math.inf


def test_without_a_task_the_worst_output_counts() -> None:
    expected = [{"a": np.array([3.0, 4.0]), "b": np.array([1.0])}]
    found = Evaluator(None, expected).evaluate([{"a": np.array([3.0, 4.5]), "b": np.array([1.0])}])
    assert found == Fidelity(Score("SNR", 20.0, "dB"), 20.0)
    exact = Evaluator(None, expected).evaluate(expected)
    assert exact.score.value == math.inf
    assert (str(exact.score), exact.score.as_json()["value"]) == ("exact", None)


def test_what_is_not_finite_is_worth_nothing() -> None:
    found = Evaluator(CLASSES, logits([1, 2])).evaluate(logits([math.nan, 1]))
    assert found.rank == -math.inf
    assert str(found.score) == "not finite"


def test_labels_give_the_tasks_own_metric() -> None:
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros(0), np.zeros(0, np.int64))
    judge = Evaluator(CLASSES, logits([1, 2], [2, 1]), [Label(0, nothing, None), Label(0, nothing, None)])
    assert judge.evaluate(logits([1, 2], [2, 1])).task == Score("top-1", 0.5)

    there = Detections(np.array([[0, 0, 50, 100]], np.float32), np.ones(1), np.zeros(1, np.int64))
    placed = ImagePlacement(100, 200, 8, 8, 0.08, 0.04)
    judge = Evaluator(BOXES, boxes([[0, 0, 0.5, 0.5]], [0.9]), [Label(-1, there, placed)])
    assert judge.evaluate(boxes([[0, 0, 0.5, 0.5]], [0.9])).task == Score("mAP", 1.0)
    assert judge.evaluate(boxes([[0.5, 0.5, 1, 1]], [0.9])).task == Score("mAP", 0.0)


def test_figures_as_people_read_them() -> None:
    assert str(Score("self-mAP", 0.9084)) == "self-mAP 0.908"
    assert str(Score("SNR", 24.06, "dB")) == "24.1 dB"


@pytest.mark.needs_shared
@pytest.mark.needs_ort
def test_noise_lowers_yolox_self_map(shared: Path) -> None:
    from edgekit.compiler.model.onnx_file import open_model
    from edgekit.compiler.model.reference import Reference
    from edgekit.processing import processing
    from edgekit.processing.picture_files import read_picture

    yolox = load_card(CARDS / "yolox_nano.toml")
    files = sorted((shared / "data" / "coco128" / "train" / "images").glob("*.jpg"))[:4]
    reference = Reference(open_model(shared / "models" / "yolox_nano.onnx"))
    expected = [reference.run(processing.prepare(yolox, read_picture(path))[0]) for path in files]
    judge = Evaluator(yolox, expected)
    rng = np.random.default_rng(0)
    ranks = [
        judge.evaluate(
            [{"output": e["output"] + noise * rng.standard_normal(e["output"].shape)} for e in expected]
        ).rank
        for noise in (0.0, 0.01, 0.1)
    ]
    assert ranks[0] == 1.0
    assert ranks[0] > ranks[1] > ranks[2]
