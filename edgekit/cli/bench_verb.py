"""The verb ``bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    accelerator_option,
    as_json_option,
    bundle_argument,
    engine_option,
    need_page,
    need_writable,
    open_bundle,
    path_option,
    threads_option,
    variant_option,
)
from edgekit.cli.command_group import main
from edgekit.cli.device_verbs import device_options, need_device, on_device, sound_answer
from edgekit.errors import DeviceError, UsageError
from edgekit.system.formats.plain_text import size

if TYPE_CHECKING:
    from edgekit.compiler.bench.history import Run
    from edgekit.tensor_spec import Json


@main.command(
    headings={
        "Comparison": "against clock limits baseline",
        "Throughput and cost": "sweep price_per_hour",
        "History": "history plot",
    }
)
@bundle_argument
@engine_option
@variant_option
@accelerator_option
@threads_option
@click.option(
    "--seconds", type=float, default=3.0, show_default=True, help="Measuring time for each variant."
)
@click.option("--fps", type=float, help="Start this many runs a second, as a camera does. Default: no pause.")
@click.option(
    "--against",
    metavar="OTHER",
    type=click.Path(),
    help="Compare with this bundle. Also takes a variant of BUNDLE.",
)
@click.option(
    "--clock",
    type=click.Choice(["wall", "cpu"]),
    default="wall",
    show_default=True,
    help="With --against: time to compare. cpu is less disturbed by other programs.",
)
@click.option("--sweep", metavar="SxT,...", help="Throughput with S streams of T threads each, e.g. 1x2,2x1.")
@click.option(
    "--price-per-hour", type=float, help="Price of this machine per hour; adds the cost of 1,000 inferences."
)
@click.option(
    "--fail-if", "limits", multiple=True, help="Exit with 1 if this holds, e.g. 'p95>+10%'. Repeatable."
)
@path_option("--baseline", help="Output of an earlier --json, with which --fail-if compares.")
@path_option("--history", metavar="FILE.jsonl", help="Append this run to a JSON Lines file.")
@path_option("--plot", metavar="FILE.html", help="With --history: plot all runs on an HTML page.")
@device_options
@as_json_option
@click.pass_context
def bench(
    ctx: click.Context,
    bundle: Path,
    engine: str | None,
    variant: str | None,
    accelerator: str | None,
    threads: int | None,
    seconds: float,
    fps: float | None,
    against: str | None,
    clock: str,
    sweep: str | None,
    price_per_hour: float | None,
    limits: tuple[str, ...],
    baseline: Path | None,
    history: Path | None,
    plot: Path | None,
    device: str | None,
    merge: bool,
    as_json: bool,
) -> None:
    """Measure latency, here or on a device.

    Reports load time, first run, p50/p95/p99 latency, the overhead over calling the engine directly, memory
    and, where it is readable, energy. --against compares two bundles or variants, with a 95 % interval.
    --history keeps the figures of each run; --plot draws them on a page that needs no network. For language
    models: time to first token and tokens per second.
    """
    from edgekit.compiler.bench import bench as benching
    from edgekit.compiler.bench import compare as bench_compare
    from edgekit.compiler.bench import history as bench_history
    from edgekit.compiler.bench import limits as bench_limits
    from edgekit.compiler.bench import sweep as bench_sweep
    from edgekit.generate.device import bench_text

    _need_history(history, plot)
    checks = [bench_limits.parse_limit(text) for text in limits]
    baseline_results = bench_limits.read_baseline(baseline) if baseline is not None else None
    points = bench_sweep.parse_sweep(sweep) if sweep is not None else []
    others = (checks, points, baseline_results is not None, price_per_hour is not None, history)
    if against is not None and any(others):
        raise UsageError(
            "--against cannot be combined with --sweep, --fail-if, --baseline, --price-per-hour or --history"
        )
    if fps is not None and (against is not None or points):
        raise UsageError("--fps does not combine with --against or --sweep, whose runs have no pauses")
    if points and threads is not None:
        raise UsageError("--sweep sets the number of threads; remove --threads")
    need_device(device, merge, {"--against": against, "--sweep": sweep, "--accelerator": accelerator})
    if accelerator is not None and (against is not None or points):
        raise UsageError("--accelerator does not combine with --against or --sweep")
    options: dict[str, Json] = {
        "engine": engine,
        "variant": variant,
        "threads": threads,
        "seconds": seconds,
        "fps": fps,
        "price_per_hour": price_per_hour,
    }
    from edgekit.processing.generation import is_generation

    with open_bundle(bundle) as opened:
        digest = opened.digest  # of what is measured: --merge makes another
        if is_generation(opened.card):
            flags: dict[str, object] = {
                "--against": against,
                "--sweep": sweep,
                "--price-per-hour": price_per_hour,
                "--fps": fps,
            }
            flags |= {
                "--accelerator": accelerator,
                "--fail-if": limits,
                "--baseline": baseline,
                "--history": history,
                "--device": device,
            }
            bench_text.refuse_for_text(flags)
            rows = bench_text.bench_text(
                opened, engine=engine, variant=variant, threads=threads, seconds=seconds
            )
            terminal.answer(as_json, {"results": rows}, bench_text.render_text(rows))
            return
    if device is not None:
        measured = on_device(bundle, device, merge, "bench", options)
        if measured.by_tools:
            from edgekit.devices.vendor_tools import render as render_tools

            if checks or history:
                flag = "--fail-if" if checks else "--history"
                raise DeviceError(f"{flag} is for what bench measures; {device} has a vendor's tool alone")
            terminal.answer(
                as_json,
                {"device": measured.device, "by": measured.rows_by_tool},
                render_tools(measured.rows_by_tool),
            )
            return
        with sound_answer(device):
            wrong = bench_limits.beyond(measured.results, checks, baseline_results)
            text = benching.render(measured.results)
            ran = bench_history.run_now(bundle.name, digest, measured.results, measured.device)
        text += "".join(f"\n  beyond    {line}" for line in wrong)
        beyond = {"beyond": wrong} if checks else {}
        written, lines = _written(history, plot, ran)
        text += lines
        shown = {"device": measured.device, "results": measured.results, **beyond, **written}
        terminal.answer(as_json, shown, text)
        ctx.exit(1 if wrong else 0)
    with open_bundle(bundle) as opened:
        opened.verify_entries()  # a damaged entry is reported as such, not as a variant that does not run
    with open_bundle(bundle) as opened:
        if against is not None:
            ratios = bench_compare.compare_bundles(
                opened, against, engine=engine, variant=variant, threads=threads, seconds=seconds, clock=clock
            )
            terminal.answer(as_json, {"comparisons": ratios}, bench_compare.render_comparisons(ratios))
            return
        results = benching.bench_engines(opened, accelerator=accelerator, **options)
        names = dict.fromkeys(str(result["variant"]) for result in results if "stage" not in result)
        swept = [
            point
            for name in names
            if points
            for point in bench_sweep.sweep(opened, name, points, seconds=seconds)
        ]
    ran = bench_history.run_now(bundle.name, digest, results, bench_history.this_machine())
    wrong = bench_limits.beyond(results, checks, baseline_results)
    text = benching.render(results) + (f"\n\n{bench_sweep.render_sweep(swept)}" if swept else "")
    text += "".join(f"\n  beyond    {line}" for line in wrong)
    written, lines = _written(history, plot, ran)
    text += lines
    sections = {**({"sweep": swept} if points else {}), **({"beyond": wrong} if checks else {}), **written}
    terminal.answer(as_json, {"results": results, **sections}, text)
    ctx.exit(1 if wrong else 0)


def _need_history(history: Path | None, plot: Path | None) -> None:
    """Refuse, before anything is measured, a history or a page that can't be written."""
    from edgekit.compiler.bench.history import read_history

    if history is None:
        if plot is not None:
            raise UsageError("--plot needs --history FILE.jsonl, whose runs it draws")
        return
    if history.suffix.lower() != ".jsonl":
        raise UsageError(f"{history} must be a JSON Lines file; end its name in .jsonl")
    need_writable(history, "the history")
    read_history(history)
    if plot is not None:
        from edgekit.report.page import need_packages

        need_packages()
        need_page(plot)
        need_writable(plot, "the page")


def _written(history: Path | None, plot: Path | None, run: Run) -> tuple[dict[str, Any], str]:
    """Add a run to the history and draw the page, as asked; what ``--json`` and the text say of it."""
    if history is None:
        return {}, ""
    from edgekit.compiler.bench.history import append_run, read_history

    append_run(history, run)
    runs = read_history(history)
    text = f"\n  history   {history}  {len(runs)} run{'s' if len(runs) > 1 else ''}"
    if plot is None:
        return {"history": str(history)}, text
    from edgekit.report.history import history_page
    from edgekit.report.page import write_page

    page = history_page(runs, history.name)
    write_page(plot, page)
    return {
        "history": str(history),
        "plot": str(plot),
    }, f"{text}\n  plot      {plot}  {size(len(page.encode()))}"
