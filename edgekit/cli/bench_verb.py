"""The verb ``bench``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    accelerator_option,
    as_json_option,
    bundle_argument,
    engine_option,
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
    from edgekit.bundle.bundle import Bundle
    from edgekit.compiler.bench.history import Run
    from edgekit.devices.measure import Measured
    from edgekit.tensor_spec import Json

OF_A_RUN = ("engine", "variant", "threads", "seconds", "fps", "price_per_hour")
"""Options that a device takes as well."""


@main.command(
    headings={
        "Comparison": "against clock limits baseline",
        "Throughput and cost": "sweep price_per_hour",
        "History": "history plot trace",
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
@path_option(
    "--trace", metavar="FILE.json", help="Write when each stage of 60 frames ran, for ui.perfetto.dev."
)
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
    trace: Path | None,
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
    from edgekit.compiler.bench import history as bench_history
    from edgekit.compiler.bench import limits as bench_limits
    from edgekit.compiler.bench import sweep as bench_sweep
    from edgekit.devices.worker import device_facts
    from edgekit.processing.generation import is_generation

    _need_files(history, plot, trace)
    checks = [bench_limits.parse_limit(text) for text in limits]
    baseline_results = None if baseline is None else bench_limits.read_baseline(baseline)
    points = bench_sweep.parse_sweep(sweep) if sweep is not None else []
    _refuse_combinations(ctx.params)
    options: dict[str, Json] = {name: ctx.params[name] for name in OF_A_RUN}

    def judged(results: list[dict[str, Any]], machine: Mapping[str, Any]) -> tuple[list[str], str, Run]:
        wrong = bench_limits.beyond(results, checks, baseline_results)
        return wrong, benching.render(results), bench_history.run_now(facts, results, machine)

    with open_bundle(bundle) as opened:
        facts = bench_history.bundle_facts(opened)  # of what is measured: --merge makes another
        if is_generation(opened.card):
            _bench_text(opened, ctx.params)
            return
    if device is not None:
        measured = on_device(bundle, device, merge, "bench", options)
        if measured.by_tools:
            _answer_tools(measured, ctx.params)
            return
        with sound_answer(device):
            wrong, text, ran = judged(measured.results, measured.device)
        extra: dict[str, Any] = {"device": measured.device}
    else:
        with open_bundle(bundle) as opened:
            opened.verify_entries()  # a damaged entry is reported as such, not as a variant that does not run
        with open_bundle(bundle) as opened:
            if against is not None:
                _compare(opened, against, ctx.params)
                return
            results = benching.bench_engines(opened, accelerator=accelerator, **options)
            names = dict.fromkeys(str(result["variant"]) for result in results if "stage" not in result)
            rows = [bench_sweep.sweep(opened, name, points, seconds=seconds) for name in names if points]
            swept = [row for of_variant in rows for row in of_variant]
        wrong, text, ran = judged(results, device_facts())
        text += f"\n\n{bench_sweep.render_sweep(swept)}" if swept else ""
        extra = {"sweep": swept} if points else {}
    extra |= {"beyond": wrong} if checks else {}
    written, lines = _written(history, plot, ran)
    extra |= written if trace is None else {**written, "trace": str(trace)}
    text += "".join(f"\n  beyond    {line}" for line in wrong) + lines + _traced(bundle, trace, ctx.params)
    terminal.answer(as_json, ran.as_json() | extra, text)
    ctx.exit(1 if wrong else 0)


def _traced(bundle: Path, trace: Path | None, params: Mapping[str, Any]) -> str:
    if trace is None:
        return ""
    from edgekit.compiler.bench.trace import write_trace

    options = {name: params[name] for name in ("engine", "variant", "threads")}
    with open_bundle(bundle) as opened:
        count = write_trace(opened, trace, **options)
    return f"\n  trace     {trace}  {count} spans; open it at https://ui.perfetto.dev"


def _refuse_combinations(params: Mapping[str, Any]) -> None:
    against, sweep, accelerator = params["against"], params["sweep"], params["accelerator"]
    others = ("limits", "sweep", "baseline", "price_per_hour", "history")
    if against is not None and any(params[name] not in (None, ()) for name in others):
        raise UsageError(
            "--against cannot be combined with --sweep, --fail-if, --baseline, --price-per-hour or --history"
        )
    if params["fps"] is not None and (against is not None or sweep is not None):
        raise UsageError("--fps does not combine with --against or --sweep, whose runs have no pauses")
    if sweep is not None and params["threads"] is not None:
        raise UsageError("--sweep sets the number of threads; remove --threads")
    here = {"--against": against, "--sweep": sweep, "--accelerator": accelerator, "--trace": params["trace"]}
    if params["trace"] is not None and (against is not None or accelerator is not None):
        raise UsageError("--trace does not combine with --against or --accelerator")
    need_device(params["device"], params["merge"], here)
    if accelerator is not None and (against is not None or sweep is not None):
        raise UsageError("--accelerator does not combine with --against or --sweep")


def _bench_text(bundle: Bundle, params: Mapping[str, Any]) -> None:
    from edgekit.generate.device import bench_text

    names = ("--against", "--sweep", "--price-per-hour", "--fps", "--accelerator", "--trace")
    flags = {flag: params[flag[2:].replace("-", "_")] for flag in names}
    flags |= {"--fail-if": params["limits"], "--baseline": params["baseline"], "--history": params["history"]}
    bench_text.refuse_for_text({**flags, "--device": params["device"]})
    options = {name: params[name] for name in ("engine", "variant", "threads", "seconds")}
    rows = bench_text.bench_text(bundle, **options)
    terminal.answer(params["as_json"], {"results": rows}, bench_text.render_text(rows))


def _answer_tools(measured: Measured, params: Mapping[str, Any]) -> None:
    from edgekit.devices.vendor_tools import render

    if params["limits"] or params["history"]:
        flag, device = "--fail-if" if params["limits"] else "--history", params["device"]
        raise DeviceError(f"{flag} is for what bench measures; {device} has a vendor's tool alone")
    rows = measured.rows_by_tool
    terminal.answer(params["as_json"], {"device": measured.device, "by": rows}, render(rows))


def _compare(bundle: Bundle, against: str, params: Mapping[str, Any]) -> None:
    from edgekit.compiler.bench.compare import compare_bundles, render_comparisons

    options = {name: params[name] for name in ("engine", "variant", "threads", "seconds", "clock")}
    ratios = compare_bundles(bundle, against, **options)
    terminal.answer(params["as_json"], {"comparisons": ratios}, render_comparisons(ratios))


def _need_files(history: Path | None, plot: Path | None, trace: Path | None) -> None:
    """Refuse, before anything is measured, a file that can't be written."""
    from edgekit.compiler.bench.history import read_history

    if trace is not None:
        need_writable(trace, "the trace")
    if history is None:
        if plot is not None:
            raise UsageError("--plot needs --history FILE.jsonl, whose runs it draws")
        return
    if history.suffix.lower() != ".jsonl":
        raise UsageError(f"{history} must be a JSON Lines file; end its name in .jsonl")
    need_writable(history, "the history")
    read_history(history)
    if plot is not None:
        from edgekit.report.page import need_page

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
