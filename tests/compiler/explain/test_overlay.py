"""Node data for Model Explorer: columns by source node, in the fields of its ``node_data_builder.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import edgekit
from edgekit.cli import main
from edgekit.compiler.explain.overlay import write_overlays
from tests.compiler.quantize.search import planted

pytestmark = pytest.mark.needs_ort


def test_a_file_for_each_column_colours_the_source_model_s_nodes(tmp_path: Path) -> None:
    bundle = edgekit.build(planted.sound(tmp_path), targets=["ort"], trusted=True)
    bundle.save(tmp_path / "b.edgekit")
    folder = tmp_path / "overlay"
    command = ["explain", str(tmp_path / "b.edgekit"), "--overlay", str(folder)]
    assert CliRunner().invoke(main, command).exit_code == 0
    written = {path.name: json.loads(path.read_text("utf-8")) for path in folder.iterdir()}
    timed = written["ort-fp32.time.json"]
    assert set(timed) == {"name", "results", "gradient"}
    assert timed["name"] == "ort-fp32: time in ms"
    assert "conv0" in timed["results"]
    assert all(set(result) == {"value"} for result in timed["results"].values())
    assert [set(stop) for stop in timed["gradient"]] == [{"stop", "bgColor"}] * 2
    precision = written["ort-fp32.precision.json"]["results"]
    assert {result["value"] for result in precision.values()} == {"fp32"}
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 2
    assert "is not an empty folder" in again.output


def test_float_layers_lost_values_and_places_are_told_apart(tmp_path: Path) -> None:
    bundle = edgekit.build(planted.sound(tmp_path), targets=["ort"], trusted=True)
    (variant,) = bundle.variants
    evidence: Any = {**variant.evidence, "quantization": {"float": {"names": ["conv1"]}}}
    bundle.variants[:] = [variant._replace(precision="int8-mixed-2", evidence=evidence)]
    named: dict[str, Any] = {"source": "conv0", "source_op": "Conv", "scope": "", "merged": ["relu0"]}
    value = {
        **named,
        "node": "c",
        "op": "Conv",
        "value": "c",
        "snr_db": None,
        "adds_db": None,
        "finite": False,
    }
    cost = {**named, "node": "c", "op": "Conv", "device": "NPU", "cycles": 7, "why": ""}
    found: Any = {"variant": variant.name, "nodes": [], "values": [value], "costs": [cost]}
    copy: Any = {"variant": f"{variant.name}@gpu", "values": [], "placement": []}
    copy["placement"] = [{**named, "node": "c", "op": "Conv", "provider": "WebGpuExecutionProvider"}]
    names = write_overlays(bundle, tmp_path / "o", [found, copy])
    stem = variant.name
    kinds = ("loss", "precision", "place")
    assert names == [*(f"{stem}.{kind}.json" for kind in kinds), f"{stem}-gpu.place.json"]
    read = {name: json.loads((tmp_path / "o" / name).read_text("utf-8"))["results"] for name in names}
    assert read[names[0]]["conv0"]["value"] == "not finite"
    assert [read[names[1]][node]["value"] for node in ("conv0", "conv1")] == ["int8", "fp32"]
    places = {node: result["value"] for node, result in read[names[2]].items()}
    assert places == {"conv0": "NPU", "relu0": "NPU"}
    assert read[names[3]]["relu0"]["value"] == "WebGpu"
