"""When to switch to a faster variant, and when to switch back. Pure decisions: no clock, nothing loaded.

    state = decide(state, choices, infer_s, whole_s, limit_s, now_s)

A budget is missed when more than 5 % of the predictions, and at least five, take longer. Then the most
accurate variant that is expected to meet it is used. A more accurate one is used again when it is expected to
meet the budget with a margin. A hold-off time separates two switches; a premature switch back doubles it. A
device that is throttled, or low on battery, switches to the next faster variant before the budget is missed,
and keeps it as long as that lasts.

A slow run on a GPU does not predict the CPU's time, nor the reverse: a choice on another device is expected
to take the time that was measured on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

HOLD_OFF_S, LONGEST_HOLD_OFF_S = 30.0, 3600.0
MISSED_SHARE, LEAST_MISSED = 0.05, 5
FASTER_SHARE, BACK_SHARE = 0.9, 0.7
"""Share of the limit that a variant's expected p95 may take: to switch to it as the faster one, and to switch
back."""
MIN_RUNS = 20
"""Predictions in the window that are required before switching back."""


@dataclass(frozen=True)
class PrecisionChoice:
    """A variant to choose from.

    Attributes:
        device: ``cpu``, ``gpu`` or ``npu``.
    """

    name: str
    time_ms: float
    accuracy: str = ""
    device: str = "cpu"


@dataclass(frozen=True)
class SwitchingState:
    """State of switching: the choice in use, and when it was made.

    Attributes:
        index: Index into the choices; 0 is the most accurate.
        since_s: Time of the last switch, on the caller's clock. None means there was none.
        hold_off_s: Minimum time until the next switch.
    """

    index: int = 0
    since_s: float | None = None
    hold_off_s: float = HOLD_OFF_S
    switched_back: bool = False


def missed(times_s: Sequence[float], limit_s: float) -> bool:
    """Return whether the p95 is beyond the limit, and not because of a few outliers."""
    beyond = sum(time_s > limit_s for time_s in times_s)
    return beyond >= LEAST_MISSED and beyond > MISSED_SHARE * len(times_s)


def p95(times_s: Sequence[float]) -> float:
    """Return the 95th percentile; 0 of none."""
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
    """Return the next state; the same object if nothing changes.

    Args:
        choices: The most accurate first, each faster than the one before on the same device.
        infer_s: Engine times of the last predictions, in seconds.
        strained: The device is throttled or low on battery (``system_signals.py``).
    """
    if state.since_s is not None and now_s - state.since_s < state.hold_off_s:
        return state
    # Time outside the engine stays the same; the engine's time scales with the variants' times.
    engine_s = p95(infer_s)
    rest_s = max(0.0, p95(whole_s) - engine_s)
    current = choices[state.index]
    expected_s = [
        rest_s + (engine_s * c.time_ms / current.time_ms if c.device == current.device else c.time_ms / 1000)
        for c in choices
    ]
    if missed(whole_s, limit_s):
        later = range(state.index, len(choices))
        fastest = min(later, key=lambda i: (expected_s[i], -i))
        to = next((i for i in later[1:] if expected_s[i] <= FASTER_SHARE * limit_s), fastest)
        if to == state.index:
            return state
        hold_off_s = (
            min(2 * state.hold_off_s, LONGEST_HOLD_OFF_S) if state.switched_back else state.hold_off_s
        )
        return SwitchingState(to, now_s, hold_off_s)
    if strained:
        faster = (i for i in range(state.index + 1, len(choices)) if expected_s[i] < expected_s[state.index])
        faster_one = next(faster, None)
        return state if faster_one is None else SwitchingState(faster_one, now_s, state.hold_off_s)
    if len(whole_s) >= MIN_RUNS:
        for index in range(state.index):
            if expected_s[index] <= BACK_SHARE * limit_s:
                return SwitchingState(index, now_s, state.hold_off_s, switched_back=True)
    return state
