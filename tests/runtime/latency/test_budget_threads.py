"""Budgets under threads, signals and forks: a sample counts for its variant, an alert is passed on once."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Variant
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Session
from edgekit.runtime.latency import budget as budget_module
from edgekit.runtime.latency.budget import Alert, Budget
from edgekit.runtime.latency.system_signals import Signals
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.child_processes import run_python
from tests.fixtures.fake_engines import Engines, doubled
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes
from tests.runtime.interrupted_everywhere import interrupted_at

CONTRACT = Latency(40.0)
Prepare = Callable[[Budget, list[float]], None]
HERE = (Path(budget_module.__file__),)
VARIANTS = (
    variant("float", "ort", p50_ms=20.0),
    variant("small", "ort", p50_ms=10.0, precision="int8"),
)


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    with Session(small_bundle(list(VARIANTS)), threads=1) as session:
        assert session.active.variant == "small"  # the float variant is a replica
        yield session


class Blocking:
    """An engine's run that waits for the test."""

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"][0, 0] < 0:
            self.entered.set()
            assert self.let_go.wait(60)
        return doubled(feeds)


def miss(budget: Budget, count: int, clock: list[float], infer_s: float = 0.05) -> None:
    """Predictions that take so long; 50 ms miss the contract."""
    for _ in range(count):
        clock[0] += 0.05
        budget.took({"infer": infer_s})


def is_inside(place: str, function: Callable[..., object]) -> bool:
    """Whether a place of interrupted_at is in the lines of a function."""
    lines, first = inspect.getsourcelines(function)
    return first <= int(place.partition(":")[2].split()[0]) < first + len(lines)


def test_a_prediction_during_a_switch_counts_for_neither_variant(session: Session, engines: Engines) -> None:
    engines["ort"].behaviour["float"] = blocking = Blocking()
    clock, answers = [0.0], list[Array]()
    with Budget(session, CONTRACT, clock=lambda: clock[0]) as budget:
        slow = threading.Thread(target=lambda: answers.append(budget.run({"x": -1 - X})["y"]))
        slow.start()
        assert blocking.entered.wait(60)
        miss(budget, 30, clock)
        assert budget.active == "small"
        kept = len(budget._window)
        blocking.let_go.set()
        slow.join(60)
        np.testing.assert_array_equal(answers[0], -2 - 2 * X)
        assert len(budget._window) == kept
        budget.run({"x": X})
        assert len(budget._window) == kept + 1


def test_an_engine_is_freed_after_the_run_of_another_thread(session: Session, engines: Engines) -> None:
    engines["ort"].behaviour["float"] = blocking = Blocking()
    answers = list[Array]()
    budget = Budget(session, CONTRACT)
    slow = threading.Thread(target=lambda: answers.append(budget.run({"x": -1 - X})["y"]))
    slow.start()
    assert blocking.entered.wait(60)
    closing = threading.Thread(target=budget.close)
    closing.start()
    closing.join(0.05)
    assert engines["ort"].closed == 0
    blocking.let_go.set()
    slow.join(60)
    closing.join(60)
    assert engines["ort"].closed == 1
    np.testing.assert_array_equal(answers[0], -2 - 2 * X)
    np.testing.assert_array_equal(budget.run({"x": X})["y"], 2 * X)
    assert budget.active == "small"


def everywhere(session: Session, prepare: Prepare, infer_s: float) -> int:
    """Interrupt the prediction that raises an alert at each instruction; the next ones make good for it."""
    number, place = 0, "begin"
    while place:
        number += 1
        clock, alerts = [0.0], list[Alert]()
        with Budget(session, CONTRACT, on_alert=alerts.append, clock=partial(clock.__getitem__, 0)) as budget:
            prepare(budget, clock)
            assert alerts == []
            place = interrupted_at(partial(miss, budget, 1, clock, infer_s), number, HERE, as_signals=True)
            for _ in range(10):
                if not alerts:
                    miss(budget, 1, clock, infer_s)
            told = [alert.stage for alert in alerts]
            lost = place and is_inside(place, Budget._notify)  # as if it were on_alert's own
            assert len(told) == 1 or (lost and not told), f"{told} after an interrupt at {place}"
            assert len(budget.history) <= 1, place
    return number - 1


def test_an_interrupt_neither_loses_nor_repeats_an_alert_or_a_switch(session: Session) -> None:
    clock = [0.0]
    with Budget(session, CONTRACT, clock=lambda: clock[0]) as budget:
        due = 0
        while not budget.history:
            miss(budget, 1, clock)
            due += 1
    assert everywhere(session, lambda budget, clock: miss(budget, due - 1, clock), 0.05) > 30


def test_an_alert_that_the_app_refuses_once_costs_no_other(session: Session) -> None:
    told = list[str]()

    def on_alert(alert: Alert) -> None:
        told.append(alert.stage)
        if len(told) == 1:
            raise ValueError("the app's own")

    clock = [0.0]
    latency = Latency(40.0, {"infer": 30.0})
    with Budget(session, latency, on_alert=on_alert, clock=lambda: clock[0]) as budget:
        with pytest.raises(ValueError, match="the app's own"):
            miss(budget, 40, clock)
        budget.took({"infer": 0.001})
    assert told[:2] == ["end_to_end", "infer"]


def test_a_reader_of_signals_that_fails_costs_no_prediction(session: Session) -> None:
    calls = list[int]()

    def broken() -> Signals:
        calls.append(1)
        raise OSError("no such sensor")

    clock = [0.0]
    with Budget(session, CONTRACT, signals=broken, clock=lambda: clock[0]) as budget:
        for _ in range(40):
            clock[0] += 1.0
            np.testing.assert_array_equal(budget.run({"x": X})["y"], 2 * X)
        assert budget.notes == ("heat and power are not read: OSError: no such sensor",)
    assert len(calls) == 1


def test_an_interrupt_while_variants_are_loaded_leaves_none_loaded(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = [*VARIANTS, variant("half", "ort", p50_ms=15.0, precision="fp16")]
    opened = engines["ort"].open_runner

    def interrupted(files: Mapping[str, Path], *given: Any) -> Any:
        if files["model.bin"].read_text("utf-8") == "half":
            raise KeyboardInterrupt
        return opened(files, *given)

    with Session(small_bundle(three), threads=1) as session:
        monkeypatch.setattr(engines["ort"], "open_runner", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Budget(session, CONTRACT)
        assert engines["ort"].loaded == ["small", "float"]
        assert engines["ort"].closed == 1


SCRIPT = """
import os, sys, threading
import numpy as np
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Session
from edgekit.runtime.latency.budget import Budget

session = Session(sys.argv[1], threads=1)
budget = Budget(session, Latency(1000.0))
assert budget.active != session.active.variant, budget.notes

def is_right(value):
    return bool((budget.run({"x": np.full((1, 6), value, np.float32)})["y"] == 2 * value).all())

assert is_right(1)
# A thread of the parent is in the middle of a run, and of its bookkeeping.
with budget._running, budget._lock:
    pid = os.fork()
    if not pid:
        import faulthandler
        faulthandler.dump_traceback_later(30, exit=True)
        assert is_right(2) and budget.active == session.active.variant
        assert "after os.fork() the session's own variant is used" in budget.notes
        budget.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert is_right(3) and budget.active != session.active.variant
budget.close()
session.close()
print("done")
"""


@pytest.mark.needs_ort
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_is_answered_by_the_session(tmp_path: Path) -> None:
    variants = [
        Variant(
            name,
            "ort",
            "ort",
            precision,
            {"model.onnx": f"v/{name}"},
            {},
            "verified",
            {"timing": {"p50_ms": ms}},
        )
        for name, precision, ms in (("float", "fp32", 2.0), ("small", "int8", 1.0))
    ]
    models = {f"v/{each.name}": onnx_bytes(DOUBLES) for each in variants}
    path = small_bundle(variants, models).save(tmp_path / "f.edgekit")
    done = run_python(SCRIPT, path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
