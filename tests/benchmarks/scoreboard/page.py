"""The scoreboard's page: counts, verdicts, causes, and a chart and a table for each network."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import tomllib

from tests.benchmarks.scoreboard.chart import draw_chart, uses_metric
from tests.benchmarks.scoreboard.entry_child import PROMPT, WRITTEN
from tests.benchmarks.scoreboard.makers import MAKERS
from tests.benchmarks.scoreboard.networks import FIXED, NETWORKS, POOL
from tests.benchmarks.scoreboard.results import DRAW, cells_of, load_results
from tests.benchmarks.scoreboard.verdict import (
    AHEAD,
    BEHIND,
    FRONT,
    MEANINGS,
    METRIC_MARGIN,
    NONE,
    OFF,
    SNR_MARGIN_DB,
    TIME_MARGIN,
    TIMES,
    Cell,
    Point,
    front,
    number,
    points,
    ships_float,
    verdict_of,
)

CAUSES = Path(__file__).with_name("causes.toml")
PAGE_WIDTH = 120
INTRODUCTION = """
EdgeKit's int8 beside that of other tools, network by network and engine by engine; of language models also
int4, beside other runtimes. Anyone can run it again, and losses stay on it.
"""
METHOD = """
Each maker runs in a process and an environment of its own, with pinned packages, and gets the same 64
samples (45 for keywords). Each artifact is loaded in a process of its own and scored on samples that no
maker has seen. The processes then take turns in random order, pinned to one processor or two, with ONNX
Runtime's spinning off. A time is the lower quartile over the rounds of a burst's median: CPU time on one
thread, the clock on two. "Memory" is the largest resident set of the process that loads and runs the
artifact. "Made in" is the CPU time of the maker's process. Accuracy is agreement with the float model: by
the metric of the task, and by the SNR of the worst output in dB; "labelled" is against labels.
"""
TEXTS = f"""
A language model's time is that of a prompt of {PROMPT} tokens and the {WRITTEN} that follow, by the runtime
that the artifact is for; tokens a second of both are llama-bench's pp{PROMPT} and tg{WRITTEN}, the latter
after the prompt, in CPU time of one thread. Its accuracy is the share of positions of a text, written for
this, at which the likeliest token is the float model's, and the SNR of all logits; "labelled" is the text's
perplexity. llama.cpp, an engine of its own, is compared with each of EdgeKit's; onnxruntime-genai gets
EdgeKit's graph and weights. Q4_1 is the file as it was published, which the others are made from.
"""
MARGINS = f"""
One artifact is faster than another by more than {TIME_MARGIN:.0%}, or by more than two processes of the
same artifact differed by in that cell. It is more accurate by more than {METRIC_MARGIN:g} of the metric,
or, within that, by more than {SNR_MARGIN_DB:g} dB. Where a build rejects every int8, it ships fp32: the
rows "as shipped" count that. The rows "by force" count each int8 as `--force` gives it.
"""
BUSY = """
Other programs ran meanwhile (see the load). CPU time on one thread is a ratio in turns and little affected.
Times on two threads are by the clock, on processors that were not free: two processes of the same artifact
differ by more there, which the margin of the cell takes in.
"""
VERDICTS_NOTE = """
a choice in EdgeKit's quantizer was made with it. One thread, as shipped; "fp32" where a build rejects every
int8, with the verdict on that int8 in brackets.
"""
OTHER_TEXTS = """- LiteRT-LM, and larger language models. Earlier figures are in [Measured: language
models](measured/language-models.md)."""
VERDICTS = (AHEAD, FRONT, OFF, BEHIND, NONE)
MARK = "\\*"


def write_page(results: Path, page: Path) -> None:
    """Write the page beside its folder of charts."""
    stored = load_results(results)
    cells = cells_of(stored)
    drawn = stored.get(DRAW, {"networks": [], "seed": None})
    known = tomllib.loads(CAUSES.read_text("utf-8"))
    lines = [
        *head(cells, drawn),
        *counts(cells, drawn),
        *verdicts(cells),
        *why(cells, known["causes"]),
        *mended(known["mended"]),
        *not_run(cells, drawn),
    ]
    charts = page.with_suffix("")
    charts.mkdir(parents=True, exist_ok=True)
    for old in charts.glob("*.svg"):
        old.unlink()
    for name in dict.fromkeys(cell["network"] for cell in cells):
        own = [cell for cell in cells if cell["network"] == name and cell["entries"]]
        if own:
            lines += section(name, own, name in drawn["networks"], charts)
    page.write_text("\n".join(lines).rstrip() + "\n", "utf-8")


def head(cells: Sequence[Cell], drawn: Mapping[str, Any]) -> Iterator[str]:
    """Yield the page's beginning: how it was measured, on which machine, with which versions."""
    ran = [cell for cell in cells if cell["entries"]]
    dates = sorted({cell["date"] for cell in ran}) or ["-"]
    loads = sorted(cell["load"] for cell in ran if cell["load"] is not None) or [0]
    versions: dict[str, set[str]] = {}
    for entry in (entry for cell in ran for entry in cell["entries"]):
        for name, version in entry["versions"].items():
            versions.setdefault(name, set()).add(version)
    machines = {f"{cell['processor']} ({', '.join(cell['isa'])}; {cell['cores']} cores)" for cell in ran}
    facts = {
        "Processor": "; ".join(sorted(machines)),
        "Engines": ", ".join(sorted({cell["engine_version"] for cell in ran})),
        "Tools": "; ".join(f"{name} {', '.join(sorted(versions[name]))}" for name in sorted(versions)),
        "Measured": f"{dates[0]} to {dates[-1]}, EdgeKit {', '.join(sorted({c['edgekit'] for c in ran}))}",
        "Load while timing": f"{loads[0]:g} to {loads[-1]:g}, median {loads[len(loads) // 2]:g}",
        "Drawn networks": f"{', '.join(drawn['networks']) or '-'} (seed {drawn['seed']})",
    }
    yield "# Scoreboard"
    yield ""
    yield from wrap(INTRODUCTION)
    yield ""
    yield "    python -m tests.benchmarks.scoreboard all                   # all cells"
    yield "    python -m tests.benchmarks.scoreboard cell YOLOX-nano ort   # one cell"
    yield ""
    yield "| measured | with |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in facts.items())
    yield ""
    busy = loads[len(loads) // 2] > max((cell["cores"] for cell in ran), default=1)
    for paragraph in (METHOD, TEXTS, MARGINS, *([BUSY] if busy else [])):
        yield from wrap(paragraph)
        yield ""


def wrap(paragraph: str) -> list[str]:
    return textwrap.wrap(" ".join(paragraph.split()), PAGE_WIDTH, break_on_hyphens=False)


def counts(cells: Sequence[Cell], drawn: Mapping[str, Any]) -> Iterator[str]:
    """Yield the counts of verdicts, the drawn networks apart."""
    yield "## Counts"
    yield ""
    yield "| networks | EdgeKit's | threads | cells | ahead | front | off | behind | none |"
    yield "|---|---|---|---|---|---|---|---|---|"
    groups = {
        "of every scoreboard": [cell for cell in cells if cell["network"] not in drawn["networks"]],
        "drawn": [cell for cell in cells if cell["network"] in drawn["networks"]],
    }
    for title, group in groups.items():
        for forced, threads in product((False, True), TIMES):
            ran = [cell for cell in group if points(cell, threads)]
            tally = Counter(verdict_of(cell, threads, forced)[0] for cell in ran)
            figures = " | ".join(str(tally[verdict]) for verdict in VERDICTS)
            mode = "by force" if forced else "as shipped"
            yield f"| {title} | {mode} | {threads} | {len(ran)} | {figures} |"
    yield ""
    yield from (f"- {MEANINGS[verdict]}" for verdict in VERDICTS)
    yield ""


def verdicts(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a verdict for each network and engine."""
    yield "## Verdicts"
    yield ""
    yield from wrap(f"{MARK} {VERDICTS_NOTE}")
    yield ""
    engines = list(MAKERS)
    yield f"| network | {' | '.join(engines)} |"
    yield "|---|" + "---|" * len(engines)
    by_cell = {(cell["network"], cell["engine"]): cell for cell in cells}
    for name in dict.fromkeys(cell["network"] for cell in cells):
        words = []
        for engine in engines:
            cell = by_cell.get((name, engine))
            if cell is None:
                words.append("not run")
            elif not points(cell):
                words.append("failed")
            else:
                by_force = f", fp32 ({verdict_of(cell, forced=True)[0]})" if ships_float(cell) else ""
                words.append(verdict_of(cell)[0] + by_force)
        yield f"| {titled(name)} | {' | '.join(words)} |"
    yield ""


def why(cells: Sequence[Cell], causes: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the table of causes: each cell that is off the front or behind, and why."""
    texts = {(cause["network"], cause["engine"]): cause["cause"] for cause in causes}
    yield "## Causes"
    yield ""
    yield "Cells where EdgeKit is off the front or behind on one thread, as shipped or by force."
    yield ""
    yield "| network | engine | as shipped | by force | better | cause |"
    yield "|---|---|---|---|---|---|"
    for cell in cells:
        if not points(cell):
            continue
        (verdict, reasons), (by_force, more) = verdict_of(cell), verdict_of(cell, forced=True)
        if {verdict, by_force} & {OFF, BEHIND}:
            cause = texts.get((cell["network"], cell["engine"]), "not found yet")
            better = "; ".join(sorted({*reasons, *more}))
            values = (titled(cell["network"]), cell["engine"], verdict, by_force, better, cause)
            yield f"| {' | '.join(values)} |"
    yield ""


def mended(changes: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the causes that were mended since the first run."""
    yield "Mended since the first run:"
    yield ""
    yield "| cells | cause | change | effect |"
    yield "|---|---|---|---|"
    columns = ("cells", "cause", "change", "effect")
    yield from (f"| {' | '.join(change[key] for key in columns)} |" for change in changes)
    yield ""


def not_run(cells: Sequence[Cell], drawn: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has no result: networks, cells, and makers that were left out."""
    done = {(cell["network"], cell["engine"]) for cell in cells}
    absent: dict[str, list[str]] = {}
    for name in (*(network.name for network in FIXED), *drawn["networks"]):
        for engine in MAKERS:
            if (name, engine) not in done:
                absent.setdefault(engine, []).append(name)
    for cell in cells:
        for entry in cell.get("not_run", []):
            absent.setdefault(f"{entry} on {cell['engine']}", []).append(cell["network"])
    failed = [
        f"{cell['network']} on {cell['engine']}: {cell['failure']}" for cell in cells if cell.get("failure")
    ]
    rest = len([network for network in POOL if network.name not in drawn["networks"]])
    yield "## Not run"
    yield ""
    yield f"- The {rest} networks of the pool that were not drawn."
    yield from wrap(OTHER_TEXTS)
    yield "- Core ML, TensorRT and other engines that do not run on this processor."
    yield from (f"- {title}: {', '.join(networks)}." for title, networks in absent.items())
    yield from (f"- {text}" for text in failed)
    yield ""


def titled(name: str) -> str:
    network = NETWORKS.get(name)
    return f"{name}{MARK}" if network is not None and network.chosen_with else name


def section(name: str, cells: Sequence[Cell], drawn: bool, charts: Path) -> Iterator[str]:
    """Yield the chart and the table of a network."""
    network = NETWORKS.get(name)
    yield f"## {name}{' (drawn)' if drawn else ''}"
    yield ""
    if network is not None:
        count, metric = cells[0]["samples"], cells[0]["metric"]
        of_what = "tokens of" if network.language else "samples of the set"
        yield f'{network.model}; {count} {of_what} "{network.samples}"; metric: {metric}.'
        yield ""
    file = charts / f"{name}.svg"
    rows = {cell["engine"]: [point for _, point in points(cell)] for cell in cells if points(cell)}
    if rows:
        file.write_text(draw_chart(rows), "utf-8")
        yield f"![{alternative(name, rows)}]({charts.name}/{file.name})"
        yield ""
    rates = [f"pp{PROMPT} t/s", f"tg{WRITTEN} t/s"] if network is not None and network.language else []
    heads = ("engine", "by", "metric", "SNR dB", "ms, 1 thread", "ms, 2 threads", *rates, "MB", "memory MB")
    heads += ("made in s", "front", "remark")
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for cell in cells:
        best = {point.entry for point in front([point for _, point in points(cell)])}
        for entry in cell["entries"]:
            yield row(cell, entry, entry["entry"] in best, bool(rates))
    yield ""


def row(cell: Cell, entry: Mapping[str, Any], on_front: bool, rates: bool) -> str:
    remark = entry["failure"] or (f"a build rejects it: {entry['note']}" if entry["note"] else "")
    if entry.get("labelled"):
        figure = entry["labelled"]
        remark = "; ".join(filter(None, [f"labelled: {figure['metric']} {figure['value']:.3f}", remark]))
    metric = "-" if entry.get("metric") is None else f"{number(entry['metric']):.3f}"
    values = [
        metric,
        decibels(entry["snr_db"]) if "snr_db" in entry else "-",
        *(milliseconds(entry[field]) if field in entry else "-" for field in TIMES.values()),
        *(tokens_a_second(entry) if rates else ()),
        f"{entry['size_kb'] / 1024:.2f}" if entry["size_kb"] else "-",
        f"{entry['peak_mb']:.0f}" if entry.get("peak_mb") else "-",
        f"{entry['build_cpu_s']:.0f}",
        "yes" if on_front else "",
        remark.replace("|", "\\|"),
    ]
    return f"| {cell['engine']} | {entry['entry']} | {' | '.join(values)} |"


def tokens_a_second(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return how many tokens a language model reads and writes in a second of CPU time on one thread."""
    if "read_cpu_ms_1" not in entry:
        return "-", "-"
    return f"{1000 * PROMPT / entry['read_cpu_ms_1']:.0f}", f"{1000 / entry['token_cpu_ms_1']:.1f}"


def milliseconds(value: float) -> str:
    """Return a time in three digits, or more where it has more before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def decibels(value: float | str) -> str:
    snr_db = float(value)
    return "exact" if snr_db == math.inf else f"{snr_db:.1f}" if math.isfinite(snr_db) else "not finite"


def alternative(name: str, rows: Mapping[str, Sequence[Point]]) -> str:
    """Return the text of a chart for those who do not see it: each engine's front."""
    metric = uses_metric(rows)
    fronts = []
    for engine, every in rows.items():
        told = ", ".join(
            f"{point.entry} {milliseconds(point.ms)} ms"
            + (
                f" at {point.metric:.3f}"
                if metric
                else f" at {decibels(point.snr_db)} dB".replace("exact dB", "exact")
            )
            for point in front(every)
        )
        fronts.append(f"{engine}: {told}")
    return f"{name}, time against accuracy. On the front: {'; '.join(fronts)}".replace("[", "(").replace(
        "]", ")"
    )
