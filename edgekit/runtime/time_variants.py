"""Times the variants of a bundle; the child process of :class:`edgekit.runtime.local_timings.VariantTiming`.

python -m edgekit.runtime.time_variants BUNDLE DIGEST SECONDS VARIANT...
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Sequence

from edgekit.bundle.bundle import Bundle
from edgekit.runtime import local_timings
from edgekit.runtime.background import prepares_on_device
from edgekit.runtime.device_builds import child_limits
from edgekit.runtime.fallback.load_order import why_emulated
from edgekit.runtime.session import Session
from edgekit.runtime.session_state import SessionOptions

WARM_UP_RUNS, LEAST_BLOCKS, MOST_BLOCKS = 3, 4, 40
BLOCK_S = 0.01
"""Least time of the runs that are timed at once."""
ELSEWHERE = 20
"""Runs of which the thread computed less than this part of the time ran elsewhere, e.g. on an NPU."""
NICE = 5
"""Priority of the child: below the app's."""


def main(path: str, digest: str, seconds: float, names: Sequence[str]) -> None:
    """Time the variants and keep the times, unless the file is another bundle by now."""
    child_limits.confine(0, local_timings.MEASUREMENT_LIMIT_S)
    if sys.platform != "win32":
        os.nice(NICE)
    with Bundle.open(path) as bundle:
        if bundle.digest == digest:
            local_timings.keep(bundle, time_variants(bundle, names, seconds))


def time_variants(bundle: Bundle, names: Sequence[str], seconds: float) -> dict[str, tuple[float, str]]:
    """Return the lower quartile of a run of each variant that works here: name -> (ms of CPU on one thread,
    engine).

    Args:
        seconds: CPU time of the timed runs of all variants, which run in turns.
    """
    golden = bundle.golden
    feeds = golden[0][0] if golden else {spec.name: spec.zeros() for spec in bundle.inputs}
    last_s: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        sessions = {}
        for variant in bundle.variants:
            name = variant.name
            with contextlib.suppress(Exception):  # it does not run here; an engine may throw anything
                if name not in names or prepares_on_device(variant.target):
                    continue
                if why_emulated(variant, SessionOptions()):
                    continue
                session = Session(bundle, variant=name, strict=True, threads=1, measure=False)
                sessions[name] = stack.enter_context(session)
                for _ in range(WARM_UP_RUNS):
                    began_s = time.perf_counter()
                    session.run(feeds)
                    last_s[name] = time.perf_counter() - began_s
        # The system's clock of CPU time may advance in steps, so short runs are timed several at once.
        repeats = {name: math.ceil(BLOCK_S / last_s[name]) for name in last_s}
        blocks: dict[str, list[float]] = {name: [] for name in last_s}
        end_s = time.process_time() + seconds
        for number in range(MOST_BLOCKS):
            if number >= LEAST_BLOCKS and time.process_time() > end_s:
                break
            for name in last_s:
                began_s, cpu_s = time.perf_counter(), time.thread_time()
                for _ in range(repeats[name]):
                    sessions[name].run(feeds)
                cpu_s, took_s = time.thread_time() - cpu_s, time.perf_counter() - began_s
                blocks[name].append((cpu_s if cpu_s * ELSEWHERE > took_s else took_s) / repeats[name])
        return {
            name: (1000 * sorted(times)[len(times) // 4], sessions[name].active.engine)
            for name, times in blocks.items()
        }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:])
