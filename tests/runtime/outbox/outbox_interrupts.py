"""An app whose every use of an outbox is hit by Ctrl-C, at random moments.

The signal comes from a timer of some microseconds, so that it lands anywhere in the call: in the outbox's
code, in a lock that is being taken, in SQLite. What was acknowledged must be there after it, and nothing may
stand still.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import OutboxLimits, Parcel

STILL_S = 60.0
"""A call that takes longer stands still: the process tells where, and ends."""
OPENING = 40
"""Of so many calls one closes the outbox and opens it again."""


class Keys:
    """A sink; it takes no lock, that an interrupt could leave locked."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def send(self, parcel: Parcel) -> None:
        self.keys.append(parcel.key)

    def close(self) -> None:
        pass


def close_unreachable() -> None:
    """Close an outbox that was open when the signal came, and that nobody was given."""
    for each in gc.get_objects():
        own = vars(each) if type(each) is Outbox else {}
        if "_store" in own and not own["_shut"] and not own["_closed"]:
            each.close()


def interrupted(place: Path, interrupts: int, seed: int) -> Counter[str]:
    """Use an outbox until it was interrupted so often. Only in the main thread.

    Returns:
        How many calls of each kind were interrupted, and ``acknowledged``, ``delivered``.

    Raises:
        AssertionError: an acknowledged row is lost.
    """
    draw, sink, hit = random.Random(seed), Keys(), Counter[str]()
    receipts: list[Any] = []
    armed = False

    def interrupt(number: int, frame: object) -> None:
        if armed:  # another thread may take the signal, and it comes late
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)

    def during(name: str, act: Callable[[], Any], within_s: float) -> Any:
        """One call, and a signal at a random moment of it, or soon after it."""
        nonlocal armed
        faulthandler.dump_traceback_later(STILL_S, exit=True)
        done = None
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, within_s))
            done = act()
            armed = False
        except KeyboardInterrupt:
            armed = False
            hit[name] += 1
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()
        return done

    def opened() -> Outbox:
        return Outbox(place, limits=OutboxLimits(size_bytes=1 << 30, memory_bytes=1 << 30), commit_s=0.001)

    outbox, other_ends = opened(), threading.Event()

    def put_beside() -> None:  # a thread that is never interrupted, and must never stand still
        while not other_ends.wait(0.002):
            used, receipt = outbox, None
            with_key = f"beside-{time.monotonic_ns()}"
            try:
                receipt = used.put(with_key.encode(), key=with_key)
            except Exception as problem:  # it is closed: what a test of Outbox asserts
                hit[type(problem).__name__] += 1
            if receipt is not None:
                receipts.append(receipt)

    beside = threading.Thread(target=put_beside)
    beside.start()
    try:
        while sum(n for name, n in hit.items() if name != "UsageError") < interrupts:
            for number in range(OPENING):
                key = f"key-{seed}-{len(receipts)}-{number}"
                receipt = during("put", partial(outbox.put, key.encode(), key=key), 60e-6)
                if receipt is not None:
                    receipts.append(receipt)
                    if number % 3 == 0:
                        during("wait", partial(receipt.wait, STILL_S / 2), 3e-3)
                if number % 7 == 0:
                    during("deliver", partial(outbox.deliver, sink), 2e-3)
                if number % 11 == 0:
                    during("counts", outbox.counts, 200e-6)
                if number % 13 == 0:
                    during("flush", partial(outbox.flush, STILL_S / 2), 2e-3)
                if number % 17 == 0:
                    during("release", outbox.release, 500e-6)
            during("close", outbox.close, 5e-3)
            faulthandler.dump_traceback_later(STILL_S, exit=True)
            outbox.close()
            dropped = [r for r in receipts[-5:] if r.state == "dropped"]
            assert not dropped, "a row was dropped though there was room"
            while True:  # opening may be interrupted as well, and must leave the folder free
                new = during("open", opened, 20e-3)
                if new is not None:
                    outbox = new
                    break
                close_unreachable()
    finally:
        other_ends.set()
        beside.join(STILL_S)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
    assert not beside.is_alive(), "the other thread stands still"
    assert outbox.flush(STILL_S), "the outbox stands still"
    outbox.close()
    with Outbox(place) as left:
        while left.deliver(sink).delivered:
            pass
        counts = left.counts()
    assert counts["rebuilt"] == counts["damaged"] == 0, counts
    acknowledged = {receipt.key for receipt in receipts if receipt.state == "stored"}
    lost = acknowledged - set(sink.keys)
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged rows are lost: {sorted(lost)[:3]}"
    return hit + Counter(acknowledged=len(acknowledged), delivered=len(set(sink.keys)))
