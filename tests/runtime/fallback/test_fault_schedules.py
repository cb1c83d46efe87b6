"""10,000 seeded schedules of faults against the decisions alone: no engine, no clock, no file.

A simulated session does what chain.py does with the decisions of policy.py, while its variants fail and
heal at drawn moments.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from edgekit.runtime.fallback.policy import (
    FIRST_COOLDOWN_S,
    LONGEST_COOLDOWN_S,
    Cooldown,
    Failure,
    LoadOrder,
    after_failure,
    best_candidate,
    due_for_retry,
    explain_fallbacks,
    is_cooling,
    rank,
    retry_candidates,
)
from tests.fixtures.bundles import variant

SCHEDULES, REQUESTS = 10_000, 12
TARGETS = ("ort", "tflite", "openvino")


class Simulated:
    """The decisions of a session, and what a variant would do at each request."""

    def __init__(self, plan: LoadOrder, missing: set[str]) -> None:
        self.plan = plan
        self.failures = {name: Failure("not installed", missing=True) for name in missing}
        self.cooldowns: dict[str, Cooldown] = {}
        self.active: str | None = None
        self.tries: list[tuple[float, str]] = []

    def request(self, broken: set[str], stuck: set[str], now_s: float) -> str | None:
        """The variant that answers; None: the request fails."""
        self.take_back(broken, now_s)
        failures, cooldowns, tried = dict(self.failures), dict(self.cooldowns), set[str]()
        for _ in range(2 * len(self.plan.candidates) + 2):
            if self.active is None:
                candidate = best_candidate(self.plan, self.failures)
                if candidate is None:
                    hanging = [name for name, failure in failures.items() if failure.still_running]
                    again = retry_candidates(failures, cooldowns, tried, hanging)
                    if not again:
                        kept = {name: f for name, f in self.failures.items() if f.still_running}
                        self.failures = failures | kept
                        self.cooldowns = cooldowns | {name: self.cooldowns[name] for name in kept}
                        return None
                    tried.update(again)
                    for name in again:
                        del self.failures[name]
                    continue
                self.active = candidate.variant.name
                chain = explain_fallbacks(self.plan, self.failures, candidate)
                assert not chain or chain[-1].to == self.active
                assert all(hop.reason for hop in chain)
            if self.active not in broken:
                return self.active
            name, self.active = self.active, None
            tried.add(name)
            self.failures[name] = Failure("threw", still_running=name in stuck)
            self.cooldowns[name] = after_failure(self.cooldowns.get(name), now_s)
        raise AssertionError("a request did not end")

    def take_back(self, broken: set[str], now_s: float) -> None:
        candidate = due_for_retry(self.plan, self.cooldowns, self.active, now_s)
        assert candidate is None or is_cooling(self.plan, self.cooldowns, self.active)
        if candidate is None:
            return
        name = candidate.variant.name
        self.tries.append((now_s, name))
        if name in broken:
            self.cooldowns[name] = after_failure(self.cooldowns[name], now_s)
        else:
            cooldown = self.cooldowns[name]
            self.cooldowns[name] = Cooldown(cooldown.failures, cooldown.until_s, recovered_s=now_s)
            self.failures.pop(name, None)
            self.active = name


@pytest.mark.parametrize("part", range(4))
def test_every_request_is_answered_if_any_variant_can(part: int) -> None:
    answered = refused = 0
    for seed in range(part * SCHEDULES // 4, (part + 1) * SCHEDULES // 4):
        draw = random.Random(seed)
        names = [f"v{number}" for number in range(draw.randint(1, 5))]
        variants = [variant(name, draw.choice(TARGETS)) for name in names]
        plan = rank(variants, {name: draw.uniform(1, 50) for name in names if draw.random() < 0.8})
        gone = draw.choice((*TARGETS, None))
        missing = {v.name for v in variants if v.target == gone}
        session = Simulated(plan, missing)
        now_s = 0.0
        for _ in range(REQUESTS):
            now_s += draw.choice((0.1, 5.0, 40.0, 1000.0, 5000.0))
            broken = {name for name in names if draw.random() < 0.4} | missing
            stuck = {name for name in broken if draw.random() < 0.2}
            blocked = {name for name, f in session.failures.items() if f.still_running or f.missing}
            name = session.request(broken, stuck, now_s)
            able = set(names) - broken - blocked
            if able:
                assert name in set(names) - broken
                answered += 1
            elif name is None:
                refused += 1
            else:
                assert name not in broken
        # No variant is retried before its cooldown: two tries are at least the first cooldown apart.
        for each in names:
            times = [at_s for at_s, name in session.tries if name == each]
            assert all(b - a >= FIRST_COOLDOWN_S for a, b in pairwise(times))
    assert answered > 20_000
    assert refused > 100


def test_what_always_fails_is_tried_ever_more_rarely() -> None:
    """A day of one request a second on a variant that never heals: 29 tries, and no flapping."""
    plan = rank([variant("a", "ort"), variant("b", "tflite")], {"a": 1.0, "b": 2.0})
    session = Simulated(plan, set())
    for second in range(86_400):
        assert session.request({"a"}, set(), float(second)) == "b"
    gaps = [b - a for (a, _), (b, _) in pairwise(session.tries)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == LONGEST_COOLDOWN_S
    assert len(session.tries) == 29
