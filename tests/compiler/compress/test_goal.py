from __future__ import annotations

from typing import Any

import pytest

from edgekit.compiler.compress.goal import ShrinkGoal, shrink_goal
from edgekit.errors import UsageError


@pytest.mark.parametrize(
    ("given", "goal"),
    [
        (("-20%", None, None), ShrinkGoal("multiplications", 0.2)),
        ((0.25, None, None), ShrinkGoal("multiplications", 0.25)),
        ((None, "12.5 %", None), ShrinkGoal("bytes", 0.125)),
        ((None, None, "-25%@tflite"), ShrinkGoal("latency", 0.25, "tflite")),
    ],
)
def test_goals(given: tuple[Any, Any, Any], goal: ShrinkGoal) -> None:
    assert shrink_goal(*given) == goal


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, None, None), "add one of --flops -20%, --size -30% and --latency -25%@tflite"),
        (("-20%", "-20%", None), "add one of --flops -20%, --size -30% and --latency -25%@tflite"),
        (("-20", None, None), "--flops is '-20'; it must be a percentage between 0 and 100, e.g. -20%"),
        ((None, "100%", None), "--size is '100%'; it must be a percentage between 0 and 100, e.g. -20%"),
        ((None, None, "-25%"), "--latency is '-25%'; it must name a target, e.g. -25%@tflite"),
        ((None, None, "x@ort"), "--latency is 'x'; it must be a percentage between 0 and 100, e.g. -20%"),
    ],
)
def test_malformed_goals(given: tuple[Any, Any, Any], message: str) -> None:
    with pytest.raises(UsageError) as found:
        shrink_goal(*given)
    assert str(found.value) == message
