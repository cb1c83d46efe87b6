"""Page of a fleet: its table, latency and failures by bundle, and the decision on a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.release.fleet.devices import Fleet
from edgekit.release.fleet.rollout import Verdict
from edgekit.release.fleet.rollout_text import finding_cells, sentence
from edgekit.release.fleet.table import COLUMNS, FleetRow, lines_of
from edgekit.report.charts import COLOURS, TICKS, Spec, layered
from edgekit.report.page import need_packages, rendered

FINDING_COLUMNS = ("measure", "devices", "difference", "at least", "at most", "says")


@dataclass(frozen=True)
class ModelFleet:
    """Section of the page for a model."""

    model: str
    summary: str
    rows: Sequence[tuple[str, ...]]
    findings: Sequence[tuple[str, ...]]
    variants: Sequence[tuple[str, ...]]


def fleet_page(fleets: Sequence[tuple[Fleet, Verdict | None]], name: str) -> str:
    """Render a self-contained HTML document.

    Args:
        fleets: Fleet of each model, with the decision on its rollout; None: only one bundle is in use.
        name: Name for the title.

    Raises:
        MissingDependency: the extra ``report`` is not installed.
    """
    need_packages()
    shown, charts = [], {}
    for number, (fleet, verdict) in enumerate(fleets):
        lines = lines_of(fleet)
        shown.append(
            ModelFleet(
                fleet.model,
                "" if verdict is None else sentence(verdict),
                [line.cells for line in lines],
                [] if verdict is None else [finding_cells(finding) for finding in verdict.findings],
                [
                    (line.channel or "-", line.device_class, line.bundle, variant, str(count))
                    for line in lines
                    for variant, count in line.variants.items()
                ],
            )
        )
        charts[f"fleet-{number}"] = fleet_chart(lines)
    return rendered(
        "fleet.html",
        charts,
        name=name,
        fleets=shown,
        columns=COLUMNS,
        finding_columns=FINDING_COLUMNS,
        variant_columns=("channel", "class", "bundle", "variant", "devices"),
    )


def fleet_chart(lines: Sequence[FleetRow]) -> Spec:
    """Return a chart of the median time and its p95 by device class and bundle."""
    rows = [
        {
            "place": f"{line.device_class} {line.channel}".strip(),
            "bundle": line.bundle,
            "p50": line.p50_ms,
            "p95": line.p95_ms,
            "said": f"{line.device_class}, {line.bundle}: {', '.join(line.cells[4:])}",
        }
        for line in lines
        if line.p50_ms is not None
    ]
    bundles = list(dict.fromkeys(line.bundle for line in lines))
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(bundles))]
    scale = {"domain": bundles, "range": colours}
    color = {"field": "bundle", "type": "nominal", "title": "bundle", "scale": scale}
    offset = {"field": "bundle", "scale": {"domain": bundles}}
    y = {"field": "place", "type": "nominal", "title": None}
    x = {
        "field": "p50",
        "type": "quantitative",
        "title": "time of a request, ms: p50, and up to p95",
        "axis": TICKS,
    }
    text = {"field": "said", "type": "nominal"}
    shared = {"y": y, "yOffset": offset, "x": x, "color": color}
    reach = {
        "mark": {"type": "rule", "opacity": 0.5, "aria": False},
        "encoding": {**shared, "x2": {"field": "p95"}},
    }
    marks = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
        "encoding": {**shared, "tooltip": text, "description": text},
    }
    return layered(80 + 28 * len(rows), rows, [reach, marks])
