"""The page of a benchmark history: times by variant over the runs, apart by bundle, machine and threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.compiler.bench.history import Run
from edgekit.errors import UsageError
from edgekit.report.charts import COLOURS, SAID, SHAPES, Spec, layered, names, numbers
from edgekit.report.page import need_packages, rendered
from edgekit.system.formats.plain_text import milliseconds

SUMMARY_COLUMNS = ("variant", "figures", "first", "newest", "change", "best")
ROW_COLUMNS = ("time, UTC", "EdgeKit", "bundle", "variant", "p50", "p95", "p99", "load", "first run")
DIGEST_CHARS = 12
Figure = tuple["Run", "Mapping[str, Any]"]


@dataclass(frozen=True)
class HistoryGroup:
    """Figures that can be compared: of one bundle's name, one machine and one number of threads.

    Attributes:
        title, machine: In words.
        figures: (run, result of a variant), the oldest first.
    """

    title: str
    machine: str
    figures: tuple[Figure, ...]

    @property
    def variants(self) -> list[str]:
        """In the order in which they came."""
        return list(dict.fromkeys(result["variant"] for _, result in self.figures))

    @property
    def summary(self) -> list[tuple[str, ...]]:
        """SUMMARY_COLUMNS of each variant, by its medians."""
        rows: list[tuple[str, ...]] = []
        for name in self.variants:
            medians = [float(result["p50_ms"]) for _, result in self.figures if result["variant"] == name]
            first, newest = medians[0], medians[-1]
            change = f"{newest / first - 1:+.1%}" if len(medians) > 1 and first else "-"
            times = milliseconds(first), milliseconds(newest), change, milliseconds(min(medians))
            rows.append((name, str(len(medians)), *times))
        return rows

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """ROW_COLUMNS of each figure, the newest first."""
        keys = ("p50_ms", "p95_ms", "p99_ms", "load_ms", "first_ms")
        return [
            (
                run.time.replace("T", " ").rstrip("Z"),
                run.edgekit,
                run.digest[:DIGEST_CHARS],
                result["variant"],
                *(milliseconds(result[key]) for key in keys),
            )
            for run, result in reversed(self.figures)
        ]


def history_page(runs: Sequence[Run], name: str) -> str:
    """Return the page of a history: one HTML document that loads no other resource.

    Args:
        runs: Runs from :func:`edgekit.compiler.bench.history.read_history`.

    Raises:
        UsageError: no run has a result.
        MissingDependency: the extra ``report`` is not installed.
    """
    need_packages()
    groups = groups_of(runs)
    if not groups:
        raise UsageError(f"{name} has no figures to draw")
    ordered = sorted(run.time for run in runs)
    counted = f"{len(runs)} run{'s' if len(runs) > 1 else ''} from {ordered[0][:10]} to {ordered[-1][:10]}."
    return rendered(
        "history.html",
        {f"history-{number}": history_chart(group) for number, group in enumerate(groups)},
        name=name,
        said=(counted, "Times are compared within one bundle, machine and number of threads alone."),
        groups=groups,
        summary_columns=SUMMARY_COLUMNS,
        row_columns=ROW_COLUMNS,
    )


def groups_of(runs: Sequence[Run]) -> list[HistoryGroup]:
    """Group the runs by everything that makes times incomparable. Groups with the newest figures come
    first."""
    figures_by_key: dict[tuple[Any, ...], list[Figure]] = {}
    for run in sorted(runs, key=lambda run: run.time):
        for result in run.results:
            key = run.bundle, run.cpu, run.isa, run.machine, result["threads"]
            figures_by_key.setdefault(key, []).append((run, result))
    groups = []
    for (bundle, cpu, isa, machine, threads), figures in figures_by_key.items():
        title = f"{bundle} on {cpu}, {threads} thread{'s' if threads > 1 else ''}"
        groups.append(HistoryGroup(title, ", ".join([machine, *isa]), tuple(figures)))
    return sorted(groups, key=lambda group: group.figures[-1][0].time, reverse=True)


def history_chart(group: HistoryGroup) -> Spec:
    """p50 and p95 by variant over the time of the runs."""
    rows = [
        {
            "time": run.time,
            "variant": result["variant"],
            "p50": result["p50_ms"],
            "p95": result["p95_ms"],
            "said": f"{result['variant']}: {milliseconds(result['p50_ms'])}, p95 "
            f"{milliseconds(result['p95_ms'])}; {run.time}, EdgeKit {run.edgekit}, "
            f"bundle {run.digest[:DIGEST_CHARS]}",
        }
        for run, result in group.figures
    ]
    variants = group.variants
    # One colour with six shapes after the other, so that 36 variants differ.
    shapes = [SHAPES[(i + i // len(COLOURS)) % len(SHAPES)] for i in range(len(variants))]
    x = {
        "field": "time",
        "type": "temporal",
        "title": "time of the run, UTC",
        "scale": {"type": "utc"},
        "axis": {"tickCount": 4, "format": "%m-%d %H:%M", "grid": False, "labelOverlap": True},
    }
    y = numbers("p50", "time of an inference, ms", zero=False, nice=True)
    color, shape = names("variant", None, variants, COLOURS), names("variant", None, variants, shapes)
    marks = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
        "encoding": {"x": x, "y": y, "color": color, "shape": shape, **SAID},
    }
    lines = {"mark": {"type": "line", "aria": False}, "encoding": {"x": x, "y": y, "color": color}}
    reach = {
        "mark": {"type": "rule", "opacity": 0.5, "aria": False},
        "encoding": {"x": x, "y": y, "y2": {"field": "p95"}, "color": color},
    }
    return layered(280, rows, [reach, lines, marks])
