"""The chart of the graph: where its nodes are, what colours them, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.bundle.source_names import CanonicalNode, SourceNode
from edgekit.report.graph import MOST_NODES, graph_chart
from tests.report.reported import reported_bundle


def node(name: str, op: str, *reads: int) -> CanonicalNode:
    return CanonicalNode(f"{name}_out", (f"{name}_out",), (SourceNode(name, op, ""),), reads)


NODES = [node("stem", "Conv"), node("left", "Conv", 0), node("right", "Relu", 0), node("join", "Add", 1, 2)]


def rows(nodes: list[CanonicalNode], explained: tuple[Any, ...] = ()) -> dict[str, dict[str, Any]]:
    variants = reported_bundle(node="left_out").variants
    spec = graph_chart(nodes, variants, explained)
    assert spec is not None
    return {row["name"]: row for row in spec["layer"][1]["data"]["values"]}


def test_each_has_a_place_of_its_own_after_what_it_reads() -> None:
    found = rows(NODES)
    assert {name: (row["x"], row["y"]) for name, row in found.items()} == {
        "stem": (0, 0),
        "left": (1, 0),
        "right": (1, 1),
        "join": (2, 0),
    }


def test_colours_tell_damage_placement_and_time() -> None:
    timed: Any = {
        "variant": "ort-fp32",
        "nodes_ms": 3.0,
        "nodes": [{"source": "stem", "ms": 2.0}, {"source": "left", "ms": 1.0}, {"source": None, "ms": 9.0}],
    }
    found = rows(NODES, (timed,))
    assert found["stem"]["time_strength"] == 1
    assert found["left"]["time_strength"] == pytest.approx(0.625)
    assert found["join"]["time_colour"] == "var(--dim)"
    assert found["left"]["damage_strength"] == 1  # the worst
    assert found["left"]["placement_colour"] == "var(--series-2)"  # float
    assert found["stem"]["placement_colour"] == "var(--series-1)"  # int8
    assert "alone in int8: 3.2 dB" in found["left"]["said"]
    assert "float in 1 of 1 int8 variants" in found["left"]["said"]
    assert "2 ms on ort-fp32" in found["stem"]["said"]


def test_colours_tell_the_processor() -> None:
    def placed(source: str, reason: str = "", *merged: str) -> dict[str, Any]:
        return {"source": source, "merged": merged, "reason": reason}

    copy: Any = {
        "variant": "ort-int8@gpu",
        "placement": [placed("stem"), placed("stem", "no kernel"), placed("left", "", "right")],
    }
    without: Any = {**copy, "placement": []}
    spec = graph_chart(NODES, (), (), [without, copy])
    assert spec is not None
    found = {row["name"]: row for row in spec["layer"][1]["data"]["values"]}
    assert (found["stem"]["device_colour"], found["stem"]["device_strength"]) == ("var(--series-2)", 0.625)
    assert "ort-int8@gpu: 1 of 2 nodes on the CPU; no kernel" in found["stem"]["said"]
    for name in ("left", "right"):
        assert found[name]["device_colour"] == "var(--series-1)"
    assert found["join"]["device_colour"] == "var(--dim)"
    assert spec["params"][1]["value"] == "device"


def test_a_bundle_without_names_and_a_large_graph_have_no_chart() -> None:
    assert graph_chart([], (), ()) is None
    assert graph_chart([node(str(i), "Relu") for i in range(MOST_NODES + 1)], (), ()) is None


def test_nodes_that_read_in_a_circle_are_drawn_all_the_same() -> None:
    """A bundle from elsewhere may say so."""
    assert len(rows([node("a", "Relu", 1), node("b", "Relu", 0)])) == 2
