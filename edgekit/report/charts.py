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
WIDE_PIXELS, NARROW_PIXELS = 1000, 340
"""Widths that a chart is drawn at: for a desk, and for a phone, where a smaller picture could not be read."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"

CONFIG: Spec = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "domainColor": "var(--line)",
        "gridColor": "var(--line)",
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "tickColor": "var(--line)",
        "titleColor": "var(--dim)",
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "legend": {
        "columns": 3,
        "layout": {"margin": 24},
        "labelColor": "var(--ink)",
        "labelFontSize": 12,
        "orient": "bottom",
        "symbolStrokeColor": "var(--dim)",
        "titleColor": "var(--dim)",
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "text": {"color": "var(--ink)", "fontSize": 12},
}


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
    title = facts.metric + (f", {facts.unit}" if facts.unit else "")
    x = {
        "field": "latency",
        "type": "quantitative",
        "title": f"median time of a {'token' if TOKEN_TIME in facts.columns else 'run'} at build, ms",
        "scale": {"zero": True, "nice": True},
        "axis": TICKS,
    }
    y = {
        "field": "accuracy",
        "type": "quantitative",
        "title": title,
        "scale": {"zero": False, "nice": True, "padding": 24} | _domain(facts),
        "axis": TICKS,
    }
    by_profile = {"domain": profiles}
    marks = {
        "mark": {"type": "point", "filled": False, "strokeWidth": 2},
        "encoding": {
            "x": x,
            "y": y,
            "size": {
                "field": "size",
                "type": "quantitative",
                "title": "size, MB",
                "scale": {"zero": True, "range": [30, 420]},
                "legend": {"values": _sizes([point.size_mb for point in facts.points])},
            },
            "color": {
                "field": "profile",
                "type": "nominal",
                "title": "built for",
                "scale": {**by_profile, "range": _cycled(COLOURS, len(profiles))},
            },
            "shape": {
                "field": "profile",
                "type": "nominal",
                "title": "built for",
                "scale": {**by_profile, "range": _cycled(SHAPES, len(profiles))},
            },
            "fill": {
                "condition": {
                    "test": "datum.state === 'kept'",
                    "field": "profile",
                    "type": "nominal",
                    "title": "built for",
                    "scale": {**by_profile, "range": _cycled(COLOURS, len(profiles))},
                },
                "value": "transparent",
            },
            "strokeDash": {
                "condition": {"test": "datum.state === 'rejected'", "value": [2, 2]},
                "value": [1, 0],
            },
            "tooltip": {"field": "said", "type": "nominal"},
            "description": {"field": "said", "type": "nominal"},
        },
    }
    rings = {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "point", "size": 700, "stroke": "var(--dim)", "strokeWidth": 1, "aria": False},
        "encoding": {"x": x, "y": y, "tooltip": {"field": "said", "type": "nominal"}},
    }
    names = {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "text", "dy": -22, "limit": 150},
        "encoding": {"x": x, "y": y, "text": {"field": "variant", "type": "nominal"}},
    }
    return layered(320, rows, [rings, marks, names])


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
    title = search.metric + (f", {search.unit}" if search.unit else "")
    states = {"domain": ["chosen", "rejected"]}
    marks = {
        "mark": {"type": "point", "filled": False, "size": 90, "strokeWidth": 2},
        "encoding": {
            "x": {
                "field": "ratio",
                "type": "quantitative",
                "title": "time at build, in multiples of the float parent's",
                "scale": {"zero": True},
                "axis": TICKS,
            },
            "y": {
                "field": "accuracy",
                "type": "quantitative",
                "title": title,
                "scale": {"zero": False, "padding": 12},
                "axis": TICKS,
            },
            "color": {
                "field": "state",
                "type": "nominal",
                "title": None,
                "scale": {**states, "range": ["var(--series-1)", "var(--series-2)"]},
            },
            "shape": {
                "field": "state",
                "type": "nominal",
                "title": None,
                "scale": {**states, "range": ["circle", "cross"]},
            },
            "tooltip": {"field": "said", "type": "nominal"},
            "description": {"field": "said", "type": "nominal"},
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
    states = {"domain": ["int8", "stays float"], "range": ["var(--series-1)", "var(--series-2)"]}
    bars = {
        "mark": {"type": "bar", "height": 11},
        "encoding": {
            "y": {
                "field": "block",
                "type": "nominal",
                "title": None,
                "sort": {"field": "snr", "order": "ascending"},
                "axis": {"labelLimit": 150, "labelFontSize": 11},
            },
            "x": {"field": "snr", "type": "quantitative", "title": "SNR, dB (lower is worse)", "axis": TICKS},
            "color": {"field": "state", "type": "nominal", "title": None, "scale": states},
            "tooltip": {"field": "said", "type": "nominal"},
            "description": {"field": "said", "type": "nominal"},
        },
    }
    return layered(17 * len(rows) + 10, rows, [bars], PANEL_PIXELS)


def matrix_chart(rows: Sequence[Spec], names: Sequence[str], right: str) -> Spec:
    """Return a chart of how often one class is taken for another.

    Args:
        rows: ``right``, ``answer``, ``count`` and ``said`` of each pair.
        right: What the rows' classes are, e.g. ``label``.
    """
    axis = {"labelLimit": 150, "grid": True}
    place = {
        "y": {"field": "right", "type": "nominal", "title": right, "scale": {"domain": names}, "axis": axis},
        "x": {
            "field": "answer",
            "type": "nominal",
            "title": "answer",
            "scale": {"domain": names},
            "axis": axis,
        },
    }
    marks = {
        "mark": {"type": "circle", "color": "var(--series-2)", "opacity": 0.8},
        "encoding": {
            **place,
            "size": {
                "field": "count", "type": "quantitative", "scale": {"zero": True, "range": [40, 500]},
                "legend": None,
            },
            "tooltip": {"field": "said", "type": "nominal"},
            "description": {"field": "said", "type": "nominal"},
        },
    }  # fmt: skip
    return layered(22 * len(names) + 40, rows, [marks], PANEL_PIXELS)


def residuals_chart(rows: Sequence[Spec]) -> Spec:
    """Return a chart of residuals (``residual``) over the float model's values (``own``) by ``variant``."""
    names = list(dict.fromkeys(row["variant"] for row in rows))
    numbers = {"type": "quantitative", "axis": TICKS}
    marks = {
        "mark": {"type": "point", "size": 18, "strokeWidth": 1, "aria": False},
        "encoding": {
            "x": {"field": "own", "title": "float model's value", "scale": {"zero": False}, **numbers},
            "y": {"field": "residual", "title": "residual", **numbers},
            "color": {
                "field": "variant",
                "type": "nominal",
                "title": None,
                "scale": {"domain": names, "range": _cycled(COLOURS, len(names))},
            },
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


def _cycled(values: Sequence[str], count: int) -> list[str]:
    return [values[index % len(values)] for index in range(count)]


def _sizes(sizes: Sequence[float]) -> list[float]:
    """Return at most two round sizes for the legend."""
    return sorted({float(f"{max(sizes):.1g}"), float(f"{min(sizes):.1g}")})
