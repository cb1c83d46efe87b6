"""A deferral of two real classifiers: does its bound hold on photographs nobody used, and is the time right?

    python tests/benchmarks/bench_deferral.py SMALL.edgekit LARGE.edgekit --samples PHOTOS [PHOTOS ...] \
        [--small VARIANT] [--large VARIANT] [--disagreement 1%] [--draws 10000] [--rounds 5]

Both variants see each photograph once. Then, many times:

- splits: 300 of the photographs (``--calibration``) give the threshold; the share that differs is counted on
  the others.
- draws: so many photographs are drawn with replacement; the share that differs is counted on all of them,
  which is then the exact risk of what was drawn from. This is what the bound is about.

Time: in each round the threshold is found on such a split, and stated what ``edgekit bundle defer`` states,
from the times of the two alone; then the deferral and the large variant run the unseen photographs in turns.
Processor time of one thread: other load counts in neither. With --wall, on a quiet machine, it is what the
command itself stated, in milliseconds of the clock and with all its threads, and the mean of those of the
unseen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.compiler.build.defer import share_of
from edgekit.compiler.evaluate.deferral_threshold import find_threshold
from edgekit.compiler.evaluate.samples import FileSamples, read_files
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from edgekit.target.deferral import top_and_margin
from tests.benchmarks.bench_int8 import pictures


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("small", type=Path)
    arguments.add_argument("large", type=Path)
    arguments.add_argument("--samples", type=Path, nargs="+", required=True)
    arguments.add_argument("--small", dest="small_variant", required=True)
    arguments.add_argument("--large", dest="large_variant", required=True)
    arguments.add_argument("--disagreement", default="1%")
    arguments.add_argument("--calibration", type=int, default=300)
    arguments.add_argument("--draws", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--wall", action="store_true")
    given = arguments.parse_args()
    limit = share_of("--disagreement", given.disagreement)
    small, large = Bundle.open(given.small), Bundle.open(given.large)
    card = parse_card(large.card or {}, large.inputs, large.outputs)
    paths = [path for folder in given.samples for path in pictures(folder)]
    photographs = read_files(paths, large.inputs, card).arrays
    assert isinstance(photographs, FileSamples)
    task = card.task
    assert task is not None
    said = []
    for bundle, variant in ((small, given.small_variant), (large, given.large_variant)):
        with Session(bundle, variant=variant, strict=True) as session:
            scores = [session.run(sample)[task.outputs["scores"]] for sample in photographs]
        said.append([top_and_margin(each, task.decode, task.options.scale) for each in scores])
    margins = np.array([margin for _, margin in said[0]])
    differs = np.array([a != b for (a, _), (b, _) in zip(*said, strict=True)])
    print(f"{len(margins)} photographs, {differs.mean():.2%} of the small one's answers differ")
    rng = np.random.default_rng(0)
    for kind in ("splits", "draws"):
        over, shares, deferred = 0, [], []
        for _ in range(given.draws):
            if kind == "splits":
                order = rng.permutation(len(margins))
                own, unseen = order[: given.calibration], order[given.calibration :]
            else:
                own, unseen = rng.integers(0, len(margins), given.calibration), np.arange(len(margins))
            found = find_threshold(margins[own], differs[own], limit)
            assert found is not None
            share = float((differs & (margins > found.threshold))[unseen].mean())
            over += share > limit
            shares.append(share)
            deferred.append(float((margins[unseen] <= found.threshold).mean()))
        print(
            f"{kind}: at most {limit:.1%} differ in {1 - over / given.draws:.2%} of {given.draws} "
            f"(mean {np.mean(shares):.3%}); deferred {np.mean(deferred):.1%}"
        )
    for number in range(given.rounds):
        order = np.random.default_rng(number).permutation(len(margins)).tolist()
        _time(given, photographs, order, limit)


def _time(given: argparse.Namespace, photographs: FileSamples, order: list[int], limit: float) -> None:
    calibration = photographs.select(order[: given.calibration])
    unseen = photographs.select(order[given.calibration :])
    found = edgekit.defer(
        given.small,
        given.large,
        samples=list(calibration),
        disagreement=limit,
        small_variant=given.small_variant,
        large_variant=given.large_variant,
    )
    if found.bundle is None:
        print(found.refusal)
        return
    names = (found.bundle.variants[0].name, found.small, found.large)
    if given.wall:
        with Session(found.bundle, variant=names[0], strict=True) as session:
            session.run(calibration[0])
            (own,) = _seconds([session], unseen, time.perf_counter)
        mean_ms = 1000 * np.mean(own)
        print(
            f"clock: stated {found.expected_ms:.2f} ms, measured {mean_ms:.2f} ms on the unseen "
            f"({mean_ms / found.expected_ms - 1:+.1%}); the large one's {found.large_ms:.2f} ms",
            flush=True,
        )
        return
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(Session(found.bundle, variant=name, strict=True, threads=1)) for name in names
        ]
        _, small_s, large_s = (np.median(own) for own in _seconds(sessions, calibration))
        stated_s = small_s + found.threshold.deferred * large_s
        before = _deferred(sessions[0])
        own, _, large = _seconds(sessions, unseen)
        share = (_deferred(sessions[0]) - before) / len(unseen)
    # By median where a mean is not needed: a few runs take ten times as long on a busy machine.
    stated, measured = stated_s / large_s, np.mean(_without_outliers(own)) / np.median(large)
    print(
        f"time: stated {stated:.3f} of the large one's, measured {measured:.3f} on the unseen "
        f"({measured / stated - 1:+.1%}); deferred {found.threshold.deferred:.1%}, of the unseen "
        f"{share:.1%}; differing {found.threshold.differing} of {found.threshold.samples}",
        flush=True,
    )


def _seconds(
    sessions: Sequence[Session], samples: FileSamples, clock: Callable[[], float] = time.thread_time
) -> list[list[float]]:
    """Processor time of this thread for each sample, the sessions taking turns."""
    seconds: list[list[float]] = [[] for _ in sessions]
    for sample in samples:
        for session, own in zip(sessions, seconds, strict=True):
            started = clock()
            session.run(sample)
            own.append(clock() - started)
    return seconds


def _deferred(session: Session) -> int:
    facts: Any = session.runner.facts()["deferral"]
    return int(facts["deferred"])


def _without_outliers(seconds: Sequence[float]) -> Sequence[float]:
    """At most what the slowest but one in a hundred takes."""
    limit = float(np.percentile(seconds, 99))
    return [min(each, limit) for each in seconds]


if __name__ == "__main__":
    main()
