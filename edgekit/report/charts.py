"""Charts of the page: Vega-Lite specifications (https://vega.github.io/vega-lite/docs/), drawn as SVG.

Names and reasons from a file are data in them, never expressions or titles. Colours are the page's own CSS
variables, so that a chart follows light, dark and print.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from edgekit.bundle.report import TOKEN_TIME
from edgekit.report.facts import ReportFacts, SearchFacts

Spec = dict[str, Any]

DAMAGE_BARS = 20
"""So many blocks are drawn, the worst first; the table has all."""
COLOURS = [f"var(--series-{number})" for number in range(1, 7)]
PANEL_PIXELS = 480
"""Width of a chart that has another one beside it."""
SHAPES = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross"]
TICKS: Spec = {"tickCount": 5}
TEXT: Spec = {"field": "said", "type": "nominal"}
SAID: Spec = {"tooltip": TEXT, "description": TEXT}
"""What a mark shows on hover, and tells a screen reader."""
WIDE_PIXELS, NARROW_PIXELS = 1000, 340
"""Widths that a chart is drawn at: for a desk, and for a phone, where a smaller picture could not be read."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"

_LABELS: Spec = {
    "labelColor": "var(--ink)",
    "labelFontSize": 12,
    "titleColor": "var(--dim)",
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
CONFIG: Spec = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {**_LABELS, **dict.fromkeys(("domainColor", "gridColor", "tickColor"), "var(--line)")},
    "legend": {
        **_LABELS,
        "columns": 3,
        "layout": {"margin": 24},
        "orient": "bottom",
        "symbolStrokeColor": "var(--dim)",
    },
    "text": {"color": "var(--ink)", "fontSize": 12},
}


def numbers(field: str, title: str, **scale: Any) -> Spec:
    """Return an axis of numbers."""
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": TICKS}


def names(field: str, title: str | None, domain: Sequence[str], values: Sequence[str]) -> Spec:
    """Return a legend of names: each one's colour or shape."""
    scale = {"domain": list(domain), "range": [values[i % len(values)] for i in range(len(domain))]}
    return {"field": field, "type": "nominal", "title": title, "scale": scale}


def variants_chart(facts: ReportFacts) -> Spec | None:
    """Return a chart of accuracy, latency and size, or None if no variant has both accuracy and latency."""
    if not facts.points:
        return None
    rows = [
        {
            "variant": point.name,
            "profile": point.profile,
            "latency": point.latency_ms,
            "accuracy": point.accuracy,
            "size": point.size_mb,
            "front": point.front,
            "state": "rejected" if point.rejected else "not scored" if not point.scored else "kept",
            "said": point.summary,
        }
        for point in facts.points
    ]
    profiles = list(dict.fromkeys(point.profile for point in facts.points))
    run = "token" if TOKEN_TIME in facts.columns else "run"
    x = numbers("latency", f"median time of a {run} at build, ms", zero=True, nice=True)
    title = facts.metric + (f", {facts.unit}" if facts.unit else "")
    y = numbers("accuracy", title, zero=False, nice=True, padding=24, **_domain(facts))
    colour = names("profile", "built for", profiles, COLOURS)
    sizes = [point.size_mb for point in facts.points]
    size = {
        **numbers("size", "size, MB", zero=True, range=[30, 420]),
        "legend": {"values": sorted({float(f"{limit(sizes):.1g}") for limit in (min, max)})},
    }
    size.pop("axis")
    marks = {
        "mark": {"type": "point", "filled": False, "strokeWidth": 2},
        "encoding": {
            "x": x,
            "y": y,
            "size": size,
            "color": colour,
            "shape": names("profile", "built for", profiles, SHAPES),
            "fill": {"condition": {"test": "datum.state === 'kept'", **colour}, "value": "transparent"},
            "strokeDash": {
                "condition": {"test": "datum.state === 'rejected'", "value": [2, 2]},
                "value": [1, 0],
            },
            **SAID,
        },
    }
    rings = {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "point", "size": 700, "stroke": "var(--dim)", "strokeWidth": 1, "aria": False},
        "encoding": {"x": x, "y": y, "tooltip": TEXT},
    }
    labels = {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "text", "dy": -22, "limit": 150},
        "encoding": {"x": x, "y": y, "text": {"field": "variant", "type": "nominal"}},
    }
    return layered(320, rows, [rings, marks, labels])


def candidates_chart(search: SearchFacts) -> Spec | None:
    """Return a chart of accuracy and time of a profile's int8 candidates, or None if no candidate has
    both."""
    rows = [
        {
            "choice": candidate.choice,
            "ratio": candidate.ratio,
            "accuracy": candidate.accuracy,
            "state": "rejected" if candidate.lost else "chosen",
            "said": f"{candidate.choice}: {candidate.lost or 'chosen'}",
        }
        for candidate in search.candidates
        if candidate.ratio is not None and candidate.accuracy is not None
    ]
    if not rows:
        return None
    states = ("chosen", "rejected")
    marks = {
        "mark": {"type": "point", "filled": False, "size": 90, "strokeWidth": 2},
        "encoding": {
            "x": numbers("ratio", "time at build, in multiples of the float parent's", zero=True),
            "y": numbers(
                "accuracy",
                search.metric + (f", {search.unit}" if search.unit else ""),
                zero=False,
                padding=12,
            ),
            "color": names("state", None, states, COLOURS),
            "shape": names("state", None, states, ("circle", "cross")),
            **SAID,
        },
    }
    parent = {
        "data": {"values": [{"ratio": 1}]},
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--dim)", "aria": False},
        "encoding": {"x": {"field": "ratio", "type": "quantitative"}},
    }
    return layered(180, rows, [parent, marks], PANEL_PIXELS)


def damage_chart(search: SearchFacts) -> Spec | None:
    """SNR of the outputs with one block alone quantized, the worst blocks; None if it was not measured."""
    if not search.damage:
        return None
    rows = [
        {
            "block": name,
            "snr": snr_db,
            "state": "stays float" if repaired else "int8",
            "said": f"{name}: {snr_db:.1f} dB alone in int8; {'stays float' if repaired else 'in int8'}"
            + (f"; {kinds}" if kinds else ""),
        }
        for name, snr_db, repaired, kinds in search.damage[:DAMAGE_BARS]
    ]
    block = {
        "field": "block",
        "type": "nominal",
        "title": None,
        "sort": {"field": "snr", "order": "ascending"},
        "axis": {"labelLimit": 150, "labelFontSize": 11},
    }
    bars = {
        "mark": {"type": "bar", "height": 11},
        "encoding": {
            "y": block,
            "x": numbers("snr", "SNR, dB (lower is worse)"),
            "color": names("state", None, ("int8", "stays float"), COLOURS),
            **SAID,
        },
    }
    return layered(17 * len(rows) + 10, rows, [bars], PANEL_PIXELS)


def matrix_chart(rows: Sequence[Spec], classes: Sequence[str], right: str) -> Spec:
    """Return a chart of how often one class is taken for another.

    Args:
        rows: ``right``, ``answer``, ``count`` and ``said`` of each pair.
        right: What the rows' classes are, e.g. ``label``.
    """
    axis = {"scale": {"domain": classes}, "axis": {"labelLimit": 150, "grid": True}, "type": "nominal"}
    scale = {"zero": True, "range": [40, 500]}
    marks = {
        "mark": {"type": "circle", "color": "var(--series-2)", "opacity": 0.8},
        "encoding": {
            "y": {"field": "right", "title": right, **axis},
            "x": {"field": "answer", "title": "answer", **axis},
            "size": {"field": "count", "type": "quantitative", "scale": scale, "legend": None},
            **SAID,
        },
    }
    return layered(22 * len(classes) + 40, rows, [marks], PANEL_PIXELS)


def residuals_chart(rows: Sequence[Spec]) -> Spec:
    """Return a chart of residuals (``residual``) over the float model's values (``own``) by ``variant``."""
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    marks = {
        "mark": {"type": "point", "size": 18, "strokeWidth": 1, "aria": False},
        "encoding": {
            "x": numbers("own", "float model's value", zero=False),
            "y": numbers("residual", "residual"),
            "color": names("variant", None, variants, COLOURS),
        },
    }
    return layered(220, rows, [marks], PANEL_PIXELS)


def layered(height: int, rows: Sequence[Spec], layers: Sequence[Spec], width: int = WIDE_PIXELS) -> Spec:
    """Return a chart of some layers over the same rows. ``height`` and ``width`` are in pixels."""
    return {
        "config": CONFIG,
        "data": {"values": list(rows)},
        "width": width,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
    }


def drawings(spec: Spec) -> tuple[str, str]:
    """Draw a chart for a desk and for a phone: two ``<svg>`` elements, whose marks show their description on
    hover."""
    import vl_convert

    narrow = {**spec, "width": NARROW_PIXELS, "config": _in_one_column(CONFIG)}
    return tuple(_with_titles(vl_convert.vegalite_to_svg(one)) for one in (spec, narrow))  # type: ignore[return-value]


def _in_one_column(config: Spec) -> Spec:
    return {**config, "legend": {**config["legend"], "columns": 1}}


def _with_titles(svg: str) -> str:
    """Repeat each mark's label as a ``<title>``, which browsers show on hover."""
    return re.sub(r'<path (aria-label="([^"]*)"[^>]*)/>', r"<path \1><title>\2</title></path>", svg)


def _domain(facts: ReportFacts) -> Spec:
    """Return the limits of the accuracy axis if all points are equally accurate. Without them Vega would
    label the only tick 0."""
    values = {point.accuracy for point in facts.points}
    around = 10.0 if facts.unit else 0.05
    return {"domain": [min(values) - around, min(values) + around]} if len(values) == 1 else {}
