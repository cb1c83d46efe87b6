"""Lateness of responses when a server next to the session fails in fifteen ways.

    python -m tests.benchmarks.bench_remote_faults [--requests 1000] [--margin-ms 5]

Goal: no answer later than the deadline of 60 ms and the margin. If one is late, the time in which a thread
that only sleeps was not woken either is taken off: no program can be better than that.
"""

from __future__ import annotations

import argparse
import threading
import time
from unittest import mock

from edgekit.runtime import Session
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.fake_engines import Engines
from tests.fixtures.remote_servers import DEADLINE_MS, storm


class Witness:
    """Lateness of a thread that only sleeps: no program can be better than that."""

    def __init__(self) -> None:
        self.woken: list[tuple[float, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._end.is_set():
            began_s = time.monotonic()
            time.sleep(0.001)
            now_s = time.monotonic()
            if now_s - began_s > 0.003:
                self.woken.append((began_s, now_s))

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def lost_s(self, began_s: float, ended_s: float) -> float:
        """Return the seconds of an interval in which the witness was due and not woken."""
        return sum(max(0.0, min(b, ended_s) - max(a, began_s) - 0.001) for a, b in self.woken)


def main() -> None:
    """Print who answered, and how many answers were late."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--margin-ms", type=float, default=5.0)
    given = parser.parse_args()
    with (
        mock.patch("edgekit.target.registry.engine", Engines("ort")),
        mock.patch("edgekit.runtime.remote.policy.FIRST_PAUSE_S", 0.01),
        mock.patch("edgekit.runtime.remote.policy.LONGEST_PAUSE_S", 0.03),
        Session(small_bundle([variant("onnx", "ort")])) as session,
        Witness() as witness,
    ):
        paths, took = storm(session, given.requests)
    limit_s = (DEADLINE_MS + given.margin_ms) / 1000
    over = [(b - a, witness.lost_s(a, b)) for a, b in took if b - a > limit_s]
    late = sum(taken_s - lost_s > limit_s for taken_s, lost_s in over)
    print(f"{dict(paths)}; {len(over)} took more than {1000 * limit_s:.0f} ms, {late} by themselves")


if __name__ == "__main__":
    main()
