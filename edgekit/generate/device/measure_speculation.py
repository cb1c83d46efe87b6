"""Measurement of speculative decoding on this device: two kinds of steps timed, and their logits compared,
once for each engine version."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import UsageError, reason_of
from edgekit.generate.device.speculation import (
    DRAFT,
    LOOKUP,
    Speculation,
    StepTimes,
    draft_pays,
    pays,
)
from edgekit.system import timings
from edgekit.system.interrupts import pass_on

if TYPE_CHECKING:
    from edgekit.generate.device.decoder import DecoderRunner
    from edgekit.generate.device.draft_model import DraftModel

MODES = ("auto", DRAFT, LOOKUP, "off")
MOST = 4
"""Tokens of a proposal: with five rows a step costs 1.3 (float32) to 2 (4 bits) of one row."""
HISTORY, ROUNDS = 32, 5
SAME, DIFFERENT = "same", "different"


def check_mode(mode: str) -> str:
    """Check that a mode exists, and return it. Raises UsageError if it does not."""
    if mode not in MODES:
        raise UsageError(f"speculate must be one of {', '.join(MODES)}, not {mode!r}")
    return mode


def speculation_on(
    runner: DecoderRunner, mode: str, identity: str, threads: int, draft: DraftModel | None = None
) -> Speculation:
    """Choose how to speculate on a decoder that was just loaded, and is empty.

    Args:
        runner: The decoder; it is empty again afterwards.
        mode: ``auto``: if it was measured to be faster and to leave the logits as they are, bit for bit, by
            the draft or else by lookup. ``draft``, ``lookup``: always. ``off``: never.
        identity: Artifact and engine version, under which the times are stored; "": they are not stored.
        draft: The decoder's draft, or None. It is loaded only if its time is not known or it is used.

    Raises:
        UsageError: the mode is ``draft``, and there is none.
    """
    if mode == "off":
        return Speculation(False, "speculate is off", MOST)
    if mode == DRAFT and draft is None:
        raise UsageError(
            "speculate is draft, and the bundle has none: build it with edgekit build --draft, or give auto"
        )
    if runner.capacity < HISTORY + MOST + 4:
        return Speculation(False, "the context is too short", MOST)
    times = _remembered(identity, threads) or _measured(runner, identity, threads)
    draft_reason = ""
    if mode != LOOKUP and draft is not None:
        speculation = _by_draft(times, mode, identity, threads, draft)
        speculation = speculation._replace(pads=speculation.on and not times.is_exact)
        if speculation.on or mode == DRAFT:
            return speculation
        draft_reason = speculation.reason
    on, reason = pays(times)
    on = on or mode == LOOKUP
    if draft_reason not in ("", reason):
        reason = f"{draft_reason}; by lookup: {reason}"
    break_even = times.rows_ms / times.plain_ms if mode == "auto" else 1.0
    return Speculation(on, reason, MOST, break_even, pads=on and not times.is_exact)


def _by_draft(times: StepTimes, mode: str, identity: str, threads: int, draft: DraftModel) -> Speculation:
    """Choose speculation with a draft. It is off if the draft cannot be loaded, whatever the mode."""
    try:
        draft_ms = _draft_ms(draft, identity, threads)
        on, reason, gain = draft_pays(times, draft_ms, draft.agreement)
        if on or mode == DRAFT:
            draft.load()
        else:
            draft.close()
    except Exception as problem:  # an engine may throw anything
        pass_on(problem)
        draft.close()
        return Speculation(False, f"the draft did not load: {reason_of(problem)}", MOST, proposer=DRAFT)
    if mode == DRAFT:
        return Speculation(True, reason, MOST, proposer=DRAFT)
    return Speculation(on, reason, gain.max_tokens, gain.cost_ms / times.plain_ms, DRAFT)


def _draft_ms(draft: DraftModel, identity: str, threads: int) -> float:
    """Time of one token of a draft: the fastest of some."""
    key = timings.timing_key(f"{identity} {draft.identity}", "", threads, "draft")
    stored = timings.recall(key) if identity and draft.identity else None
    if stored is not None:
        return max(float(stored["p50_ms"]), 1e-6)
    best = max(draft.measured_ms(HISTORY, ROUNDS), 1e-6)
    if identity and draft.identity:
        timings.record(key, {"p50_ms": best})
    return best


def _key(identity: str, threads: int) -> str:
    return timings.timing_key(identity, "", threads, f"speculation of {MOST}")


def _remembered(identity: str, threads: int) -> StepTimes | None:
    fields = {"rows_ms": float, "logits": str}
    stored = timings.recall(_key(identity, threads), fields) if identity else None
    if stored is None:
        return None
    is_exact = stored["logits"] == SAME
    return StepTimes(stored["p50_ms"], stored["rows_ms"], MOST, is_exact)


def _measured(runner: DecoderRunner, identity: str, threads: int) -> StepTimes:
    """Measure the fastest of some steps of each kind, interleaved: a slowdown of the machine affects all."""
    is_exact = _is_exact(runner)
    runner.truncate(0)  # an interrupted measurement leaves tokens
    runner.forward([0] * HISTORY)
    best = {1: float("inf"), 1 + MOST: float("inf")}
    for _ in range(ROUNDS):
        for rows in best:
            began = time.perf_counter()
            runner.forward([0] * rows, rows)
            best[rows] = min(best[rows], 1000 * (time.perf_counter() - began))
            runner.truncate(HISTORY)
    runner.truncate(0)
    plain_ms, rows_ms = (max(ms, 1e-6) for ms in best.values())
    if identity:
        logits = SAME if is_exact else DIFFERENT
        timings.record(_key(identity, threads), {"p50_ms": plain_ms, "rows_ms": rows_ms, "logits": logits})
    return StepTimes(plain_ms, rows_ms, MOST, is_exact)


def _is_exact(runner: DecoderRunner) -> bool:
    """Return whether rows are those of single steps, bit for bit, those after several rows too."""
    runner.row_consistent = False
    most = MOST + 1
    tokens = [index % 16 for index in range(HISTORY + most + 3)]
    logits = []
    for steps in [1] * (most + 3), [most, 2, 1]:
        runner.truncate(0)
        runner.forward(tokens[:HISTORY])
        rows = [runner.forward(tokens[runner.length : runner.length + count], count) for count in steps]
        logits.append(np.concatenate(rows))
    return bool(np.array_equal(logits[0], logits[1]))
