"""What a student of a detector is trained for: boxes count where the teacher sees something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.processing.card import load_card
from tests.fixtures.graphs import Graph

torch: Any = pytest.importorskip("torch")

CARD = Path(__file__).parents[2] / "samples/cards/yolox_nano.toml"


def answers(decode: str) -> Any:
    """``[2, 1, 6, 8]``: 6 rows of a box, objectness and 3 classes; the teacher sees one object, in row 2."""
    rows = np.random.default_rng(0).normal(size=(2, 1, 6, 8)).astype(np.float32)
    rows[..., 4:] = 0.0
    rows[..., 2, 4] = rows[..., 2, 6] = 0.9
    rows[..., 5, 7] = 0.8 if decode == "yolox" else 0.0  # a class that no objectness goes with
    tensor = torch.from_numpy(rows)
    return tensor if decode == "yolox" else tensor.transpose(2, 3).contiguous()


@pytest.mark.parametrize("decode", ["yolox", "yolov8"])
def test_what_is_never_read_costs_nothing(decode: str) -> None:
    from edgekit.compiler.compress.torch.distillation_loss import DETECTORS, DistillationLoss, Term

    rows, teacher = DETECTORS[decode], answers(decode)
    loss = DistillationLoss([Term("y", "y", None, rows.parts, rows=rows)], {"y": teacher})

    def cost(row: int, column: int) -> float:
        student = teacher.clone()
        at = (row, column) if decode == "yolox" else (column, row)
        student[..., at[0], at[1]] += 0.5
        return float(loss({"y": student}, {"y": teacher}))

    assert cost(0, 0) == 0.0, "a box of the background"
    assert cost(2, 0) > 0.01
    assert cost(0, 4) > 0.01, "an object where there is none"
    if decode == "yolox":
        assert cost(5, 7) == 0.0, "a class of the background"
        assert cost(5, 0) == 0.0, "a box that a class goes with, and no object"
    assert cost(2, 6) > 0.01
    assert float(loss({"y": teacher}, {"y": teacher})) == 0.0


def test_a_score_of_nearly_0_has_a_gradient() -> None:
    """By the squared error a Sigmoid has none there, and nothing that it missed would be learned."""
    from edgekit.compiler.compress.torch.distillation_loss import DETECTORS, DistillationLoss, Term

    rows, teacher = DETECTORS["yolox"], answers("yolox")
    loss = DistillationLoss([Term("y", "y", None, rows.parts, rows=rows)], {"y": teacher})
    for column in (4, 6):  # objectness, class
        logit, student = torch.tensor(-9.0, requires_grad=True), teacher.clone()
        student[..., 2, column] = torch.sigmoid(logit)
        loss({"y": student}, {"y": teacher}).backward()
        assert float(logit.grad) < -0.1


@pytest.mark.parametrize("decode", ["yolox", "yolov8"])
def test_boxes_are_compared_by_how_far_those_of_objects_are_apart(decode: str) -> None:
    """The background's boxes are anywhere: by their variance an error of an object's would be nothing."""
    from edgekit.compiler.compress.torch.distillation_loss import DETECTORS, DistillationLoss, Term

    rows, near = DETECTORS[decode], answers(decode)
    far, student = near.clone(), near.clone()
    far[..., 0, 0] = 1000.0  # of the background: row 0 has no object
    box = (2, 0) if decode == "yolox" else (0, 2)
    student[..., box[0], box[1]] += 0.5
    costs = []
    for teacher in (near, far):
        loss = DistillationLoss([Term("y", "y", None, rows.parts, rows=rows)], {"y": teacher})
        made = teacher + student - near
        costs.append(float(loss({"y": made}, {"y": teacher})))
    assert costs[0] == pytest.approx(costs[1], rel=0.01)


def test_the_card_says_what_the_rows_are(tmp_path: Path) -> None:
    from edgekit.compiler.compress.torch.distillation_loss import DETECTORS, output_terms

    graph = Graph({"images": [1, 3, 4, 4]})
    rows = graph("Reshape", graph.conv("images", 85, 3), np.array([1, 16, 85], np.int64))
    model = graph.model(tmp_path, rows)
    name = str(model.graph.outputs[0].name)
    card = load_card(CARD)
    assert card.task is not None
    (term,) = output_terms(model, model, card)
    assert term.rows is None, "another output than the card's"
    model.graph.outputs[0].name = next(iter(card.task.outputs.values()))
    (term,) = output_terms(model, model, card)
    assert name != term.teacher
    assert term.rows is DETECTORS["yolox"]
    assert [(part.start, part.stop) for part in term.parts][:2] == [(0, 4), (4, 5)]


def test_channels_of_a_student_are_compared_with_their_own(tmp_path: Path) -> None:
    from edgekit.compiler.compress.torch.distillation_loss import (
        DistillationLoss,
        feature_terms,
        shared_features,
    )

    def network(wide: int) -> Any:
        graph = Graph({"x": [1, 3, 4, 4]})
        hidden = graph("Relu", graph.conv("x", wide, 3))
        return graph.model(tmp_path, graph("Sigmoid", graph.conv(hidden, 2, wide)))

    shared = shared_features(network(6), network(4))
    ((hidden, fewer),) = shared.items()
    assert fewer
    assert feature_terms(shared, {}, 1.0) == []
    terms = feature_terms(shared, {hidden: (0, 2, 3, 5)}, 1.0)
    answers = {hidden: torch.rand(2, 1, 6, 4, 4)}
    loss = DistillationLoss(terms, answers)
    own = answers[hidden][:, :, [0, 2, 3, 5]]
    assert float(loss({hidden: own}, answers)) == 0.0
    assert float(loss({hidden: own + 0.5}, answers)) > 0.1
