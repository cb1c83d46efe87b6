"""Budgets: a slow stage is named, a faster variant serves and tells its price, the session always answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Session
from edgekit.runtime.latency import budget as rooms
from edgekit.runtime.latency.budget import BASELINE_SAMPLES, SIGNALS_S, Alert, Budget
from edgekit.runtime.latency.choices import accuracy, choices
from edgekit.runtime.latency.switching import HOLD_OFF_S
from edgekit.runtime.latency.system_signals import Signals, read
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.tensor_spec import Array, Json
from tests.fixtures.bundles import X, packed_parts, small_bundle, variant
from tests.fixtures.fake_engines import Engines, doubled, throws

CONTRACT = Latency(40.0, {"infer": 30.0})


@pytest.fixture
def bundle(engines: Engines) -> Bundle:
    whole = variant("float", "ort", p50_ms=20.0)
    agreed = {"agreement": {"metric": "self-mAP", "value": 0.934, "unit": ""}}
    small = variant("small", "ort", p50_ms=10.0, precision="int8")
    small = small._replace(evidence={**small.evidence, **agreed})
    slow = variant("half", "ort", p50_ms=19.0, precision="fp16")
    other = variant("lite", "tflite", p50_ms=30.0, precision="int8")
    return small_bundle([whole, small, slow, other])


@pytest.fixture
def session(bundle: Bundle) -> Iterator[Session]:
    with Session(bundle, threads=1) as session:
        yield session


class Clock:
    """Goes as told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def live(budget: Budget, clock: Clock, answers: int, infer_s: float, prepare_s: float = 0.005) -> None:
    """Answers that take so long, one after the other; the engine's time is the accurate variant's."""
    random = np.random.default_rng(answers)
    for _ in range(answers):
        speed = 0.5 if budget.active == "small" else 1.0
        noise = random.lognormal(0.0, 0.03, 2)
        seconds = {"prepare": prepare_s * float(noise[0]), "infer": infer_s * speed * float(noise[1])}
        clock.now_s += sum(seconds.values())
        budget.took(seconds)


def test_choices_are_of_one_engine_and_worth_their_price(session: Session) -> None:
    assert session.active.variant == "small"
    assert [(c.name, c.time_ms) for c in choices(session)] == [("float", 20.0), ("small", 10.0)]
    assert [c.accuracy for c in choices(session)] == ["fp32, accuracy not measured", "self-mAP 0.934"]


REDUCED = ("int8-dynamic", "int8-weights", "int8-2", "int8-mixed-2", "palette6", "palette4-3", "int4")


@pytest.mark.parametrize("precision", REDUCED)
def test_every_precision_is_a_choice(engines: Engines, precision: str) -> None:
    """Numbered ones too, and those of a newer EdgeKit: such a session was served by fp32 with no word."""
    whole = variant("float", "ort", p50_ms=20.0)
    fast = variant("small", "ort", p50_ms=10.0, precision=precision)
    clock = Clock()
    with Session(small_bundle([whole, fast]), threads=1) as session:
        assert session.active.variant == "small"
        with Budget(session, CONTRACT, clock=clock) as budget:
            assert (budget.active, budget.notes) == ("float", ())
            live(budget, clock, 400, 0.045)
            assert budget.active == "small"


@pytest.mark.parametrize(
    "evidence",
    [{"accuracy": ["y"]}, {"accuracy": {"y": 3}}, {"accuracy": {"y": {}}}, {"task": {"value": "x"}}],
)
def test_evidence_from_elsewhere_may_be_anything(evidence: dict[str, Json]) -> None:
    assert accuracy(variant("float", "ort")._replace(evidence=evidence)) == "fp32, accuracy not measured"


def test_choices_go_from_accurate_to_fast(engines: Engines) -> None:
    """The second int8 of a search is slower than the first and more accurate."""
    rows = [
        ("float", "fp32", 20.0),
        ("front-1", "int8", 4.0),
        ("front-2", "int8-2", 6.0),
        ("mixed", "int8-mixed", 8.0),
        ("weights", "int8-weights", 19.0),  # as fast as float: no choice
        ("dynamic", "int8-dynamic", 12.0),
        ("other", "int8", 5.0),  # of another profile: the faster one of a precision counts
    ]
    made = [variant(name, "ort", p50_ms=time_ms, precision=kind) for name, kind, time_ms in rows]
    with Session(small_bundle(made), threads=1) as session:
        found = [choice.name for choice in choices(session)]
    assert found == ["float", "dynamic", "mixed", "front-2", "front-1"]


def test_smaller_models_are_choices_after_the_whole_one(engines: Engines) -> None:
    made = [variant(name, "ort", p50_ms=ms, precision=kind) for name, kind, ms in (
        ("float", "fp32", 20.0), ("int8", "int8", 12.0),
        ("small-float", "fp32", 11.0), ("small", "int8", 9.0), ("smaller", "int8", 7.0),
    )]  # fmt: skip
    shrunk = {"multiplications": [100, 70], "golden": [{"y": "golden/0/y.npy"}]}
    made[2:] = [each._replace(shrunk=shrunk) for each in made[2:]]
    with Session(small_bundle(made), threads=1) as session:
        assert session.active.variant == "int8"
        found = [choice.name for choice in choices(session)]
    assert found == ["float", "int8", "small", "smaller"]


def test_what_does_not_serve_is_told(engines: Engines) -> None:
    made = [variant("float", "ort", p50_ms=10.0), variant("small", "ort", precision="int8", p50_ms=9.5)]
    with Session(small_bundle(made), threads=1) as session, Budget(session, CONTRACT) as budget:
        assert session.active.variant == "small"
        assert budget.active == "float"
        assert budget.notes == ("small is not used: it is not faster than the more accurate float",)


def test_the_accurate_one_serves_while_it_holds(session: Session, engines: Engines) -> None:
    clock = Clock()
    with Budget(session, CONTRACT, clock=clock) as budget:
        np.testing.assert_array_equal(budget.run({"x": X})["y"], 2 * X)
        live(budget, clock, 200, 0.020)
        assert (budget.active, budget.history, budget.notes) == ("float", (), ())
    assert engines["ort"].loaded == ["small", "float"]
    assert engines["ort"].closed == 1


def test_a_missed_budget_switches_within_two_seconds_and_back(session: Session) -> None:
    clock, alerts = Clock(), list[Alert]()
    with Budget(session, CONTRACT, on_alert=alerts.append, clock=clock) as budget:
        live(budget, clock, 100, 0.020)
        began_s = clock.now_s
        while budget.active == "float":
            live(budget, clock, 1, 0.045)
        assert clock.now_s - began_s < 2
        live(budget, clock, 2000, 0.045)
        assert budget.active == "small"
        live(budget, clock, 200, 0.020)
        assert budget.active == "float"
        assert [(hop.from_, hop.to) for hop in budget.history] == [("float", "small"), ("small", "float")]
        hop = budget.history[0]
        assert hop.reason.endswith(" ms (p95) missed the contract of 40 ms")
        assert hop.cost == ("10 ms instead of 20 ms; self-mAP 0.934 instead of fp32, accuracy not measured")
    assert [alert.stage for alert in alerts if "contract" in alert.text] == ["end_to_end", "infer"]
    assert alerts[0].text.endswith("; the contract allows 40 ms")


def test_the_stage_that_became_slower_is_named_within_300_answers(session: Session) -> None:
    clock, alerts = Clock(), list[Alert]()
    with Budget(session, CONTRACT, on_alert=alerts.append, clock=clock) as budget:
        live(budget, clock, BASELINE_SAMPLES, 0.010)
        live(budget, clock, 2000, 0.0105, 0.00525)
        assert alerts == []
        live(budget, clock, 300, 0.010, 0.005 * 1.15)
    assert [alert.stage for alert in alerts] == ["prepare"]
    assert alerts[0].text.endswith(" % slower than its baseline (float)")


def test_the_baseline_is_remembered_on_this_device(bundle: Bundle, session: Session) -> None:
    clock, alerts = Clock(), list[Alert]()
    with Budget(session, CONTRACT, clock=clock) as budget:
        live(budget, clock, BASELINE_SAMPLES, 0.010)
    with (
        Session(bundle, threads=1) as again,
        Budget(again, CONTRACT, on_alert=alerts.append, clock=clock) as budget,
    ):
        live(budget, clock, 300, 0.0115)
    assert [alert.stage for alert in alerts] == ["infer"]


def test_the_session_answers_where_the_variant_fails(bundle: Bundle, engines: Engines) -> None:
    engines["ort"].behaviour["float"] = throws
    with Session(bundle, threads=1) as session:
        metrics = Metrics(session)
        with Budget(session, CONTRACT, metrics=metrics) as budget:
            np.testing.assert_array_equal(budget.run({"x": X})["y"], 2 * X)
            assert budget.active == "small"
        assert metrics.snapshot()["outcomes"] == {"ok": 1}


def test_what_does_not_load_is_no_choice(bundle: Bundle, engines: Engines) -> None:
    engines["ort"].refused["float"] = MemoryError("no more")
    with Session(bundle, threads=1) as session, Budget(session, CONTRACT) as budget:
        assert budget.active == "small"
        assert budget.notes == ("float could not be loaded: MemoryError: no more",)


def test_a_variant_that_hangs_is_answered_by_a_session_with_a_deadline(
    bundle: Bundle, engines: Engines
) -> None:
    let_go = threading.Event()

    def hangs(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"][0, 0] < 0:
            let_go.wait(60)
        return doubled(feeds)

    engines["ort"].behaviour["float"] = hangs
    with Session(bundle, threads=1, deadline_ms=1000) as session, Budget(session, CONTRACT) as budget:
        assert (budget.active, budget.notes) == ("float", ())
        np.testing.assert_array_equal(budget.run({"x": X})["y"], 2 * X)
        np.testing.assert_array_equal(budget.run({"x": -1 - X})["y"], -2 - 2 * X)
        assert budget.active == "small"
        assert (session.active.variant, session.fallbacks) == ("small", ())
        let_go.set()


def test_without_a_contract(engines: Engines) -> None:
    card = {"title": "t", "inputs": {"x": {"kind": "tensor", "shape": [1, 6]}}}
    made = small_bundle([variant("float", "ort")])
    entries = {entry["name"]: bytes(made.read(entry["name"])) for entry in packed_parts(made)[0]["entries"]}
    plain = Bundle.create({**made.manifest, "card": card}, entries)
    with Session(plain) as session:
        with pytest.raises(UsageError) as error:
            Budget(session)
        assert str(error.value) == (
            f"the card of {plain.name} has no [latency]; add one, "
            "or pass latency=edgekit.processing.latency_contract.Latency(p95_ms=...)"
        )


def test_a_contract_that_stays_missed_is_told_once(engines: Engines) -> None:
    clock, alerts = Clock(), list[Alert]()
    with (
        Session(small_bundle([variant("float", "ort")]), threads=1) as session,
        Budget(session, CONTRACT, on_alert=alerts.append, clock=clock) as budget,
    ):
        live(budget, clock, 200, 0.045)
        assert [alert.stage for alert in alerts] == ["end_to_end", "infer"]
        assert (budget.active, budget.history) == ("float", ())


def test_a_device_that_is_held_back_does_with_a_faster_variant(session: Session, tmp_path: Path) -> None:
    """On files as the kernel has them; its times hold the contract all along."""
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "trip_point_0_type").write_text("passive")
    (zone / "trip_point_0_temp").write_text("80000")
    (zone / "temp").write_text("60000")
    clock, alerts = Clock(), list[Alert]()
    signals = partial(read, tmp_path)
    with Budget(session, CONTRACT, on_alert=alerts.append, signals=signals, clock=clock) as budget:
        live(budget, clock, 400, 0.020)
        assert budget.active == "float"
        (zone / "temp").write_text("81000")
        began_s = clock.now_s
        while budget.active == "float":
            live(budget, clock, 1, 0.020)
        assert clock.now_s - began_s < SIGNALS_S + 1
        live(budget, clock, 6000, 0.020)  # 90 s: it would hold the contract, and stays
        assert budget.active == "small"
        (zone / "temp").write_text("70000")
        live(budget, clock, 600, 0.020)
        assert budget.active == "float"
        told, back = budget.history
        assert told.reason == "it is at 81 degrees, where the kernel throttles"
        assert told.cost == "10 ms instead of 20 ms; self-mAP 0.934 instead of fp32, accuracy not measured"
        assert back.reason.endswith("leave a margin in the contract of 40 ms")
    assert alerts == []


def test_a_heat_that_comes_and_goes_switches_once_in_a_hysteresis(session: Session) -> None:
    clock, hot = Clock(), count()
    changed_s = []
    with Budget(
        session, CONTRACT, signals=lambda: Signals(throttled=next(hot) % 2 == 0), clock=clock
    ) as budget:
        before = budget.active
        for _ in range(12_000):
            live(budget, clock, 1, 0.020)
            if budget.active != before:
                changed_s.append(clock.now_s)
                before = budget.active
    assert len(changed_s) > 3
    assert next(hot) <= clock.now_s / SIGNALS_S + 1
    assert all(later - sooner >= HOLD_OFF_S for sooner, later in pairwise(changed_s))


def test_history_is_bounded(session: Session) -> None:
    clock = Clock()
    with Budget(session, CONTRACT, clock=clock) as budget:
        for _ in range(rooms.HISTORY_LIMIT + 20):
            for at in (1, 0):
                budget._switch(replace(budget._state, index=at), [0.05])
        assert len(budget.history) == rooms.HISTORY_LIMIT


def test_an_interrupt_at_the_last_sample_does_not_prevent_the_baseline(session: Session) -> None:
    """It may come after the sample is kept, before their number is compared."""
    clock = Clock()
    with Budget(session, CONTRACT, clock=clock) as budget:
        live(budget, clock, 1, 0.010)
        monitor = budget._monitors[budget.active]["infer"]
        monitor.first += [0.010] * (BASELINE_SAMPLES - len(monitor.first))
        live(budget, clock, 1, 0.010)
        assert monitor.baseline is not None
        assert monitor.first == []
