"""The scoreboard's own work: a tiny network through two makers, resuming, failures, verdicts and the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.scoreboard.cell import run_cell
from tests.benchmarks.scoreboard.makers import ROOT, TEXT_MAKERS, Maker, Workshop
from tests.benchmarks.scoreboard.networks import draw
from tests.benchmarks.scoreboard.page import write_page
from tests.benchmarks.scoreboard.results import DRAW, load_results, save
from tests.benchmarks.scoreboard.verdict import AHEAD, BEHIND, FRONT, NONE, OFF, Point, judge, verdict_of
from tests.fixtures.graphs import Graph
from tests.fixtures.large_gguf import FORMS, write_large

SHAPE = (1, 8, 16, 16)
MAKERS = (
    Maker("EdgeKit", "fp32"),
    Maker("EdgeKit", "int8"),
    Maker("ONNX Runtime's quantizer", "int8", "onnxruntime", "here"),
    Maker("absent tool", "int8", "absent", "here"),
    Maker("unreadable", "int8", "copy", "here"),
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of three convolutions with its card and samples, as ``prepare`` writes them."""
    folder = tmp_path_factory.mktemp("tiny")
    graph = Graph({"x": SHAPE})
    value = graph("Relu", graph.conv("x", 16, 8, 3))
    value = graph("Relu", graph.conv(value, 16, 16, 3))
    graph.model(folder, graph.conv(value, 8, 16))
    (folder / "small.onnx").rename(folder / "source.onnx")
    card = f'title = "Tiny"\n\n[inputs.x]\nkind = "tensor"\nshape = {list(SHAPE)}\n'
    (folder / "card.toml").write_text(card, "utf-8")
    rng = np.random.default_rng(0)
    for part, count in (("calibration", 8), ("heldout", 4)):
        (folder / part).mkdir()
        for index in range(count):
            np.savez(folder / part / f"{index:03}.npz", x=rng.normal(0, 1, SHAPE).astype(np.float32))
    return folder


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("environments"), {"here": sys.executable}, search_s=5)


@pytest.fixture(scope="module")
def result(network: Path, workshop: Workshop) -> dict[str, Any]:
    return run_cell(network, "ort", workshop, makers=MAKERS, seconds=0.2)


def entry_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in result["entries"] if entry["entry"] == name)


def test_entries_are_made_scored_and_timed(result: dict[str, Any]) -> None:
    for name in ("EdgeKit, fp32", "EdgeKit, int8", "ONNX Runtime's quantizer, int8"):
        entry = entry_of(result, name)
        assert entry["failure"] == ""
        assert entry["cpu_ms_1"] > 0
        assert entry["p50_ms_1"] > 0
        assert entry["peak_mb"] > 10
        assert entry["build_peak_mb"] > 10
        assert entry["build_s"] > 0
        assert entry["size_kb"] > 0
    exact, own, other = (float(entry["snr_db"]) for entry in result["entries"][:3])
    assert exact > 90 > own > 20
    assert 90 > other > 20
    assert entry_of(result, "ONNX Runtime's quantizer, int8")["versions"].keys() >= {"onnxruntime", "onnx"}
    assert result["twin"]["1"] < 1


def test_a_maker_that_fails_is_a_result_with_its_reason(result: dict[str, Any]) -> None:
    entry = entry_of(result, "absent tool, int8")
    assert entry["failure"] == "KeyError: 'absent'"
    assert "cpu_ms_1" not in entry


def test_a_cell_resumes(network: Path, workshop: Workshop, result: dict[str, Any]) -> None:
    place = network / "ort"
    before = {path: path.stat().st_mtime_ns for path in place.glob("*/made.json")}
    assert len(before) == len(MAKERS)
    (place / MAKERS[2].entry / "made.json").unlink()
    run_cell(network, "ort", workshop, makers=MAKERS, again=["absent tool"], seconds=0.1)
    changed = {path.parent.name for path, at in before.items() if path.stat().st_mtime_ns != at}
    assert changed == {"ONNX Runtime's quantizer, int8", "absent tool, int8"}


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny decoder of random weights and a text, as ``prepare`` writes them."""
    folder = tmp_path_factory.mktemp("tiny-text")
    write_large(folder / "source.gguf", FORMS["tiny"])
    (folder / "heldout").mkdir()
    rng = np.random.default_rng(0)
    for index in range(2):
        tokens = rng.integers(0, FORMS["tiny"].vocabulary, 40)
        np.savez(folder / "heldout" / f"{index:03}.npz", tokens=tokens)
    return folder


def test_a_language_model_is_scored_and_timed(language_model: Path, workshop: Workshop) -> None:
    makers = (*TEXT_MAKERS["ort"][:2], Maker("absent tool", "int8", "absent", runner="llama.cpp"))
    result = run_cell(language_model, "ort", workshop, makers=makers, seconds=0.1)
    exact, own, failed = result["entries"]
    assert result["metric"] == "same likeliest token"
    assert result["samples"] == 2 * 39
    assert exact["metric"] == 1
    assert float(exact["snr_db"]) > 90 > float(own["snr_db"]) > 20
    assert exact["labelled"]["metric"] == "perplexity"
    assert exact["labelled"]["value"] == pytest.approx(own["labelled"]["value"], rel=0.1)
    for entry in (exact, own):
        read_ms, token_ms = entry["read_cpu_ms_1"], entry["token_cpu_ms_1"]
        assert entry["cpu_ms_1"] == pytest.approx(read_ms + 128 * token_ms, rel=0.3)
        assert read_ms > token_ms > 0
    assert failed["failure"] == "KeyError: 'absent'"


def test_a_score_is_kept_until_the_artifact_is_made_anew(language_model: Path, workshop: Workshop) -> None:
    maker = TEXT_MAKERS["ort"][1]
    stored = language_model / "ort" / maker.entry / "score.json"

    def figures(**options: Any) -> dict[str, Any]:
        (entry,) = run_cell(language_model, "ort", workshop, makers=[maker], seconds=0.1, **options)[
            "entries"
        ]
        return {name: entry[name] for name in ("metric", "snr_db")}

    first = figures()
    marked = json.loads(stored.read_text("utf-8"))
    marked["score"] |= {"metric": 0.123, "snr_db": 77.0}
    stored.write_text(json.dumps(marked), "utf-8")
    assert figures() == {"metric": 0.123, "snr_db": 77.0}
    stored.write_text(json.dumps(marked | {"versions": ["another engine"]}), "utf-8")
    assert figures() == first
    stored.write_text(json.dumps(marked), "utf-8")
    assert figures(again=[maker.entry]) == first


def scoreboard(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.benchmarks.scoreboard", *map(str, words)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "targets")])
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)


def test_the_command_resumes_and_records_a_cell_that_cannot_run(tmp_path: Path) -> None:
    results, page = tmp_path / "results.json", tmp_path / "scoreboard.md"
    before = cell("YOLOX-nano", "ort", ours=1.0, theirs=2.0)
    save(before, results)
    words = (
        *("--results", results, "--page", page, "--work", tmp_path / "work", "all", "--seed", "7"),
        *("--networks", "YOLOX-nano", "ResNet-8", "--engines", "ort"),
    )
    scoreboard(*words, EDGEKIT_SHARED=str(tmp_path / "nothing"))
    after = load_results(results)
    assert after["YOLOX-nano.ort"] == before
    failed = after["ResNet-8.ort"]
    assert "is absent" in failed["failure"]
    assert f"- ResNet-8 on ort: {failed['failure']}" in page.read_text("utf-8")
    assert after[DRAW]["networks"] == [network.name for network in draw(7)]
    scoreboard(*words, "--retime", EDGEKIT_SHARED=str(tmp_path / "nothing"))
    assert "is absent" in load_results(results)["YOLOX-nano.ort"]["failure"]


OWN = Point("EdgeKit, int8", 10.0, 0.95, 20.0)


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([Point("slower and less accurate", 12.0, 0.90, 15.0)], AHEAD),
        ([Point("slower, more accurate", 12.0, 0.99, 25.0)], FRONT),
        ([Point("faster, less accurate", 8.0, 0.90, 15.0)], FRONT),
        ([Point("equal within the margins", 9.8, 0.955, 20.4)], FRONT),
        ([Point("faster, as accurate", 8.0, 0.955, 20.4)], OFF),
        ([Point("as fast, more accurate", 10.1, 0.97, 20.0)], OFF),
        ([Point("as fast, more decibels", 10.1, 0.945, 21.0)], OFF),
        ([Point("faster and more accurate", 8.0, 0.97, 10.0)], BEHIND),
        ([Point("slower, less accurate", 12, 0.9, 15), Point("faster, more accurate", 8, 1, 30)], BEHIND),
        ([], FRONT),
    ],
)
def test_verdicts(others: list[Point], verdict: str) -> None:
    found, reasons = judge([OWN], others, [])
    assert found == verdict
    assert reasons == ([others[-1].entry] if verdict in (OFF, BEHIND) else [])


def test_a_verdict_has_the_margin_of_its_cell_and_the_best_of_ours() -> None:
    peer = Point("faster by 6 %", 9.4, 0.97, 30.0)
    assert judge([OWN], [peer], [])[0] == BEHIND
    assert judge([OWN], [peer], [], margin=0.08)[0] == OFF
    assert judge([OWN, Point("EdgeKit, int8-dynamic", 9.0, 0.97, 30.0)], [peer], [])[0] == FRONT
    assert judge([OWN], [], [Point("float", 9.0, 1.0, 120.0)])[0] == BEHIND
    assert judge([], [peer], [])[0] == NONE


def cell(
    network: str, engine: str, *, ours: float, theirs: float, note: str = "", twin: float = 0.0
) -> dict[str, Any]:
    """The result of a cell, with times in milliseconds; EdgeKit's int8 is the less accurate one."""

    def entry(maker: str, precision: str, ms: float, metric: float, **more: object) -> dict[str, Any]:
        return {
            "entry": f"{maker}, {precision}", "maker": maker, "precision": precision, "failure": "",
            "note": "", "versions": {},
            "cpu_ms_1": ms, "p50_ms_1": ms, "p50_ms_2": ms, "metric": metric, "snr_db": 20.0,
            "build_s": 1.0, "build_cpu_s": 1.0, "size_kb": 100, "peak_mb": 50.0, **more,
        }  # fmt: skip

    return {
        "network": network, "engine": engine, "engine_version": "ONNX Runtime 1", "edgekit": "0",
        "samples": 64,
        "processor": "a processor", "isa": [], "cores": 2, "date": "2026-01-02", "load": 0.5, "metric": "mAP",
        "twin": {"1": twin}, "not_run": ["onnx2tf, int8"],
        "entries": [
            entry("EdgeKit", "fp32", 20.0, 1.0, snr_db="inf"),
            entry("EdgeKit", "int8", ours, 0.90, note=note),
            entry("NNCF", "int8", theirs, 0.95),
            {"entry": "broken, int8", "maker": "broken", "precision": "int8", "failure": "no | kernel",
             "note": "", "versions": {}, "build_cpu_s": 2.0, "size_kb": 0},
        ],
    }  # fmt: skip


def test_a_rejected_int8_counts_as_fp32_and_by_force() -> None:
    rejected = cell("YOLOX-nano", "ort", ours=12.0, theirs=10.0, note="1.2x the time of fp32")
    assert verdict_of(rejected)[0] == FRONT
    assert verdict_of(rejected, forced=True) == (BEHIND, ["NNCF, int8"])
    noisy = cell("YOLOX-nano", "ort", ours=12.0, theirs=10.0, twin=0.3)
    assert verdict_of(noisy)[0] == OFF


def test_the_page_has_counts_a_chart_and_a_table_of_each_network(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    results, page = tmp_path / "results.json", tmp_path / "scoreboard.md"
    every = [
        cell("YOLOX-nano", "ort", ours=8.0, theirs=10.0),
        cell("YOLOX-nano", "tflite", ours=12.0, theirs=10.0),
        cell("palm-full", "ort", ours=8.0, theirs=10.0),
    ]
    for one in every:
        save(one, results)
    save({"seed": 1, "networks": ["palm-full"]}, results, DRAW)
    write_page(results, page)
    text = page.read_text("utf-8")
    assert "| of every scoreboard | as shipped | 1 | 2 | 0 | 1 | 0 | 1 | 0 |" in text
    assert "| drawn | as shipped | 1 | 1 | 0 | 1 | 0 | 0 | 0 |" in text
    assert r"| YOLOX-nano\* | tflite | behind | behind | NNCF, int8 |" in text
    assert r"no \| kernel" in text
    assert "- onnx2tf, int8 on ort: YOLOX-nano, palm-full." in text
    pictures = re.findall(r"!\[(.+)\]\((.+)\)", text)
    assert [path for _, path in pictures] == ["scoreboard/YOLOX-nano.svg", "scoreboard/palm-full.svg"]
    assert "ort: EdgeKit, int8 8 ms at 0.900, NNCF, int8 10 ms at 0.950" in pictures[0][0]
    for _, path in pictures:
        assert xml.etree.ElementTree.fromstring((tmp_path / path).read_text("utf-8")).tag.endswith("svg")
    rows = [line for line in text.splitlines() if line.startswith(("| ort |", "| tflite |"))]
    assert len(rows) == sum(len(one["entries"]) for one in every)


def test_a_language_model_has_its_tokens_a_second(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    results = tmp_path / "results.json"
    one = cell("SmolLM2-135M", "ort", ours=1000.0, theirs=2000.0)
    one["entries"][1] |= {"read_cpu_ms_1": 640.0, "token_cpu_ms_1": 8.0}
    save(one, results)
    write_page(results, tmp_path / "scoreboard.md")
    text = (tmp_path / "scoreboard.md").read_text("utf-8")
    assert "| ms, 2 threads | pp512 t/s | tg128 t/s | MB |" in text
    assert "| ort | EdgeKit, int8 | 0.900 | 20.0 | 1000 | 1000 | 800 | 125.0 | 0.10 |" in text


def test_the_stored_page_is_that_of_the_stored_results(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    results = ROOT / "docs" / "scoreboard" / "results.json"
    assert load_results(results)
    write_page(results, tmp_path / "scoreboard.md")
    stored = ROOT / "docs" / "scoreboard.md"
    assert (tmp_path / stored.name).read_text("utf-8") == stored.read_text("utf-8")
