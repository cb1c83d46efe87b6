"""A staged rollout to devices that exist as random numbers; what they report and who reads it are real.

python -m tests.release.fleet.simulated_fleet [--devices 10000] [--runs 20] [--worse .01] [--liars]

Each device has a share of bad answers of its own (mean 5 %, deviation 2 %), answers 250 requests a day, and
sends a row a day. A stage begins when the verdict says ``promote``, and up to CAREFUL of the devices when it
needs more of them. With ``--liars`` every hundredth device lies (LIES) as soon as it has the new bundle.
Printed are the stage and the share of devices that had the new bundle when each rollout ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.release.fleet.devices import Device, Fleet
from edgekit.release.fleet.rollout import Verdict, judged
from edgekit.release.fleet.rows import decoded
from edgekit.runtime.metrics.device_report import DeviceReport
from edgekit.runtime.metrics.histogram import MOST, Histogram
from edgekit.tensor_spec import Json

STAGES = (0.012, 0.02, 0.03, 0.045, 0.1, 0.25, 0.5, 1.0)
OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
DAY_S = 86_400.0
BEGAN = 1_780_000_000.0
"""Unix seconds that the times of ``snapshot_of`` are added to."""
A_DAY = 250
DAYS_LIMIT = 40
DAYS_BEFORE = 2
CAREFUL = 0.05
LIES: tuple[dict[str, Any], ...] = (
    {"since": 12.0, "until": 60.0},
    {"since": 12.0},
    {"since": BEGAN - 365 * DAY_S, "until": BEGAN - 364 * DAY_S},
    {"since": 1e12, "until": 1e300},
    {"failed": A_DAY, "answers": A_DAY},
    {"failed": 0},
    {"times": (A_DAY, A_DAY * MOST)},
    {"times": (A_DAY, 5e-324)},
    {"given_up": {NEW: "it does not load"}},
)
"""What is wrong in the rows of devices that lie."""


@dataclass(frozen=True)
class Ended:
    """How a rollout ended."""

    verdict: Verdict
    share: float
    days: int


def rollout(
    devices: int,
    worse: float,
    seed: int,
    stages: Sequence[float] = STAGES,
    otlp: bool = False,
    liars: bool = False,
) -> Ended:
    """One rollout of a bundle whose share of bad answers is ``worse`` higher."""
    rng = np.random.default_rng(seed)
    shares = np.clip(rng.normal(0.05, 0.02, devices), 0.0, 1.0)
    reports = [DeviceReport(f"device-{number}", "rpi5", "stable") for number in range(devices)]
    fleet = Fleet("detector", {f"device-{number}": Device(f"device-{number}") for number in range(devices)})
    bad, answers = np.zeros(devices, int), np.zeros(devices, int)
    since = np.zeros(devices)

    def days(first: int, reached: int) -> None:
        has_it = np.arange(devices) < reached
        bad[:] += rng.binomial(A_DAY, np.clip(shares + worse * has_it, 0, 1))
        answers[:] += A_DAY
        for number, report in enumerate(reports):
            snapshot = snapshot_of(
                NEW if has_it[number] else OLD,
                float(since[number]),
                (first + 1) * DAY_S,
                int(answers[number]),
                int(bad[number]),
            )
            row = decoded(report.otlp(snapshot) if otlp else report(snapshot))
            if liars and number % 100 == 50 and has_it[number]:
                row = replace(row, **LIES[number // 100 % len(LIES)])
            fleet.devices[row.device].add(row)

    for day in range(DAYS_BEFORE):
        days(day, 0)
    stage, reached = 0, 0
    for day in range(DAYS_BEFORE, DAYS_LIMIT):
        now = max(1, round(stages[stage] * devices))
        restarted = slice(reached, now)
        bad[restarted], answers[restarted], since[restarted] = 0, 0, day * DAY_S
        reached = now
        days(day, reached)
        verdict = judged(fleet, OLD, NEW)
        if verdict.decision == "stop" or (verdict.decision == "promote" and reached == devices):
            break
        further = verdict.needs_devices and max(stages[stage : stage + 2]) <= CAREFUL
        if verdict.decision == "promote" or further:
            stage = min(stage + 1, len(stages) - 1)
    return Ended(verdict, reached / devices, day - DAYS_BEFORE + 1)


def snapshot_of(bundle: str, since: float, until: float, answers: int, bad: int) -> dict[str, Json]:
    """What ``Metrics.snapshot`` gives after so many requests of 10 ms."""
    times = Histogram()
    times.record(0.01)
    of_all: dict[str, Json] = {"count": answers, "sum": 0.01 * answers, "bucket_counts": [answers]}
    stage = {"stage": "end_to_end", "engine": "ONNX Runtime 1.31", **times.as_json(), **of_all}
    return {
        "model": "detector", "version": "0" * 12, "bundle": bundle, "variant": "ort-int8",
        "engine": "ONNX Runtime 1.31", "device": "CPU", "precision": "int8", "since": BEGAN + since,
        "until": BEGAN + until,
        "stages": [stage], "outcomes": {"ok": answers - bad, "failed": bad}, "fallbacks": [],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--liars", action="store_true")
    parser.add_argument("--worse", type=float, nargs="*", default=[0.01, 0.0])
    options = parser.parse_args()
    for worse in options.worse:
        for ended in _each(options.devices, worse, options.runs, options.liars):
            finding = ended.verdict.findings[0]
            print(
                f"worse by {worse:.3f}  {ended.verdict.decision:<8} {ended.share:6.1%} of the devices, "
                f"{ended.days} days, found {finding.difference:+.4f}, "
                f"{finding.low:+.4f} to {finding.high:+.4f}",
                flush=True,
            )


def _each(devices: int, worse: float, runs: int, liars: bool) -> Iterator[Ended]:
    for seed in range(runs):
        yield rollout(devices, worse, seed, liars=liars)


if __name__ == "__main__":
    main()
