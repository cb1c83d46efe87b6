"""The scoreboard's own work: a tiny network through two makers, resuming, failures, verdicts and the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.scoreboard.makers import ROOT
from tests.benchmarks.scoreboard.page import write_page
from tests.benchmarks.scoreboard.results import DRAW, load_results, save
from tests.benchmarks.scoreboard.verdict import AHEAD, BEHIND, FRONT, NONE, OFF, Point, judge, verdict_of


def scoreboard(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.benchmarks.scoreboard", *map(str, words)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "targets")])
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)


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
