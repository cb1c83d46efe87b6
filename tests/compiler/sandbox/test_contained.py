"""A file is checked and built in a child, whose end is one error; everything else is as in one process."""

from __future__ import annotations

import math
import os
import platform
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.compress.channel_groups import multiplications
from edgekit.compiler.compress.goal import shrink_goal
from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.compiler.pipeline.shrunk_model import GroupChange, ShrunkModel
from edgekit.compiler.sandbox import child_main, messages
from edgekit.compiler.sandbox.contained import _death
from edgekit.compiler.sandbox.limits import MEMORY_MB, SECONDS
from edgekit.compiler.sandbox.messages import Broken
from edgekit.compiler.sandbox.result_messages import parse_shrunk, shrunk_figures
from edgekit.diagnostics import Finding
from edgekit.errors import (
    CrashError,
    EdgeKitError,
    MissingDependency,
    ModelError,
    UnsupportedError,
    UsageError,
)
from edgekit.processing.card import load_card
from edgekit.system import confinement
from edgekit.system.live_line import LiveLine
from edgekit.system.progress import Stage
from tests.compiler.sandbox.new_children import children
from tests.fixtures import models, spare_networks
from tests.fixtures.command_line import Call

pytestmark = pytest.mark.needs_ort

DIVISION = """
<ir_version: 10, opset_import: ["": 17]>
g (int64[1,4] a, int64[1,4] b) => (int64[1,4] y)
{
    [halves] y = Div(a, b)
}
"""
LEAST = -(2**63)


def test_the_bundle_is_the_same(tmp_path: Path, temporary: Path) -> None:
    model = models.write(tmp_path, models.COLOUR_FINDER)
    written = tmp_path / "card.toml"
    written.write_text(models.COLOUR_CARD, "utf-8")
    card = load_card(written)
    samples = [{"image": np.full((1, 3, 32, 32), value, np.float32)} for value in (0.1, 0.5, 0.9)]
    stages: list[Stage] = []
    options: dict[str, Any] = {"targets": ["ort"], "card": card, "samples": samples}
    contained = edgekit.build(model, **options, progress=stages.append)
    trusted = edgekit.build(str(model), **options, trusted=True)
    assert b"".join(contained.pieces()) == b"".join(trusted.pieces())
    assert contained.name == trusted.name
    assert [s.name for s in stages if s.seconds is not None][:2] == ["opened", "checked"]
    assert (list(temporary.iterdir()), children()) == ([], [])


def test_the_smaller_model_is_the_same(tmp_path: Path, temporary: Path) -> None:
    options: dict[str, Any] = {"samples": spare_networks.samples(12), "flops": "-30%", "targets": ["ort"]}
    model = spare_networks.spare_network(tmp_path)
    contained = edgekit.shrink(model, **options)
    trusted = edgekit.shrink(model, **options, trusted=True)
    for name in ("name", "goal", "multiplications", "weight_bytes", "test_samples", "task", "not_timed"):
        assert getattr(contained, name) == getattr(trusted, name)
    assert contained.latency.keys() == trusted.latency.keys()
    # Not the same bytes: sums of another process differ in their last bits, and channels may swap.
    assert contained.fidelity.snr_db == pytest.approx(trusted.fidelity.snr_db, abs=3)
    assert [g.after for g in contained.groups] == [g.after for g in trusted.groups]
    contained.save(tmp_path / "smaller.onnx")
    assert multiplications(edgekit.open_model(tmp_path / "smaller.onnx")) == contained.multiplications[1]
    assert (list(temporary.iterdir()), children()) == ([], [])


@pytest.mark.parametrize(
    "change",
    [
        {"fidelity": {"snr_db": "much"}},
        {"groups": [["g", "1"]]},
        {"multiplications": [1]},
        {"x": 1},
        {"weight_bytes": [40, -1]},
        {"latency": {"ort": True}},
        {"latency": {"ort": "1"}},
        {"test_samples": -1},
    ],
)
def test_figures_of_a_smaller_model_are_checked(change: dict[str, Any]) -> None:
    score = Score("SNR", 20.0, "dB")
    fidelity = Fidelity(score, math.inf, Score("top-1", 0.5), Kept(1, 2, 0.5, 4))
    found = ShrunkModel(
        "net.onnx", b"", shrink_goal(0.2, None, None), (10, 8), (40, 32), fidelity, None, 8,
        {"ort": 0.9}, {"coreml": "no Mac"}, (GroupChange("g", 8, 4, 0.25),),
    )  # fmt: skip
    figures = messages.parse_line(messages.as_line({"figures": shrunk_figures(found)}))["figures"]
    assert parse_shrunk(figures, found.name, found.goal, b"") == found
    changes: list[dict[str, Any]] = [{"snr_db": "much"}, {"kept": [1, 2, 0.5]}, {"score": {}}, {"task": []}]
    for wrong in changes:
        with pytest.raises(Broken, match=r"figures of a smaller model: shrunk\.fidelity\."):
            parse_shrunk({**figures, "fidelity": {**figures["fidelity"], **wrong}}, "net", found.goal, b"")
    with pytest.raises(Broken, match="figures of a smaller model: "):
        parse_shrunk({**figures, **change}, found.name, found.goal, b"")


def test_findings_are_the_same(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.SMALL_CNN)
    contained = edgekit.check(model, ["tflite"])
    assert contained
    assert contained == edgekit.check(model, ["tflite"], trusted=True)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"no model", {"targets": ["ort"]}),
        (b"", {"targets": ["nothing"]}),
        (models.parse(models.SMALL_CNN), {"targets": ["ort"], "shapes": {"x": (1,)}}),
        (models.parse(models.SMALL_CNN), {"targets": ["ort"], "samples": "nowhere"}),
    ],
)
def test_errors_are_the_same(tmp_path: Path, content: Any, options: dict[str, Any]) -> None:
    from edgekit.compiler.model.onnx_file import save_model

    path = tmp_path / "model.onnx"
    path.write_bytes(content if isinstance(content, bytes) else save_model(content))
    raised: list[EdgeKitError] = []
    for trusted in (False, True):
        with pytest.raises(EdgeKitError) as caught:
            edgekit.build(path, **options, trusted=trusted)
        raised.append(caught.value)
    assert type(raised[0]) is type(raised[1])
    assert str(raised[0]) == str(raised[1])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors don't trap the division")
@pytest.mark.parametrize("waitid", [True, False], ids=["waitid", "as on macOS before Python 3.13"])
def test_a_crash_of_an_engine_is_one_error(
    tmp_path: Path, temporary: Path, waitid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one: ONNX Runtime 1.32.0 divides what the samples hold, and the processor traps it."""
    if not waitid:
        monkeypatch.delattr(os, "waitid", raising=False)
    model = models.write(tmp_path, DIVISION)
    samples = [{"a": np.full((1, 4), LEAST, np.int64), "b": np.full((1, 4), -1, np.int64)}]
    with pytest.raises(CrashError) as caught:
        edgekit.build(model, targets=["ort"], samples=samples)
    first, where, *_ = str(caught.value).splitlines()
    assert first == "model.onnx: its process was killed by SIGFPE"
    assert where.startswith("  at reference")
    assert (list(temporary.iterdir()), children()) == ([], [])


@pytest.mark.skipif(os.name != "posix", reason="this system has no process groups")
@pytest.mark.parametrize("waitid", [True, False], ids=["waitid", "as on macOS before Python 3.13"])
def test_what_a_dead_child_started_ends_too(waitid: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not waitid:
        monkeypatch.delattr(os, "waitid", raising=False)
    code = "import os, subprocess; subprocess.Popen(['sleep', '600']); os.kill(os.getpid(), 11)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    with os.fdopen(os.dup(child.stdout.fileno()), "rb", buffering=0) as held_by_both:
        assert _death(child) == "its process was killed by SIGSEGV"
        ended, _, _ = select.select([held_by_both], [], [], 60)
        assert ended
        assert held_by_both.read(1) == b""


@pytest.mark.parametrize("reason", [KeyboardInterrupt, RuntimeError, BrokenPipeError])
def test_whoever_stops_listening_ends_the_child(tmp_path: Path, temporary: Path, reason: Any) -> None:
    def stop(stage: Stage) -> None:
        raise reason

    model = models.write(tmp_path, models.SMALL_CNN)
    with pytest.raises(reason):
        edgekit.build(model, targets=["ort"], progress=stop)
    assert (list(temporary.iterdir()), children()) == ([], [])


def test_control_c_on_the_command_line(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(line: LiveLine, stage: Stage) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LiveLine, "__call__", stop)
    model = models.write(tmp_path, models.SMALL_CNN)
    result = call("build", model, "-t", "ort", "-o", tmp_path / "b.edgekit")
    assert result.exit_code == 130
    assert "stopped; nothing was written" in result.stderr
    assert (sorted(path.name for path in tmp_path.iterdir()), children()) == (["model.onnx"], [])


def test_the_current_folder_is_not_imported_from(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's model may come with a folder of files."""
    models.write(tmp_path, models.SMALL_CNN)
    for name in ("onnx.py", "numpy.py", "edgekit.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('imported')", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert call("check", "model.onnx", "-t", "ort").exit_code == 0


def test_what_can_t_be_handed_on_is_named(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.SMALL_CNN)
    shapes: Any = {"image": (lambda: 1,)}
    with pytest.raises(EdgeKitError, match="an option cannot be passed to the process that builds the model"):
        edgekit.build(model, targets=["ort"], shapes=shapes)
    assert children() == []


def test_too_much_time_is_one_error(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.write(tmp_path, models.SMALL_CNN)
    monkeypatch.setenv(SECONDS, "0.05")
    with pytest.raises(CrashError) as caught:
        edgekit.check(model)
    what, _, remedy = str(caught.value).splitlines()
    assert what == "model.onnx: its process took longer than its limit of 0.05 s"
    assert remedy == "  set EDGEKIT_SECONDS=0.1 in the environment to double it; this process is unharmed"
    assert (list(temporary.iterdir()), children()) == ([], [])


@pytest.mark.parametrize("given", ["many", "-1", "0", "nan", "inf"])
def test_a_limit_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(MEMORY_MB, given)
    with pytest.raises(
        UsageError, match=r"EDGEKIT_MEMORY_MB is .*; set it to a positive number, or unset it"
    ):
        edgekit.check(models.write(tmp_path, models.SMALL_CNN))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of these limits")
def test_the_child_is_confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def look(stage: Stage) -> None:
        (child,) = children()
        seen.extend(Path(f"/proc/{child}/{name}").read_text("ascii") for name in ("status", "limits"))

    kept = confinement.effective_limits()
    monkeypatch.setenv(MEMORY_MB, "3000")
    monkeypatch.setenv(SECONDS, "1000")
    edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort"], progress=look)
    status, limits = (re.sub(r"[ \t]+", " ", text) for text in seen[:2])
    assert kept["resources"] == ""
    assert "Max core file size 0 0 " in limits
    assert "Max file size 3000000000 3000000000 " in limits
    assert "Max cpu time unlimited unlimited " in limits  # with one, CPU time is counted in ticks of 4 ms
    assert re.search(r"Max data size [0-9]{10} [0-9]{10} ", limits)
    assert kept["network"] or ("Seccomp: 2\n" in status and "NoNewPrivs: 1\n" in status)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't tell a child of it")
def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.SMALL_CNN)
    code = (
        "import edgekit, os, sys, signal\n"
        "def die(stage):\n"
        "    children = open('/proc/self/task/%d/children' % os.getpid()).read()\n"
        "    sys.stdout.write(children); sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
        f"edgekit.build({str(model)!r}, targets=['ort'], progress=die)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    (child,) = map(int, ended.stdout.split())
    until = time.monotonic() + 60
    while Path(f"/proc/{child}/exe").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}/exe").exists()  # gone, or a zombie that nobody waited for


FINDING = Finding("EK1001", "error", "ort", "a\x1b[2J", "Div", "no form")


@pytest.mark.parametrize(
    "problem",
    [
        ModelError("no \x1b[2J model"),
        MissingDependency("tool", "this", extra="build"),
        UnsupportedError("two nodes", [FINDING]),
        CrashError("boom"),
    ],
)
def test_errors_cross(problem: EdgeKitError) -> None:
    *first, last = [messages.parse_line(line) for line in messages.error_lines(problem)]
    found = [each for message in first for each in messages.parse_findings(message["findings"])]
    again = messages.parse_error(last["error"], found)
    assert (type(again), str(again), again.blame) == (type(problem), str(problem), problem.blame)
    if isinstance(problem, MissingDependency):
        assert vars(again) == {**vars(problem), "blame": problem.blame}
    if isinstance(again, UnsupportedError):
        assert again.findings == [Finding("EK1001", "error", "ort", r"a\x1b[2J", "Div", "no form")]


def test_errors_of_the_system_cross() -> None:
    for problem in (OSError(28, "No space left", "/a"), OSError(28, "No space left"), OSError("odd")):
        (line,) = messages.error_lines(problem)
        again = messages.parse_system_error(messages.parse_line(line)["system"])
        assert (again.errno, str(again)) == (problem.errno, str(problem))


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (messages.parse_line, b"cos\nsystem\n(S'true'\ntR."),
        (messages.parse_line, b"[]"),
        (messages.parse_line, b"[" * 100_000),
        (messages.parse_findings, 1),
        (messages.parse_findings, [["EK1001", "error"]]),
        (messages.parse_findings, [["EK1001", "fatal", "", "", "", "", "", ""]]),
        (messages.parse_stage, ["a", "b", 1.0]),
        (messages.parse_stage, ["a", "b", "c", 0, 0, "", None, ""]),
        (messages.parse_stage, ["a", "b", True, 0, 0, "", None, ""]),
        (messages.parse_stage, ["a", "b", None, -1, 0, "", None, ""]),
        (messages.parse_stage, ["a", "b", None, 0, 1 << 60, "", None, ""]),
        (messages.parse_stage, ["a", "b", None, [], 0, "", None, ""]),
        (messages.parse_stage, ["a", "b", {}, 0, 0, "", None, ""]),
        (messages.parse_stage, ["a", "b", "nan", 0, 0, "", None, ""]),
        (messages.parse_stage, ["a\x1b", "b", None, 0, 0, "", None, ""]),
        (messages.parse_system_error, ["a", "b"]),
        (lambda given: messages.parse_error(given, []), {"kind": "SystemExit", "text": "", "blame": ""}),
        (lambda given: messages.parse_error(given, []), {"kind": "ModelError", "text": 1, "blame": ""}),
        (lambda given: messages.parse_error(given, []),
         {"kind": "MissingDependency", "text": "", "blame": "", "missing": [1]}),
    ],
)  # fmt: skip
def test_what_no_child_of_ours_says_is_refused(read: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(Broken):
        read(given)


def test_texts_of_a_child_are_escaped() -> None:
    (line,) = [messages.stage_line("stage", Stage("a\x1b", "\u202e", 1.0, 1, 2, "\x9b", 3.0, "b\x1b"))]
    assert messages.parse_stage(messages.parse_line(line)["stage"]) == Stage(
        r"a\x1b", r"\u202e", 1.0, 1, 2, r"\x9b", 3.0, r"b\x1b"
    )
    about: Any = {"kind": "ModelError", "text": "\x9b2J", "blame": ""}
    assert str(messages.parse_error(about, [])) == r"\x9b2J"


def test_of_what_only_counts_ten_a_second_cross_the_pipe_and_every_description(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, sent = 0.0, list[bytes]()
    monkeypatch.setattr("time.monotonic", lambda: now)
    tell = child_main._notifier(sent.append)
    for count in range(1000):
        now = count / 1000 + 1
        tell("stage", Stage("searched", "rounding", None, count, 1000))
    assert 9 <= len(sent) <= 10
    sent.clear()
    for detail in "abc":
        tell("stage", Stage("searched", detail))
    tell("stage", Stage("searched", "c", 1.0))
    assert [messages.parse_stage(messages.parse_line(line)["stage"])[1:3] for line in sent] == [
        ("a", None), ("b", None), ("c", None), ("c", 1.0),
    ]  # fmt: skip
