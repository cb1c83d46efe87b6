"""Batches across callers: does one run of N rows pay, and what does a request take?

    python -m tests.benchmarks.bench_batching ONE.edgekit MANY.edgekit [--engine ort] [--callers 16]

ONE was built with a batch of 1, MANY of the same model with ``--shape x=8x...``. As many callers ask at once,
each its next request when it has an answer; one by one, and in batches, in turns. The callers share out the
bundle's shapes. Goal: in batches at least as fast, where they are on. And what handing a request to the
thread costs, over Session.run.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from pathlib import Path

import numpy as np

from edgekit.runtime import Session
from edgekit.runtime.scheduling.batching import Batching
from edgekit.runtime.scheduling.request_queue import Requests
from edgekit.tensor_spec import Array
from tests.benchmarks.interleaved import interleaved


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("one", type=Path)
    arguments.add_argument("many", type=Path)
    arguments.add_argument("--engine")
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--callers", type=int, default=16)
    arguments.add_argument("--seconds", type=float, default=0.5, help="of a round")
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    wishes = {"engine": given.engine, "strict": given.engine is not None, "threads": given.threads}
    with Session(given.one, **wishes) as one, Session(given.many, **wishes) as many:
        batching = Batching(one, many)
        print(one.active.engine, batching)
        random = np.random.default_rng(0)
        shapes = [
            {spec.name: random.random(spec.shape, np.float32) for spec in inputs} for inputs, _ in one.shapes
        ]
        feeds = shapes[-1]
        with Requests(one, 1000) as alone, Requests(one, 1000, batching=batching) as together:
            times = interleaved(
                {"run": lambda: one.run(feeds), "line": lambda: alone.run(feeds)}, seconds=2.0
            )
            print(
                f"the line costs {1e6 * times['line'].over_s(times['run']):.0f} us a request (median round)"
            )
            rates: dict[str, list[float]] = {"one by one": [], "in batches": []}
            for _ in range(given.rounds):
                for name, requests in (("one by one", alone), ("in batches", together)):
                    rates[name].append(rate(requests, shapes, given.callers, given.seconds))
            for name, found in rates.items():
                print(f"{name}: {statistics.median(found):.0f} a second")
            pairs = zip(*rates.values(), strict=True)
            print(f"ratio {statistics.median(many / one for one, many in pairs):.2f} (median round)")


def rate(requests: Requests, shapes: list[dict[str, Array]], callers: int, seconds: float) -> float:
    """Answers a second, to so many callers with inputs of these shapes."""
    counts = [0] * callers
    end_s = time.perf_counter() + seconds

    def ask(number: int) -> None:
        while time.perf_counter() < end_s:
            requests.run(shapes[number % len(shapes)])
            counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(callers)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began_s)


if __name__ == "__main__":
    main()
