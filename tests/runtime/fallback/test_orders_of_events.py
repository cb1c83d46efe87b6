"""A session under every order of events: failures, hangs, bad inputs, preparations, and time that is told.

Each schedule is drawn from its seed and runs a real Session on engines that do as they are told. After each
event: only the documented errors, the right answer wherever a variant can give one, and why it serves.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, NoVariantError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.deadline.watchdog import WatchedRunner
from edgekit.runtime.fallback.load_order import PREPARED
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, doubled

SCHEDULES, EVENTS = 400, 40
TARGETS = ("ort", "tflite", "openvino", "coreml")
BAD = -1 - X
"""An input that every engine dies of where one is to."""


class Weather:
    """What each variant does now: ``fine``, ``throws``, ``nan``, ``refused`` (to load) or ``hangs``."""

    def __init__(self, engines: Engines, names: Mapping[str, str]) -> None:
        self.now = dict.fromkeys(names, "fine")
        self.bad_input = False
        self.hung: set[int | None] = set()
        self._let_go = threading.Event()
        self._engines, self._names = engines, names
        for name, target in names.items():
            engines[target].behaviour[name] = self._behaviour(name)

    def turn(self, name: str, to: str) -> None:
        self.now[name] = to
        refused = self._engines[self._names[name]].refused
        refused.pop(name, None)
        if to == "refused":
            refused[name] = EngineError("no memory")
        if to == "fine":
            let_go, self._let_go = self._let_go, threading.Event()
            let_go.set()

    def _behaviour(self, name: str) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        def behaves(feeds: Mapping[str, Array]) -> dict[str, Array]:
            if self.now[name] == "throws" or (self.bad_input and feeds["x"][0, 0] < 0):
                raise RuntimeError("kernel died")
            let_go = self._let_go
            if self.now[name] == "hangs":
                self.hung.add(threading.get_ident())
                let_go.wait(60)
                self.hung.discard(threading.get_ident())
            if self.now[name] == "nan":
                return {"y": np.full((1, 6), np.nan, np.float32)}
            return doubled(feeds)

        return behaves


class Play:
    """One schedule: a session, its weather, its clock."""

    def __init__(self, engines: Engines, seed: int, clock: list[float]) -> None:
        self.draw = draw = random.Random(seed)
        self.clock = clock
        self.names = {f"v{place}": TARGETS[place] for place in range(draw.randint(2, 4))}
        self.weather = Weather(engines, self.names)
        prepared = draw.choice([*self.names, None, None])
        bundle = small_bundle(
            [
                variant(n, t, p50_ms=float(10 + i), options={PREPARED: True} if n == prepared else None)
                for i, (n, t) in enumerate(self.names.items())
            ]
        )
        deadline_ms = draw.choice((None, 60_000.0))
        self.ills = (
            ("throws", "nan", "refused") if deadline_ms is None else ("throws", "nan", "refused", "hangs")
        )
        self.session = Session(bundle, threads=1, deadline_ms=deadline_ms)

    def event(self) -> None:
        kind = self.draw.choice(
            ("good", "good", "good", "bad", "weather", "weather", "heal", "time", "settle")
        )
        if kind == "good":
            self.ask(X + self.draw.randint(0, 9))
        elif kind == "bad":
            self.weather.bad_input = True
            self.ask(BAD, may_fail=True)
            self.weather.bad_input = False
        elif kind == "weather":
            self.weather.turn(self.draw.choice([*self.names]), self.draw.choice(self.ills))
        elif kind == "heal":
            self.weather.turn(self.draw.choice([*self.names]), "fine")
        elif kind == "time":
            self.clock[0] += self.draw.choice((1.0, 31.0, 40.0, 100.0, 4000.0))
        else:
            self.settle()

    def ask(self, x: Array, may_fail: bool = False) -> bool:
        try:
            outputs = self.session.run({"x": x})
        except NoVariantError:
            assert may_fail or "fine" not in self.able()
            return False
        np.testing.assert_array_equal(outputs["y"], 2 * x)
        serving = self.session.active.variant
        hops = self.session.fallbacks
        assert not hops or hops[-1].to == serving
        assert all(hop.reason for hop in hops)
        return True

    def able(self) -> set[str]:
        """What the variants do that failed at a request, or not at all. One that did not load stays away, and
        one that hung until it cooled down."""
        health = self.session._chain._health
        failures = health.failures
        return {
            state
            for name, state in self.weather.now.items()
            if name not in failures or (name in health.cooldowns and not failures[name].still_running)
        }

    def settle(self) -> None:
        """What goes on in the background comes to its end."""
        end = time.monotonic() + 20
        chain = self.session._chain
        coming = [*chain.preparations.waiting.values(), *chain._retries.waiting.values()]
        while not all(each.done for each in coming):
            assert time.monotonic() < end
            time.sleep(0.0005)

    def check(self) -> None:
        chain = self.session._chain
        health = chain._health
        for name, cooldown in health.cooldowns.items():
            assert (cooldown.recovered_s is None) == (name in health.failures), name
        if chain.runner is not None:
            serving = self.session.active.variant
            assert serving == chain.candidate.variant.name
            assert serving not in health.failures
            order = [candidate.variant.name for candidate in chain.load_order.candidates]
            assert all(name in health.failures for name in order[: order.index(serving)])

    def ends_well(self) -> None:
        """In fair weather the best variant that ever loaded serves again, sooner or later."""
        for name in self.names:
            self.weather.turn(name, "fine")
        end = time.monotonic() + 20
        while self.session.hanging:
            assert time.monotonic() < end
            time.sleep(0.0005)
        for _ in range(30):
            self.clock[0] += 4000.0
            self.ask(X)
            self.settle()
            self.check()
        health = self.session._chain._health
        waiting = set(health.failures) & set(health.cooldowns)
        order = [candidate.variant.name for candidate in self.session._chain.load_order.candidates]
        assert not [n for n in waiting if order.index(n) < order.index(self.session.active.variant)]
        self.session.close()
        with pytest.raises(UsageError):
            self.session.run({"x": X})


def hangs_at_once(monkeypatch: pytest.MonkeyPatch, weather: Weather) -> None:
    """Nobody waits for a deadline: what hangs is overdue as soon as it does."""
    answer = WatchedRunner._wait_for

    def answered(watched: WatchedRunner, answers: Any, limit_s: float, overdue: str) -> dict[str, Array]:
        while answers.empty() and watched._thread._ident not in weather.hung:
            time.sleep(0.0001)
        return answer(watched, answers, limit_s if not answers.empty() else 0.0, overdue)

    def next_reply(replies: Any, limit_s: float, running: Any) -> Any:
        while replies.empty() and not all(each._thread._ident in weather.hung for each in running):
            time.sleep(0.0001)
        return replies.get(timeout=0.0)

    monkeypatch.setattr(WatchedRunner, "_wait_for", answered)
    monkeypatch.setattr("edgekit.runtime.deadline.watchdog._next_reply", next_reply)


@pytest.mark.parametrize("part", range(4))
def test_random_orders(monkeypatch: pytest.MonkeyPatch, clock: list[float], part: int) -> None:
    for seed in range(part * SCHEDULES // 4, (part + 1) * SCHEDULES // 4):
        with monkeypatch.context() as patch:
            one_order(patch, clock, seed)


def one_order(monkeypatch: pytest.MonkeyPatch, clock: list[float], seed: int) -> None:
    engines = Engines(*TARGETS)
    monkeypatch.setattr("edgekit.target.registry.engine", engines)
    play = Play(engines, seed, clock)
    hangs_at_once(monkeypatch, play.weather)
    try:
        for _ in range(EVENTS):
            play.event()
            play.check()
        play.ends_well()
    except BaseException as problem:
        problem.args = (f"seed {seed}: {problem.args}",)
        raise
    finally:
        play.session.close()
