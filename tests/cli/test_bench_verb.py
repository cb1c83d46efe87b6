from __future__ import annotations

import json
from pathlib import Path

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.compiler.bench.history import bundle_facts
from edgekit.compiler.bench.trace import FRAMES
from tests.fixtures.command_line import Call, answer
from tests.fixtures.detector import detector, detector_card

pytestmark = pytest.mark.needs_ort


def test_bench_ends_with_1_beyond_a_limit(bundle: Path, call: Call, tmp_path: Path) -> None:
    first = call("bench", bundle, "--seconds", "0.05", "--json")
    base = tmp_path / "base.json"
    base.write_text(first.stdout, "utf-8")
    fast = ["bench", bundle, "--seconds", "0.05", "--baseline", base]
    assert call(*fast, "--fail-if", "p50>+100000%").exit_code == 0
    result = call(*fast, "--fail-if", "p50>0.000001ms")
    assert result.exit_code == 1
    assert "  beyond    " in result.stdout
    result = call("bench", bundle, "--fail-if", "p50>+1%")
    assert result.exit_code == 2


def test_bench_says_which_is_faster(bundle: Path, call: Call) -> None:
    result = call("bench", bundle, "--against", bundle, "--seconds", "0.05", "--json")
    (found,) = answer(result)["comparisons"]
    assert found["low"] <= found["ratio"] <= found["high"]
    result = call("bench", bundle, "--against", bundle, "--sweep", "1x1")
    assert (result.exit_code, result.stdout) == (2, "")


def test_bench_runs_at_the_pace_of_a_camera(bundle: Path, call: Call) -> None:
    (found,) = answer(call("bench", bundle, "--seconds", "0.1", "--fps", "50", "--json"))["results"]
    assert found["fps"] == 50
    result = call("bench", bundle, "--fps", "50", "--against", bundle)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: --fps does not combine with --against or --sweep, whose runs have no pauses\n"
    )


def test_bench_sweeps(bundle: Path, call: Call) -> None:
    result = call("bench", bundle, "--seconds", "0.05", "--sweep", "1x1,2x1", "--json")
    assert [(p["streams"], p["threads"]) for p in answer(result)["sweep"]] == [(1, 1), (2, 1)]


@pytest.mark.needs_report
def test_bench_keeps_a_history_and_draws_it(bundle: Path, call: Call, tmp_path: Path) -> None:
    history, page = tmp_path / "h.jsonl", tmp_path / "h.html"
    fast = ["bench", bundle, "--seconds", "0.05", "--history", history]
    first = call(*fast)
    assert first.exit_code == 0
    assert f"  history   {history}  1 run\n" in first.stdout
    found = answer(call(*fast, "--plot", page, "--json"))
    assert (found["history"], found["plot"]) == (str(history), str(page))
    _, newest = map(json.loads, history.read_text("utf-8").splitlines())
    with Bundle.open(bundle) as opened:
        assert newest["bundle"] == bundle_facts(opened)
    assert newest.items() <= found.items()
    assert "<td>ort-fp32</td>" in page.read_text("utf-8")
    result = call(*fast, "--baseline", tmp_path / "none.json", "--fail-if", "p50>1ms")
    assert result.exit_code == 2
    assert len(history.read_text("utf-8").splitlines()) == 2


def test_a_run_beyond_a_limit_is_kept_too(bundle: Path, call: Call, tmp_path: Path) -> None:
    history = tmp_path / "h.jsonl"
    result = call("bench", bundle, "--seconds", "0.05", "--history", history, "--fail-if", "p50>0.000001ms")
    assert result.exit_code == 1
    assert len(history.read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--plot", "h.html"], "--plot needs --history FILE.jsonl, whose runs it draws"),
        (["--history", "h.json"], "h.json must be a JSON Lines file; end its name in .jsonl"),
        (["--history", "none/h.jsonl"], "none is not a folder"),
        (["--history", "h.jsonl"], "h.jsonl, line 1 is not a run of edgekit bench"),
        (["--history", "new.jsonl", "--plot", "h.svg"], "h.svg must be an HTML page"),
        (["--history", "new.jsonl", "--against", "ort-fp32"], "--against cannot be combined with"),
    ],
)
def test_a_history_is_refused_before_anything_is_measured(
    bundle: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("h.jsonl").write_text("{}\n", "utf-8")
    before = sorted(tmp_path.iterdir())
    result = call("bench", bundle, *options, "--seconds", "1000")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_bench_writes_when_each_stage_of_a_pipeline_ran(call: Call, tmp_path: Path) -> None:
    bundle, trace = tmp_path / "d.edgekit", tmp_path / "trace.json"
    edgekit.build(detector(tmp_path / "d.onnx"), targets="ort", card=detector_card(32)).save(bundle)
    found = answer(call("bench", bundle, "--seconds", "0.05", "--trace", trace, "--json"))
    assert found["trace"] == str(trace)
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert all(event["ts"] >= 0 and event["dur"] >= 0 and event["pid"] and event["tid"] for event in spans)
    for name in ("prepare", "infer", "decode_outputs"):
        of_stage = [event for event in spans if event["name"] == name]
        assert [event["args"]["frame"] for event in of_stage] == list(range(FRAMES))
        (thread,) = {event["tid"] for event in of_stage}
        ends = [event["ts"] + event["dur"] for event in of_stage]
        assert all(end <= later["ts"] for end, later in zip(ends, of_stage[1:], strict=False))
        assert {"ph": "M", "name": "thread_name", "tid": thread, "args": {"name": name}} in [
            {key: value for key, value in event.items() if key != "pid"} for event in events
        ]
