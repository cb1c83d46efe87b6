"""Rows that TopK or NonMaxSuppression orders are matched before they are judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity
from edgekit.compiler.evaluate.output_channels import OutputChannels, columns_alone
from edgekit.tensor_spec import Array

ROWS, COLUMNS = 40, 6


def table_channels() -> OutputChannels:
    """Boxes, the score by which a TopK ordered, and a class; [1, rows, columns]."""
    numbers = np.arange(COLUMNS)
    none = np.zeros(COLUMNS, bool)
    return OutputChannels(np.tile(numbers, ROWS), numbers, none, numbers == 4, 1)


def detections(seed: int) -> Array:
    rng = np.random.default_rng(seed)
    boxes, scores = rng.uniform(0, 320, (ROWS, 4)), rng.uniform(0, 1, (ROWS, 1))
    rows = np.concatenate([boxes, scores, rng.integers(0, 80, (ROWS, 1))], axis=1)
    return rows[np.argsort(-rows[:, 4])][None]


def judged(expected: Sequence[Array], actual: Sequence[Array], of: OutputChannels) -> Fidelity:
    evaluator = Evaluator(None, [{"y": x} for x in expected], channels={"y": of})
    return evaluator.evaluate([{"y": y} for y in actual])


def moved(rows: Array, seed: int) -> Array:
    """The same rows with small errors, ordered by their scores again."""
    rng = np.random.default_rng(seed)
    rows = rows.copy()
    rows[0, :, :4] += rng.normal(0, 2, (rows.shape[1], 4))
    rows[0, :, 4] += rng.normal(0, 0.02, rows.shape[1])
    return rows[:, np.argsort(-rows[0, :, 4])]


EXPECTED = [detections(seed) for seed in range(5)]


def test_rows_that_change_places_are_the_same_rows() -> None:
    found = judged(EXPECTED, [moved(rows, 9) for rows in EXPECTED], table_channels())
    assert 22 < found.snr_db < 40
    assert (found.score.metric, Goal().missed(found)) == ("part SNR", "")
    in_place = judged(EXPECTED, [moved(rows, 9) for rows in EXPECTED], replace(table_channels(), rows=None))
    assert in_place.snr_db < 10


def test_rows_near_the_cut_off_may_be_others() -> None:
    actual = [moved(rows, 9) for rows in EXPECTED]
    for rows in actual:
        rows[0, rows[0, :, 4] < 0.15, :4] = 7.0
    assert Goal().missed(judged(EXPECTED, actual, table_channels())) == ""


def test_lost_rows_are_refused() -> None:
    actual = [moved(rows, 9) for rows in EXPECTED]
    for rows in actual:
        rows[0, :6] = rows[0, 30:36]  # the best of them
    found = judged(EXPECTED, actual, table_channels())
    assert found.snr_db < 20
    assert Goal().missed(found).endswith("20.0 dB is required")


def test_another_class_is_another_row() -> None:
    actual = [moved(rows, 9) for rows in EXPECTED]
    for rows in actual:
        rows[0, :, 5] = (rows[0, :, 5] + 1) % 80
    assert judged(EXPECTED, actual, table_channels()).snr_db == -math.inf


def test_as_many_rows_as_there_are() -> None:
    """After NonMaxSuppression the number of rows is that of each run."""
    of = replace(columns_alone(0), rows=0)
    expected = [rows[0, : 20 + number] for number, rows in enumerate(EXPECTED)]
    fewer = [moved(rows[None], 9)[0][:-1] for rows in expected]
    assert Goal().missed(judged(expected, fewer, of)) == ""
    assert Goal().missed(judged(expected, [rows[:10] for rows in fewer], of)) != ""
    more = [np.concatenate([rows, rows + 40]) for rows in expected]
    assert Goal().missed(judged(expected, more, of)) != ""


def test_outputs_of_one_selection_are_matched_together() -> None:
    """Two rows with one box have two scores."""
    of = table_channels()
    labels, none = np.tile(np.arange(4), ROWS), np.zeros(4, bool)
    boxes = OutputChannels(labels, of.units[:4], none, none, 1)
    one = np.zeros(1, np.int64)
    scores = OutputChannels(np.zeros(ROWS, np.int64), one, one > 0, one == 0, 1)

    def parts(rows: Array) -> dict[str, Array]:
        return {"boxes": rows[..., :4], "scores": rows[..., 4], "classes": rows[..., 5].astype(np.int64)}

    channels = {"boxes": boxes, "scores": scores, "classes": replace(columns_alone(0), rows=1)}
    evaluator = Evaluator(None, [parts(rows) for rows in EXPECTED], channels=channels)
    assert Goal().missed(evaluator.evaluate([parts(moved(rows, 9)) for rows in EXPECTED])) == ""
    mixed = [parts(moved(rows, 9)) for rows in EXPECTED]
    for outputs in mixed:
        outputs["classes"] = outputs["classes"][:, ::-1]
    assert Goal().missed(evaluator.evaluate(mixed)) != ""
