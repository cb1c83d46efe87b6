"""A network's chart: time against accuracy, every entry a point, the front a line, an engine a row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.scoreboard.verdict import Point, front

CAP_DB = 60.0
"""Float variants of more dB are drawn here, so that the quantized ones are apart."""
SPREAD = 0.02
"""The metric is drawn if its values differ by more; else the SNR."""
COLOURS = {
    "EdgeKit": "#0b5cad",
    "source model": "#5f5f5f",
    "ONNX Runtime's quantizer": "#b5400f",
    "NNCF": "#1b7a3d",
    "NNCF, mixed preset": "#6b8e00",
    "ai-edge-quantizer": "#8e3aa8",
    "onnx2tf": "#a8780a",
    "onnxruntime-genai": "#b5400f",
    "openvino-genai Q8_0": "#1b7a3d",
    "openvino-genai Q4_1": "#5f9e7a",
    "llama.cpp Q8_0": "#8e3aa8",
    "llama.cpp Q4_1": "#a8780a",
    "llama.cpp Q4_K_M": "#c2347f",
    "llama.cpp Q4_0": "#6b8e00",
}
SHAPES = {"fp32": "square", "int8": "circle", "int8-dynamic": "triangle-up", "int4": "diamond"}
FONT = "DejaVu Sans, Verdana, sans-serif"


def uses_metric(rows: Mapping[str, Sequence[Point]]) -> bool:
    """Return whether accuracy is drawn by the metric of the task, which tells the entries apart."""
    values = [point.metric for every in rows.values() for point in every]
    return max(values) - min(values) > SPREAD


def draw_chart(rows: Mapping[str, Sequence[Point]]) -> str:
    """Return the chart as SVG."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(json.dumps(specification(rows))))


def specification(rows: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Return the chart as a Vega-Lite specification."""
    metric = uses_metric(rows)
    names = [point.entry.rpartition(", ")[0] for every in rows.values() for point in every]
    makers = [name for name in COLOURS if name in names]
    precisions = [
        name for name in SHAPES if any(p.entry.endswith(f", {name}") for e in rows.values() for p in e)
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "padding": 8,
        "config": {"font": FONT, "axis": {"gridColor": "#ddd", "labelFontSize": 12, "titleFontSize": 12}},
        "vconcat": [panel(engine, every, metric, makers, precisions) for engine, every in rows.items()],
    }


def panel(
    engine: str, every: Sequence[Point], metric: bool, makers: Sequence[str], precisions: Sequence[str]
) -> dict[str, Any]:
    """Return the row of one engine."""
    best = {point.entry for point in front(every)}
    values = []
    for point in every:
        maker, _, precision = point.entry.rpartition(", ")
        accuracy = point.metric if metric else max(min(point.snr_db, CAP_DB), -CAP_DB)
        values.append(
            {"maker": maker, "precision": precision, "ms": point.ms, "accuracy": accuracy}
            | {"front": point.entry in best}
        )
    x = {
        "field": "ms",
        "type": "quantitative",
        "title": "ms, one thread",
        "scale": {"type": "log", "nice": False, "padding": 16},
        "axis": {"tickCount": 5, "format": "~g", "labelOverlap": True},
    }
    title = "metric of the task" if metric else f"SNR dB ({CAP_DB:.0f}: that or more)"
    y = {"field": "accuracy", "type": "quantitative", "title": title, "scale": {"zero": False, "padding": 14}}
    legend = {"orient": "bottom", "columns": 1, "labelFontSize": 12, "titleFontSize": 12, "labelLimit": 220}
    colour = {"domain": list(makers), "range": [COLOURS[name] for name in makers]}
    shape = {"domain": list(precisions), "range": [SHAPES[name] for name in precisions]}
    return {
        "title": {"text": engine, "anchor": "start", "fontSize": 13},
        "width": 300,
        "height": 170,
        "data": {"values": values},
        "layer": [
            {
                "transform": [{"filter": "datum.front"}],
                "mark": {"type": "line", "color": "#888", "strokeDash": [4, 3]},
                "encoding": {"x": x, "y": y, "order": {"field": "ms", "type": "quantitative"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 0.9},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {
                        "field": "maker",
                        "type": "nominal",
                        "title": "by",
                        "scale": colour,
                        "legend": legend,
                    },
                    "shape": {
                        "field": "precision",
                        "type": "nominal",
                        "title": "precision",
                        "scale": shape,
                        "legend": legend,
                    },
                },
            },
        ],
    }
