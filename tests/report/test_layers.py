"""Layers in blocks: what is known of each, how they are grouped, and which columns are left out."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.bundle.source_names import CanonicalNode, SourceNode
from edgekit.report.layers import MOST_BLOCKS, Layers, layers_of
from tests.report.reported import reported_bundle


def node(name: str, op: str, scope: str = "") -> CanonicalNode:
    return CanonicalNode(f"{name}_out", (f"{name}_out",), (SourceNode(name, op, scope),), ())


NODES = [node("stem", "Conv"), node("left", "Conv"), node("right", "Relu"), node("join", "Add")]


def layer(layers: Layers, name: str) -> dict[str, str]:
    rows = (row for block in layers.blocks for row in block.rows)
    return dict(zip(layers.columns, next(row for row in rows if row[0] == name), strict=True))


def test_a_layer_has_its_time_its_loss_and_where_it_stays_float() -> None:
    timed: Any = {
        "variant": "ort-fp32",
        "nodes_ms": 3.0,
        "nodes": [{"source": "stem", "ms": 2.0}, {"source": "left", "ms": 1.0}, {"source": None, "ms": 9.0}],
    }
    layers = layers_of(NODES, reported_bundle(node="left_out").variants, (timed,))
    assert layers.columns == ("layer", "operator", "time", "alone in int8", "float in")
    assert layer(layers, "stem")["time"] == "2 ms"
    assert layer(layers, "left") == {
        "layer": "left",
        "operator": "Conv",
        "time": "1 ms",
        "alone in int8": "3.2 dB",
        "float in": "1 of 1",
    }
    blocks = {block.name: block for block in layers.blocks}
    assert blocks["stem"].time_share == pytest.approx(2 / 3)
    assert blocks["left"].loss_share == 1  # the worst
    assert blocks["left"].summary == "1 layer, 33% of the time, worst alone in int8: 3.2 dB, 1 in float"
    assert blocks["join"].rows == ()
    assert blocks["join"].loss_share is None


def test_a_layer_has_its_processor_and_the_reason() -> None:
    def placed(source: str, reason: str = "", *merged: str) -> dict[str, Any]:
        return {"source": source, "merged": merged, "reason": reason}

    copy: Any = {
        "variant": "ort-int8@gpu",
        "placement": [placed("stem"), placed("stem", "no kernel"), placed("left", "", "right")],
    }
    without: Any = {**copy, "placement": []}
    layers = layers_of(NODES, (), (), [without, copy])
    assert layer(layers, "stem")["processor"] == "no kernel"
    for name in ("left", "right"):
        assert layer(layers, name)["processor"] == "accelerator"


def test_layers_are_grouped_by_the_longest_scopes_that_are_few_enough() -> None:
    nodes = [node(f"conv{i}", "Conv", f"backbone.stage{i // 4}.block{i}.conv") for i in range(40)]
    nodes.insert(5, node("made_by_a_pass", "Transpose"))
    names = [block.name for block in layers_of(nodes, (), ()).blocks]
    assert names == [f"backbone.stage{i}" for i in range(10)]


def test_layers_without_scopes_are_grouped_by_number() -> None:
    nodes = [node(f"n{i}", "Relu") for i in range(1000)]
    blocks = layers_of(nodes, (), ()).blocks
    assert len(blocks) <= MOST_BLOCKS
    assert sum(block.count for block in blocks) == 1000
    assert blocks[0].name == "n0 to n41"


def test_a_bundle_without_names_has_no_layers() -> None:
    assert layers_of([], (), ()).blocks == ()
