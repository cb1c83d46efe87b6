"""Whether speculative decoding is faster on this device: three kinds of steps timed, once for each engine
version."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.runtime.generate.speculation import Speculation, StepTimes, pays
from edgekit.system import timings

if TYPE_CHECKING:
    from edgekit.target.decoder import DecoderRunner

MODES = ("auto", "lookup", "off")
MOST = 4
"""Tokens of a proposal: with five rows a step costs 1.3 (float32) to 2 (4 bits) of one row."""
HISTORY, ROUNDS = 32, 5


def check_mode(mode: str) -> str:
    """Raises: UsageError: there is no such mode."""
    if mode not in MODES:
        raise UsageError(f"speculate must be one of {', '.join(MODES)}, not {mode!r}")
    return mode


def speculation_on(runner: DecoderRunner, mode: str, identity: str, threads: int) -> Speculation:
    """How to speculate on a decoder that was just loaded, and is empty.

    Args:
        runner: The decoder; it is empty again afterwards.
        mode: ``auto``: where it was measured to be faster. ``lookup``: in any case. ``off``: not.
        identity: Of the artifact and the engine's version; the times are kept under it. "": they are not.
        threads: Of one step.
    """
    if mode == "off":
        return Speculation(False, "speculate is off", MOST)
    if runner.capacity < HISTORY + MOST + 1:
        return Speculation(False, "the context is too short", MOST)
    times = _remembered(identity, threads) or _measured(runner, identity, threads)
    on, why = pays(times)
    on = on or mode == "lookup"
    return Speculation(on, why, MOST, times.rows_ms / times.consistent_ms if mode == "auto" else 1.0)


def _key(identity: str, threads: int) -> str:
    return timings.timing_key(identity, "", threads, f"speculation of {MOST}")


def _remembered(identity: str, threads: int) -> StepTimes | None:
    fields = {"consistent_ms": float, "rows_ms": float}
    known = timings.recall(_key(identity, threads), fields) if identity else None
    if known is None:
        return None
    return StepTimes(known["p50_ms"], known["consistent_ms"], known["rows_ms"], MOST)


def _measured(runner: DecoderRunner, identity: str, threads: int) -> StepTimes:
    """The fastest of some steps of each kind, in turns: a slowdown of the machine affects all."""
    was = runner.row_consistent
    runner.forward([0] * HISTORY)
    best = [float("inf")] * 3
    for _ in range(ROUNDS):
        for kind, (consistent, rows) in enumerate(((False, 1), (True, 1), (True, 1 + MOST))):
            runner.row_consistent = consistent
            began = time.perf_counter()
            runner.forward([0] * rows, rows)
            best[kind] = min(best[kind], 1000 * (time.perf_counter() - began))
            runner.truncate(HISTORY)
    runner.truncate(0)
    runner.row_consistent = was
    plain, consistent_ms, rows_ms = (max(ms, 1e-6) for ms in best)
    if identity:
        timings.record(
            _key(identity, threads), {"p50_ms": plain, "consistent_ms": consistent_ms, "rows_ms": rows_ms}
        )
    return StepTimes(plain, consistent_ms, rows_ms, MOST)
