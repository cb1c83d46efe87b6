"""``edgekit.bench``: latency of a bundle on this machine, whatever it holds."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from edgekit.bundle.bundle import Bundle, opened
from edgekit.compiler.bench.bench import BENCH_SECONDS, bench_engines, render
from edgekit.processing.generation import is_generation
from edgekit.system.formats.shown import Shown
from edgekit.system.python_calls import public

TEXTS = "edgekit.generate.device.bench_text"
"""Module that measures bundles of language models."""


@public
def bench(
    bundle: str | os.PathLike[str] | Bundle,
    *,
    engine: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
    accelerator: str | None = None,
    seconds: float = BENCH_SECONDS,
    fps: float | None = None,
    price_per_hour: float | None = None,
    progress: bool = True,
) -> Shown[dict[str, Any]]:
    """Measure the latency of a bundle on this machine: one engine's best variant each, or the one asked for.

    Args:
        bundle: A path, or an open bundle.
        engine: A target, e.g. ``"tflite"``. None means every installed engine that the bundle has.
        variant: Name of the only variant to measure.
        threads: Number of threads of a run. None means a Session's default.
        accelerator: ``gpu``, ``npu`` or the name of an interface. None means the CPU.
        seconds: Measuring time for each variant, in seconds.
        fps: Runs that start in a second, as with a camera. None means no pause.
        price_per_hour: Price of this machine per hour, in any currency; adds ``cost_per_1000``.
        progress: Whether a terminal or a notebook shows a line while it runs.

    Returns:
        A row for each variant, with ``variant``, ``p50_ms``, ``p95_ms``, ``first_ms``, ``overhead_us``,
        ``rss_mb`` and more (docs/benchmarking.md); of a language model ``tokens_per_s``. It prints as a
        table.

    Raises:
        UsageError: an argument is out of its range, or does not apply to a language model.
        BundleError: the bundle cannot be opened, or has no golden vector.
        NoVariantError: no variant works here.
    """
    with opened(bundle) as open_bundle:
        if is_generation(open_bundle.card):
            texts = import_module(TEXTS)
            others = {"accelerator": accelerator, "fps": fps, "price_per_hour": price_per_hour}
            texts.refuse_for_text(others)
            rows = texts.bench_text(
                open_bundle, engine=engine, variant=variant, threads=threads, seconds=seconds
            )
            return Shown(rows, texts.render_text(rows))
        rows = bench_engines(
            open_bundle, engine=engine, variant=variant, threads=threads, accelerator=accelerator,
            seconds=seconds, fps=fps, price_per_hour=price_per_hour,
        )  # fmt: skip
    return Shown(rows, render(rows))
