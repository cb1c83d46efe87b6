"""Latency of a bundle on this machine: cold start, latency through the Session, and the Session's overhead.

The Session and its engine's bare runner are timed alternately in one process, so that a busy machine slows
both. If nothing was asked for by name, a child process first times all variants in turns, for sessions to
start the fastest one here (``runtime/local_timings.py``): cold starts and memory stay those of this process.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.kept_variants import kept_variants
from edgekit.compiler.evaluate.run_bundle import golden_inputs
from edgekit.errors import MissingDependency, NoVariantError, UsageError
from edgekit.runtime import Session, local_timings
from edgekit.system.cpu import cpu_name
from edgekit.system.energy import joules_between, read_energy
from edgekit.system.formats.plain_text import milliseconds, table
from edgekit.system.memory import page_faults
from edgekit.system.progress import step
from edgekit.target import registry
from edgekit.tensor_spec import Array

BENCH_SECONDS = 3.0
"""Default time budget for one engine's timed runs."""
FPS_LIMIT = 1000
"""Pauses of less than a millisecond are no longer than the clock's error."""


def bench(
    bundle: Bundle,
    *,
    engine: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
    accelerator: str | None = None,
    seconds: float = BENCH_SECONDS,
    fps: float | None = None,
    price_per_hour: float | None = None,
) -> dict[str, Any]:
    """Time a variant, or one engine's best one, on the bundle's first golden vector, as ``edgekit.bench``.

    Returns:
        ``{variant, engine, device, nodes_by_provider, copies_between_processors, precision, threads, cpu,
        load_ms, first_ms, cold_ms, p50_ms, p95_ms, p99_ms, fps, cpu_ms, page_faults, runs,
        overhead_us, ratio, rss_mb, energy_j, no_energy, cost_per_1000}``; of all engines also
        ``session_ms``, the times that sessions here go by: ms of CPU on one thread, by variant.
        ``nodes_by_provider`` is empty unless an engine reports it.
        ``first_ms`` is the first run after loading, ``cold_ms`` both together; ``cpu_ms`` is the processor
        time of all threads for a run and the pause after it; ``page_faults`` the median number of pages that
        a run makes the kernel map, after warm-up, or None; ``overhead_us`` and ``ratio`` compare the lower
        quartiles of ``Session.run`` and of the engine's bare runner; ``energy_j`` is the energy of the
        processor's packages per run, other load included, or None, and ``no_energy`` the reason;
        ``cost_per_1000`` is the cost of 1000 sequential runs, or None.

    Raises:
        UsageError: ``seconds``, ``fps`` or the price is not a positive number.
        BundleError: the bundle has no golden vector.
        NoVariantError: no variant of the bundle works here.
    """
    if not 0 < seconds < math.inf:
        raise UsageError(f"seconds must be greater than 0, not {seconds:g}")
    if fps is not None and not 0 < fps <= FPS_LIMIT:
        raise UsageError(f"fps must be greater than 0 and at most {FPS_LIMIT}, not {fps:g}")
    if price_per_hour is not None and not 0 < price_per_hour < math.inf:
        raise UsageError(f"the price per hour must be greater than 0, not {price_per_hour:g}")
    feeds = golden_inputs(bundle)
    started = time.perf_counter()
    strict, device = any((engine, variant, accelerator)), accelerator or "cpu"
    with Session(
        bundle,
        engine=engine,
        variant=variant,
        strict=strict,
        threads=threads,
        device=device,
        allow_split=True,
    ) as session:
        loaded = time.perf_counter()
        session.run(feeds)
        first = time.perf_counter()
        before = read_energy()
        with step("measuring") as notify:
            notify(session.active.variant, left_s=seconds)
            used_s = time.process_time()
            sessions, runners, faults = _in_turns(session, feeds, seconds, 0.0 if fps is None else 1 / fps)
            used_s = time.process_time() - used_s
        after = read_energy()
        active, facts = session.active, session.runner.facts()
    low = [float(np.quantile(times, 0.25)) for times in (sessions, runners)]
    joules = joules_between(before, after)
    p50, p95, p99 = (1000 * float(q) for q in np.quantile(sessions, [0.5, 0.95, 0.99]))
    return {
        "variant": active.variant,
        "engine": active.engine,
        "device": active.device,
        "nodes_by_provider": facts.get("nodes_by_provider", {}),
        "copies_between_processors": facts.get("copies_between_processors", 0),
        "precision": active.precision,
        "threads": session.threads,
        "cpu": cpu_name(),
        "load_ms": round(1000 * (loaded - started), 2),
        "first_ms": round(1000 * (first - loaded), 3),
        "cold_ms": round(1000 * (first - started), 3),
        "p50_ms": round(p50, 4),
        "p95_ms": round(p95, 4),
        "p99_ms": round(p99, 4),
        "fps": fps,
        "cpu_ms": round(1000 * used_s / (len(sessions) + len(runners)), 4),
        "page_faults": page_faults() and statistics.median_low(faults[len(faults) // 2 :]),
        "runs": len(sessions),
        "overhead_us": round(1e6 * (low[0] - low[1]), 1),
        "ratio": round(low[0] / low[1], 4),
        "rss_mb": _peak_rss_mb(),
        "energy_j": None if joules is None else round(joules / (len(sessions) + len(runners)), 6),
        "no_energy": before.absent or after.absent,
        "cost_per_1000": None if price_per_hour is None else float(f"{price_per_hour * p50 / 3600:.4g}"),
    }


def bench_engines(bundle: Bundle, **options: Any) -> list[dict[str, Any]]:
    """Run ``bench`` for the requested engine, variant or accelerator, or for every installed engine that the
    bundle has variants for; of a cascade, also for the later stages, on one crop, and for whole frames.

    Returns:
        A row for each variant. A later stage's has ``stage``, and ``stage_of``, the variant of the first
        stage, whose row has ``frame`` (edgekit/compiler/bench/cascade.py).
    """
    results = _first_stage(bundle, **options)
    if bundle.stages:
        from edgekit.compiler.bench.cascade import add_frame, stage_rows  # here: most bundles are one model

        for first in list(results):
            results += stage_rows(bench, bundle, first, options)
            add_frame(bundle, first, options)
    return results


def _first_stage(bundle: Bundle, **options: Any) -> list[dict[str, Any]]:
    if any(options.get(name) for name in ("engine", "variant", "accelerator")):
        return [bench(bundle, **options)]
    candidates, results = kept_variants(bundle), []
    seconds, times = options.get("seconds", BENCH_SECONDS), {}
    if 0 < seconds < math.inf:  # ``bench`` refuses others
        times = local_timings.measure(bundle, [variant.name for variant in candidates], seconds)
    for name in dict.fromkeys(candidate.target for candidate in candidates):
        try:
            registry.engine(name).engine_version()
        except MissingDependency:
            continue
        results.append(bench(bundle, **{**options, "engine": name}))
    if not results:
        error = NoVariantError(
            "none of the bundle's engines is installed here (run edgekit targets for the pip commands)"
        )
        error.exit_code = MissingDependency.exit_code
        raise error
    for row in results:
        row["session_ms"] = {name: round(time_ms, 4) for name, (time_ms, _) in times.items()}
    return results


def _in_turns(
    session: Session, feeds: Mapping[str, Array], seconds: float, pace_s: float
) -> tuple[list[float], list[float], list[int]]:
    """Time ``Session.run`` and bare runs in turns until the time is over; return the seconds of each, and the
    page faults of each ``Session.run``.

    A run starts ``pace_s`` seconds after the last one did, or when that one ends, if that is later.
    """
    sessions: list[float] = []
    runners: list[float] = []
    faults: list[int] = []
    bare = session.runner.run
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(sessions) < 3:
        for run, times in ((session.run, sessions), (bare, runners)):
            mapped, started = page_faults() or 0, time.perf_counter()
            run(feeds)
            times.append(time.perf_counter() - started)
            if run is not bare:
                faults.append((page_faults() or 0) - mapped)
            if times[-1] < pace_s:
                time.sleep(pace_s - times[-1])
    return sessions, runners, faults


def render(results: list[dict[str, Any]]) -> str:
    """Format a table of ``bench`` results, and the machine that they ran on."""
    columns = ("variant", "load", "first", "p50", "p95", "p99", "CPU", "faults", "overhead")
    rows = [
        (
            r["variant"],
            *(milliseconds(r[f"{key}_ms"]) for key in ("load", "first", "p50", "p95", "p99", "cpu")),
            "-" if r["page_faults"] is None else str(r["page_faults"]),
            f"{r['overhead_us'] / 1000:+.3f} ms ({r['ratio']:.3f}x)",
        )
        for r in results
    ]
    ran: dict[str, list[str]] = {}
    for r in results:
        threads = f"{r['threads']} thread{'s' if r['threads'] > 1 else ''}"
        device = "" if r["device"] == "CPU" else f", {r['device']}"
        pace = "" if r["fps"] is None else f", at {r['fps']:g} fps"
        ran.setdefault(f"{r['engine']}{device}, {threads}{pace}", []).append(r["variant"])
    on = (f"  ran       {', '.join(variants)}  on {engine}" for engine, variants in ran.items())
    frames: list[str] = []
    if any("stage" in r for r in results):
        from edgekit.compiler.bench.cascade import frame_lines

        frames = frame_lines(results)
    return "\n".join([*table(columns, rows), "", *on, *frames, *_used(results)])


def _used(results: list[dict[str, Any]]) -> list[str]:
    lines = []
    if kept := sorted((ms, name) for name, ms in (results[0].get("session_ms") or {}).items()):
        listed = ", ".join(f"{name} {time_ms:.3g}" for time_ms, name in kept)
        lines.append(f"  kept      for sessions here, in ms of CPU time on one thread: {listed}")
    if results and results[-1]["rss_mb"] is not None:
        lines.append(f"  memory    {results[-1]['rss_mb']:.0f} MB at most, of this process")
    for r in results:
        if r["energy_j"] is not None:
            lines.append(
                f"  energy    {r['variant']}: {1000 * r['energy_j']:.3g} mJ a run, of the whole processor"
            )
        if r["cost_per_1000"] is not None:
            lines.append(
                f"  cost      {r['variant']}: {r['cost_per_1000']:g} for 1000 runs, one after the other"
            )
    absent = next((r["no_energy"] for r in results if r["energy_j"] is None), "")
    return [*lines, *([f"  energy    not measured: {absent}"] if absent else [])]


def _peak_rss_mb() -> float | None:
    try:
        status = Path("/proc/self/status").read_text("utf-8")
    except OSError:
        return None
    peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return round(int(peak.split()[1]) / 1024, 1) if peak else None
