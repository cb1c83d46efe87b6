"""The graph of the model as a Vega-Lite chart: layers from left to right, to be zoomed and searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.bundle.source_names import CanonicalNode
from edgekit.bundle.variant import Variant
from edgekit.compiler.explain.accelerated import AcceleratedExplanation
from edgekit.compiler.explain.explain import Explanation
from edgekit.errors import printable
from edgekit.report.charts import CONFIG, Spec
from edgekit.system.formats.plain_text import milliseconds

MOST_NODES = 1500
"""Of a larger graph no chart is made: an SVG element for each would hold up the browser."""
LANE_PIXELS = 26
FAINT = 0.25
BY_PLACEMENT, BY_DAMAGE, BY_TIME, BY_OPERATOR = "placement", "damage", "time", "operator"
BY_DEVICE = "device"
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def graph_chart(
    nodes: Sequence[CanonicalNode],
    variants: Sequence[Variant],
    explained: Sequence[Explanation],
    accelerated: Sequence[AcceleratedExplanation] = (),
) -> Spec | None:
    """Return a chart of the canonical graph with the source model's names, or None if the bundle has no names
    or the graph is large.

    Args:
        nodes: In the graph's order.
        variants: The search of int8 tells damage and placement.
        explained: Times are those of the first one that has some.
        accelerated: Processors are those of the first one whose engine reports them.
    """
    if not nodes or len(nodes) > MOST_NODES:
        return None
    places = _places(nodes)
    damage, floats, tried = _damage(variants), _floats(variants), _int8(variants)
    timed = next((explanation for explanation in explained if explanation["nodes_ms"]), None)
    times = _times(timed) if timed else {}
    split = next((copy for copy in accelerated if copy["placement"]), None)
    reasons = _reasons(split) if split else {}
    modes = [
        *([BY_DEVICE] if split else []),
        *([BY_TIME] if times else []),
        *([BY_DAMAGE] if damage else []),
        *([BY_PLACEMENT] if tried else []),
    ]
    rows = []
    for node, (x, y) in zip(nodes, places, strict=True):
        called = node.source[0].name if node.source else node.name
        op = node.source[0].op if node.source else ""
        worst = min((damage[value] for value in (node.name, *node.values) if value in damage), default=None)
        ms = times.get(called)
        stays = max((floats.get(value, 0) for value in (node.name, *node.values)), default=0)
        parts = [f"{called} ({op})" if op else called]
        parts += [f"{milliseconds(ms)} on {timed['variant']}"] if ms is not None and timed else []
        parts += [f"alone in int8: {worst:.1f} dB"] if worst is not None else []
        on_cpu = reasons.get(called, [])
        if split and on_cpu:
            left = list(dict.fromkeys(reason for reason in on_cpu if reason))
            count = f"{sum(map(bool, on_cpu))} of {len(on_cpu)} nodes on the CPU"
            parts += [f"{split['variant']}: {count}{'; ' if left else ''}{', '.join(left)}"]
        parts += [f"float in {stays} of {tried} int8 variants"] if stays else []
        rows.append(
            {
                "name": printable(called),
                "said": printable("; ".join(parts)),
                "x": x,
                "y": y,
                **_shade(BY_TIME, None if ms is None else ms / max(times.values())),
                **_shade(
                    BY_DAMAGE,
                    None if worst is None else min(1.0, 10 ** ((min(damage.values()) - worst) / 20)),
                ),
                **_shade(BY_PLACEMENT, stays / tried if tried and op in WEIGHTED else None),
                **_shade(BY_DEVICE, sum(map(bool, on_cpu)) / len(on_cpu) if on_cpu else None),
                **_shade(BY_OPERATOR, 0.0 if op in WEIGHTED else None),
            }
        )
    edges = [
        {"x": places[read][0], "y": places[read][1], "x2": x, "y2": y}
        for node, (x, y) in zip(nodes, places, strict=True)
        for read in node.reads
    ]
    return _spec(rows, edges, [*modes, BY_OPERATOR])


def _shade(mode: str, share: float | None) -> Mapping[str, object]:
    """Colour and strength by one mode: what it does not tell of is grey; 0 is the one colour, up to 1 the
    other."""
    if share is None:
        return {f"{mode}_colour": "var(--dim)", f"{mode}_strength": FAINT}
    colour = "var(--series-2)" if share > 0 else "var(--series-1)"
    return {f"{mode}_colour": colour, f"{mode}_strength": round(FAINT + (1 - FAINT) * (share or 1.0), 3)}


def _places(nodes: Sequence[CanonicalNode]) -> list[tuple[int, int]]:
    """Compute the column and lane of each node. Its column follows those of all nodes that it reads. Its lane
    is that of the first of these if it is free."""
    lanes_by_column: dict[int, set[int]] = {}
    places: list[tuple[int, int]] = []
    for index, node in enumerate(nodes):
        before = [places[read] for read in node.reads if read < index]
        column = 1 + max((x for x, _ in before), default=-1)
        lane = before[0][1] if before else 0
        used = lanes_by_column.setdefault(column, set())
        while lane in used:
            lane += 1
        used.add(lane)
        places.append((column, lane))
    return places


def _damage(variants: Sequence[Variant]) -> dict[str, float]:
    """Block -> the lowest SNR in dB of the outputs with it alone in int8, over all searches."""
    snr_by_block: dict[str, float] = {}
    for variant in variants:
        search = variant.evidence.get("search") or {}
        for name, snr_db in (search.get("damage") or {}).items():
            snr_by_block[str(name)] = min(float(snr_db), snr_by_block.get(str(name), float(snr_db)))
    return snr_by_block


def _int8(variants: Sequence[Variant]) -> int:
    return sum("quantization" in variant.evidence for variant in variants if not variant.rejected)


def _floats(variants: Sequence[Variant]) -> dict[str, int]:
    """Block -> in how many int8 variants that are kept it stays float."""
    count_by_block: dict[str, int] = {}
    for variant in variants:
        quantization = variant.evidence.get("quantization")
        for name in quantization["float"]["names"] if quantization and not variant.rejected else ():
            count_by_block[str(name)] = count_by_block.get(str(name), 0) + 1
    return count_by_block


def _times(explanation: Explanation) -> dict[str, float]:
    """Return the ms of each source node: the time of the engine's nodes that compute it."""
    times: dict[str, float] = {}
    for node in explanation["nodes"]:
        if node["source"] is not None:
            times[node["source"]] = times.get(node["source"], 0.0) + node["ms"]
    return times


def _reasons(copy: AcceleratedExplanation) -> dict[str, list[str]]:
    """Return for each source node the reasons why nodes that compute it run on the CPU; "" for one that the
    accelerator runs."""
    reasons: dict[str, list[str]] = {}
    for node in copy["placement"]:
        for name in (node["source"], *node["merged"]) if node["source"] is not None else ():
            reasons.setdefault(str(name), []).append(node["reason"])
    return reasons


def _spec(rows: Sequence[Spec], edges: Sequence[Spec], modes: Sequence[str]) -> Spec:
    lanes = 1 + max(row["y"] for row in rows)
    x: Spec = {"field": "x", "type": "quantitative", "axis": None, "scale": {"nice": False, "padding": 8}}
    y: Spec = {"field": "y", "type": "quantitative", "axis": None, "scale": {"reverse": True, "padding": 12}}
    wires = {
        "data": {"values": list(edges)},
        "mark": {"type": "rule", "strokeWidth": 1, "color": "var(--line)"},
        "encoding": {"x": x, "y": y, "x2": {"field": "x2"}, "y2": {"field": "y2"}},
    }
    matches = "find == '' || indexof(lower(datum.name), lower(find)) >= 0"
    marks = {
        "data": {"values": list(rows)},
        "params": [
            {
                "name": "view",
                "bind": "scales",
                # A plain wheel scrolls the page.
                "select": {"type": "interval", "zoom": "wheel![event.shiftKey]"},
            }
        ],
        "transform": [
            {"calculate": "datum[colour + '_colour']", "as": "shade"},
            {"calculate": f"({matches}) ? datum[colour + '_strength'] : 0.04", "as": "strength"},
        ],
        "mark": {"type": "square", "size": 90, "stroke": None},
        "encoding": {
            "x": x,
            "y": y,
            "fill": {"field": "shade", "type": "nominal", "scale": None},
            "fillOpacity": {"field": "strength", "type": "quantitative", "scale": None},
            "tooltip": {"field": "said", "type": "nominal"},
            "description": {"field": "said", "type": "nominal"},
        },
    }
    return {
        "config": CONFIG,
        "params": [
            {"name": "find", "value": "", "bind": {"input": "search", "name": "find a layer "}},
            {
                "name": "colour",
                "value": modes[0],
                "bind": {"input": "select", "options": list(modes), "name": "colour by "},
            },
        ],
        "width": "container",
        "height": LANE_PIXELS * (lanes + 1),
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": [wires, marks],
    }
