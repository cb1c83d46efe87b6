"""The line that shows what runs: on a pseudo-terminal, in a pipe, and with --quiet and --json."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edgekit.system import live_line
from edgekit.system.live_line import LiveLine, running_line
from edgekit.system.progress import Stage, counted, listening, report, stage
from tests.fixtures.command_line import Call

OF_TESTS = ("COLUMNS", "LINES", "NO_COLOR", "EDGEKIT_TRUSTED")
posix = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX's")
EDGEKIT = [sys.executable, "-c", "from edgekit.cli import main; main()"]


def shown(written: str) -> list[str]:
    """The lines that a terminal shows in the end."""
    lines = [""]
    for piece in written.replace("\r\n", "\n").replace("\n", "\n\0").split("\0"):
        column = 0
        for part in piece.rstrip("\n").split("\r"):
            lines[-1] = part + lines[-1][len(part) :]
            column = len(part)
        assert column >= 0
        if piece.endswith("\n"):
            lines.append("")
    return [line.rstrip() for line in lines]


def on_a_terminal(command: list[str], columns: int, interrupt_at: str = "", **environment: str) -> str:
    """What a terminal of 24 rows is sent; Ctrl-C is pressed once it has shown ``interrupt_at``."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm", **environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests may run in the background
    )
    os.close(theirs)
    written, pressed = "", False
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:
            break
        written += data.decode()
        if interrupt_at and interrupt_at in written and not pressed:
            pressed = True
            process.send_signal(signal.SIGINT)
    process.wait()
    os.close(ours)
    return written


@posix
@pytest.mark.parametrize("columns", [40, 60, 120])
def test_a_build_shows_what_runs_and_leaves_a_line_for_each_stage(
    model: Path, columns: int, tmp_path: Path
) -> None:
    command = [*EDGEKIT, "build", str(model), "-t", "ort", "-o", str(tmp_path / "b.edgekit")]
    written = on_a_terminal(command, columns, EDGEKIT_CACHE=str(tmp_path / "cache"))
    drawn = [line for line in written.replace("\n", "\r").split("\r") if line.startswith("  starting")]
    assert drawn
    assert all(len(line) < columns for line in drawn)
    assert all(line.rstrip().endswith(" s") for line in drawn)
    stages = [line.split()[0] for line in shown(written) if line.endswith(" s")]
    assert stages[:5] == ["opened", "checked", "reference", "compiled", "timed"]
    assert "starting" not in "\n".join(shown(written))


@posix
@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_a_dumb_terminal_gets_whole_lines_and_a_plain_one_no_colour(
    model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    command = [*EDGEKIT, "build", str(model), "-t", "ort", "-o", str(tmp_path / "b.edgekit")]
    written = on_a_terminal(command, 80, **environment).replace("\r\n", "\n")
    assert ("\r" in written) is ("TERM" not in environment)
    assert "\x1b" not in written or "TERM" in environment


@posix
def test_ctrl_c_leaves_no_line(model: Path, tmp_path: Path) -> None:
    command = [*EDGEKIT, "build", str(model), "-t", "ort", "-o", str(tmp_path / "b.edgekit")]
    written = on_a_terminal(command, 100, "  starting", NO_COLOR="1")
    ending = "error: stopped; nothing was written; run the same command again to continue"
    assert [line for line in shown(written) if line] == [ending]


@posix
def test_an_error_stands_where_the_running_stage_was() -> None:
    code = """if True:
        import click, time
        from edgekit.system import live_line
        from edgekit.cli.command_group import main
        from edgekit.errors import SampleError
        from edgekit.system.progress import report, stage
        @main.command()
        def wait():
            with stage(report, "reference"):
                time.sleep(0.5)
                click.echo("a warning", err=True)
                time.sleep(0.5)
                raise SampleError("no samples")
        main(["wait"])
    """
    written = on_a_terminal([sys.executable, "-c", code], 60, NO_COLOR="1")
    assert written.count("  reference  ...") >= 2
    assert shown(written) == ["a warning", "error: no samples", ""]


@pytest.mark.parametrize(("flag", "stages"), [("", 5), ("--quiet", 0), ("--json", 0)])
def test_a_pipe_gets_one_line_for_each_stage_and_none_if_asked(
    model: Path, flag: str, stages: int, tmp_path: Path
) -> None:
    output = tmp_path / "b.edgekit"
    command = [*EDGEKIT, "build", str(model), "-t", "ort", "-o", str(output), *filter(None, [flag])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\r" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line]) == stages
    assert (done.stderr == "") is (stages == 0)


def test_a_long_stage_gets_a_line_now_and_then_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_line, "FIRST_PLAIN_S", 0.3)
    with live_line.live_line(), stage(report, "searched", live=True) as say:
        say("all", 2, 4, "candidates", 30.0, "best so far 2 ms")
        until, written = time.monotonic() + 60, ""
        while not written and time.monotonic() < until:
            time.sleep(0.05)
            written = capsys.readouterr().err
        say("2 kept")
    expected = "  searched   #####----- best so far 2 ms; all: 2 of 4 candidates "
    assert written.startswith(expected)
    assert written.endswith(" 0 s of about 30 s\n")
    assert capsys.readouterr().err.startswith("  searched   2 kept ")


def test_the_time_left_is_that_of_the_limit_or_goes_by_the_items_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    line = LiveLine()
    monkeypatch.setattr(line, "_tick", lambda: None)
    lefts = []
    for now, event in enumerate([
        Stage("observed", "a"), Stage("observed", "a", None, 0, 100), Stage("observed", "a", None, 10, 100),
        Stage("observed", "b", None, 0, 50), Stage("observed", "b", None, 25, 50),
        Stage("observed", "b", None, 25, 50, left_s=7.0),
    ]):  # fmt: skip
        line(event)
        lefts.append(live_line._left(line._running["observed"], now + 0.5))
    assert lefts == [None, None, 8.5, None, 0.5, 6.5]


def test_a_step_within_a_stage_lends_it_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    line = LiveLine()
    line.is_terminal = True
    monkeypatch.setattr(line, "_columns", lambda: 120)
    monkeypatch.setattr(line, "_tick", lambda: None)
    monkeypatch.setattr(line, "_draw", drawn.append)
    line(Stage("searched", "tflite", None, 0, 0, "", 9.0, "best so far 2 ms"))
    with listening(line):
        for _ in counted(range(4), "samples", describe=lambda number: f"sample {number}"):
            line._show(time.monotonic())
        line._show(time.monotonic())
    texts = [" ".join(text.split()).rpartition(" 0 s of about 9 s")[0] for text in drawn]
    assert texts[1] == "searched ##-------- best so far 2 ms; tflite: sample 1: 1 of 4 samples"
    assert texts[-1] == "searched best so far 2 ms; tflite"


def test_a_line_that_is_too_long_ends_in_dots() -> None:
    for columns in (30, 40, 80, 200):
        found = running_line(Stage("searched", "x" * 300, best="best so far 2 ms"), 72.2, 30.0, columns)
        assert len(found) <= columns
        assert found.endswith("... 1:12" if columns <= 40 else "... 1:12 of about 1:42")


def test_the_clock_never_ends_before_the_work() -> None:
    late = Stage("searched", "tflite", step=7, steps=9)
    assert running_line(late, 250.0, 0.0, 110).endswith(" 4:10 of about 4:35")


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("words", "name", "count"),
    [
        (["verify"], "verifying", (0, 1, "variants")),
        (["explain"], "explaining", (0, 1, "variants")),
        (["bench", "--seconds", "0.1"], "measuring", (0, 0, "")),
        (["bench", "--seconds", "0.1", "--sweep", "1x1,2x1"], "measuring", (1, 2, "points")),
        (["bench", "--seconds", "0.1", "--against", "BUNDLE"], "comparing", (1, 20, "rounds")),
        (["bundle", "drift", "SAMPLES", "SAMPLES", "-o", "OUT"], "running", (1, 2, "samples")),
    ],
)
def test_commands_that_take_long_say_what_they_do(
    bundle: Path, call: Call, words: list[str], name: str, count: tuple[int, int, str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    heard: list[Stage] = []
    monkeypatch.setattr(LiveLine, "__call__", lambda line, event: heard.append(event))
    samples = tmp_path / "samples"
    samples.mkdir()
    for number in range(2):
        np.save(samples / f"{number}.npy", np.full((1, 3, 16, 16), number, np.float32))
    given = {"BUNDLE": bundle, "SAMPLES": samples, "OUT": tmp_path / "drift"}
    at = 2 if words[0] == "bundle" else 1
    call(*words[:at], bundle, *(given.get(word, word) for word in words[at:]))
    assert count in [event[3:6] for event in heard if event.name == name]
    assert heard[-1] == Stage(name, "", 0.0)
    heard.clear()
    call(*words[:at], bundle, *(given.get(word, word) for word in words[at:]), "--json")
    assert heard == []
