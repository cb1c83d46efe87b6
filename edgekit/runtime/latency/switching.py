"""When to go over to a faster variant, and when back. Decisions only: no clock, nothing loaded.

    state = decide(state, choices, infer_s, whole_s, limit_s, now_s)

A budget is missed when more than 5 of 100 answers take longer, five at least. Then the most accurate variant
that is expected to hold it serves. Back goes who would hold it with room to spare. Between two switches lies
the hysteresis; whoever went back too early waits twice as long the next time. A device that is held back, or
at the end of its battery, does with the next faster variant before anything is missed, and keeps it
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

HYSTERESIS_S, LONGEST_HYSTERESIS_S = 30.0, 3600.0
MISSED_SHARE, LEAST_MISSED = 0.05, 5
FORTH_SHARE, BACK_SHARE = 0.9, 0.7
"""Of the limit that a variant's expected p95 may take: to be gone over to, and to be gone back to."""
LEAST_ANSWERS = 20
"""In a window, before anything is decided that is not urgent."""


@dataclass(frozen=True)
class PrecisionChoice:
    """A variant that may serve.

    Attributes:
        name: The variant's.
        time_ms: A run's expected time here.
        price: What it costs in accuracy, in words.
    """

    name: str
    time_ms: float
    price: str = ""


@dataclass(frozen=True)
class SwitchingState:
    """Which of the choices serves.

    Attributes:
        at: Its place; 0 is the most accurate.
        since_s: When it began to, on the caller's clock; None: from the beginning.
        wait_s: How long it serves at least.
        back: It came back from a faster one.
    """

    at: int = 0
    since_s: float | None = None
    wait_s: float = HYSTERESIS_S
    back: bool = False


def missed(times_s: Sequence[float], limit_s: float) -> bool:
    """Whether the p95 of some answers is beyond the limit, and not by an accident of a few."""
    beyond = sum(time_s > limit_s for time_s in times_s)
    return beyond >= LEAST_MISSED and beyond > MISSED_SHARE * len(times_s)


def p95(times_s: Sequence[float]) -> float:
    """The time that 95 of 100 do not exceed; 0 of none."""
    return sorted(times_s)[ceil(0.95 * len(times_s)) - 1] if times_s else 0.0


def decide(
    state: SwitchingState,
    choices: Sequence[PrecisionChoice],
    infer_s: Sequence[float],
    whole_s: Sequence[float],
    limit_s: float,
    now_s: float,
    strained: bool = False,
) -> SwitchingState:
    """The state from now on; the same where nothing is to change.

    Args:
        state: As it is.
        choices: The most accurate first, each faster than the one before.
        infer_s: Times of the engine in the last answers, in seconds.
        whole_s: Times of these answers, end to end.
        limit_s: Their p95 may take so much.
        now_s: On the clock of the state.
        strained: The device should do with less (``signals.py``).
    """
    if state.since_s is not None and now_s - state.since_s < state.wait_s:
        return state
    # What is not the engine's stays as it is; the engine's part follows the variants' times.
    engine_s = p95(infer_s)
    rest_s = max(0.0, p95(whole_s) - engine_s)
    expected_s = [rest_s + engine_s * c.time_ms / choices[state.at].time_ms for c in choices]
    if missed(whole_s, limit_s):
        faster = range(state.at + 1, len(choices))
        to = next((at for at in faster if expected_s[at] <= FORTH_SHARE * limit_s), len(choices) - 1)
        if to == state.at:
            return state
        wait_s = min(2 * state.wait_s, LONGEST_HYSTERESIS_S) if state.back else state.wait_s
        return SwitchingState(to, now_s, wait_s)
    if strained:
        return SwitchingState(state.at + 1, now_s, state.wait_s) if state.at + 1 < len(choices) else state
    if len(whole_s) >= LEAST_ANSWERS:
        for at in range(state.at):
            if expected_s[at] <= BACK_SHARE * limit_s:
                return SwitchingState(at, now_s, state.wait_s, back=True)
    return state
