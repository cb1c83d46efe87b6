from __future__ import annotations

import math
from typing import Any

import pytest

from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.pipeline.build_options import PRECISIONS, BuildOptions, build_options, parse_max_drop
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.errors import UsageError


def detector(self_map: float, snr_db: float = 11.0, task: float | None = None) -> Fidelity:
    return Fidelity(Score("self-mAP", self_map), snr_db, None if task is None else Score("mAP", task))


@pytest.mark.parametrize(
    ("goal", "found", "parent", "why"),
    [
        (Goal(), detector(0.95), None, ""),
        (Goal(), detector(0.94), None, "self-mAP 0.940; 0.950 is required"),
        (Goal(0.02), detector(0.97), None, "self-mAP 0.970; 0.980 is required"),
        (Goal(0.02), detector(0.7, task=0.33), 0.336, ""),  # labelled: the task's own metric counts
        (Goal(0.02), detector(0.9, task=0.30), 0.336, "mAP 0.300; 0.329 is required"),
        (Goal(snr_db=24), detector(0.9), None, "SNR 11.0 dB; 24 dB is required"),
        (Goal(), Fidelity(Score("top-1 agreement", 0.98), 20), None, ""),
        (
            Goal(0.0),
            Fidelity(Score("SNR", 90.0, "dB"), 90.0),
            None,
            "SNR 90.0 dB; an exact answer is required",
        ),
        (Goal(), Fidelity(Score("SNR", 19.9, "dB"), 19.9), None, "SNR 19.9 dB; 20.0 dB is required"),
        (Goal(0.1), Fidelity(Score("SNR", 20.0, "dB"), 20.0), None, ""),
        (Goal(0.1), Fidelity(Score("SNR", 19.0, "dB"), 19.0), None, "SNR 19.0 dB; 20.0 dB is required"),
        (
            Goal(),
            Fidelity(Score("SNR", -math.inf, "dB"), -math.inf),
            None,
            "SNR not finite; 20.0 dB is required",
        ),
    ],
)
def test_a_goal_is_met_or_missed_in_words(
    goal: Goal, found: Fidelity, parent: float | None, why: str
) -> None:
    assert goal.missed(found, None if parent is None else Score("mAP", parent)) == why


def asked(**options: Any) -> BuildOptions:
    return build_options(BuildRequest("model.onnx", targets=["ort"], **options))


def test_options() -> None:
    assert asked(precision="auto", max_drop="2%", time_budget=5) == BuildOptions("auto", Goal(0.02), 5)
    assert asked(precision="int8", force=True, fallback=False) == BuildOptions(
        "int8", force=True, fallback=False
    )
    assert "time_budget" not in asked(precision="auto").as_json()
    assert asked(precision="fp32").as_json() == {}
    assert asked(precision="int8-dynamic", max_drop="2%", force=True, fallback=False).as_json() == {
        "max_drop": "2%",
        "force": True,
        "fallback": False,
    }
    assert [Goal(0.025).as_json(), Goal(snr_db=24).as_json(), Goal().as_json()] == ["2.5%", "24dB", None]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"precision": "int3"},
            f"unknown precision 'int3'; available: {', '.join(PRECISIONS)}",
        ),
        (
            {"precision": "fp32", "max_drop": "2%"},
            "--max-drop applies to int8, but the precision is fp32; use int8 or auto",
        ),
        (
            {"precision": "fp16", "force": True},
            "--force applies to int8, but the precision is fp16; use int8 or auto",
        ),
        (
            {"precision": "int8-weights", "time_budget": 5},
            "--time-budget limits the int8 search, and int8-weights has no search; use int8 or auto",
        ),
        (
            {"precision": "int8-weights", "fallback": False},
            "int8-weights is always built without its float variant; leave --no-fallback out",
        ),
        (
            {"precision": "int8", "time_budget": -1},
            "--time-budget is -1; it must be a number of seconds, 0 or more",
        ),
        (
            {"precision": "int8", "time_budget": math.nan},
            "--time-budget is nan; it must be a number of seconds, 0 or more",
        ),
    ],
)
def test_options_that_do_not_fit(options: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        asked(**options)
    assert str(error.value) == message


@pytest.mark.parametrize("text", ["", "2", "%", "-2%", "101%", "nan%", "2 mAP", "1e3dB"])
def test_a_malformed_drop(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_max_drop(text)
    assert str(error.value) == (
        f"--max-drop is {text!r}; it must be a percentage of the task's metric or agreement, e.g. 2%, or a "
        "minimum SNR, e.g. 24dB"
    )


@pytest.mark.parametrize(("metric", "missed"), [("top-1 agreement", ""), ("self-mAP", "self-mAP 0.740")])
def test_on_the_few_samples_that_choose_chance_is_no_miss(metric: str, missed: str) -> None:
    """Two standard errors of 14: 0.9 - 0.16."""
    goal = Goal(drop=0.1)
    found = Fidelity(Score(metric, 0.74), 24.0)
    assert goal.missed(found, None, 14).startswith(missed)
    assert bool(goal.missed(found, None, 14)) is bool(missed)
    assert goal.missed(found) == f"{metric} 0.740; 0.900 is required"
    assert goal.missed(Fidelity(Score(metric, 0.7), 24.0), None, 14)
