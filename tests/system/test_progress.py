"""Progress events, from the code that runs to the listener."""

from __future__ import annotations

import pytest

from edgekit.system.progress import Stage, counted, listening, report, stage, step


def test_a_stage_reports_its_start_and_its_last_description() -> None:
    for live, between in ((False, []), (True, [Stage("s", "a", None, 1, 2, "items"), Stage("s", "b")])):
        heard: list[Stage] = []
        with stage(heard.append, "s", live=live) as say:
            say("a", 1, 2, "items")
            say("b")
        assert heard[:-1] == [Stage("s", ""), *between]
        assert heard[-1][:2] == ("s", "b")
        assert (heard[-1].seconds or -1) >= 0


def test_items_are_counted_and_the_step_ends_without_a_line_after_an_error_too() -> None:
    heard: list[Stage] = []

    def run() -> None:
        for item in counted([5, 6], "runs", name="running", describe=str):
            if item == 6:
                raise ValueError

    with listening(heard.append), pytest.raises(ValueError):  # noqa: PT011
        run()
    counts = [Stage("running", "5", None, 0, 2, "runs"), Stage("running", "6", None, 1, 2, "runs")]
    assert heard == [Stage("running", ""), *counts, Stage("running", "", 0.0)]


def test_without_a_listener_nothing_is_heard() -> None:
    heard: list[Stage] = []
    with listening(heard.append):
        report(Stage("a", ""))
    with step("b"):
        assert list(counted([1, 2], "items")) == [1, 2]
    assert heard == [Stage("a", "")]
