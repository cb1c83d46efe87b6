from __future__ import annotations

import os
import subprocess
import sys

import pytest

from edgekit.cli.terminal import fitted

ROW = "  ort      int8     0.9 kB  12.3 dB  7.2 ms    yes, by reference execution; not run on a Jetson"
NOTE = "  note      a-long-name, another-name  output y: SNR 80.0 dB; it saturates, so its limit is 60 dB"
PATH = "  " + "/a/very/long/path" * 8


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("line", [ROW, NOTE, f"  cache     {ROW} {NOTE}"])
def test_lines_fit_and_lose_no_word(line: str, columns: int) -> None:
    lines = fitted(line, columns).split("\n")
    assert all(len(each) <= columns for each in lines)
    assert " ".join(lines).split() == line.split()
    assert (len(lines) == 1) == (len(line) <= columns)


def test_the_last_cell_goes_below_the_cells_before_it() -> None:
    assert fitted(ROW, 80).split("\n") == [
        "  ort      int8     0.9 kB  12.3 dB  7.2 ms    yes, by reference execution; not",
        "                                               run on a Jetson",
    ]
    assert fitted("  rejected  a-long-name  1.02x the time of another", 44).split("\n") == [
        "  rejected  a-long-name",
        "            1.02x the time of another",
    ]


def test_a_number_stays_with_its_unit() -> None:
    assert fitted("  variant   load     first    p50      p95", 40).split("\n") == [
        "  variant   load     first    p50",
        "            p95",
    ]
    assert fitted("  ort-fp32  72.8 ms  27.9 ms  26.6 ms  33.8 ms", 45).split("\n") == [
        "  ort-fp32  72.8 ms  27.9 ms  26.6 ms",
        "                     33.8 ms",
    ]


def test_a_command_to_paste_stays_one_line() -> None:
    command = "  next: edgekit build yolox_nano.onnx -t ort -t tflite -t openvino -o yolox_nano.edgekit"
    assert fitted(f"{NOTE}\n{command}", 60).split("\n")[-1] == command


def test_what_cannot_be_broken_stays_whole() -> None:
    assert fitted(PATH, 60) == PATH
    assert fitted(ROW, 20) == ROW
    assert fitted("", 80) == ""


def on_a_terminal(code: str, environment: dict[str, str]) -> str:
    """What 24 rows of 60 columns are sent."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    subprocess.run([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    return shown


posix = pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX's")


@posix
@pytest.mark.parametrize("no_colour", [False, True])
def test_colour_and_width_are_for_terminals_only(no_colour: bool) -> None:
    code = f"from edgekit.cli import terminal; terminal.answer(False, {{}}, {'  rejected  ' + ROW!r})"
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"NO_COLOR": "1"} if no_colour else {}
    shown = on_a_terminal(code, environment).replace("\r", "")
    assert ("\x1b[33mrejected\x1b[0m" in shown) is not no_colour
    assert len(shown.splitlines()) > 1
    piped = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True, check=True
    )
    assert piped.stdout == f"  rejected  {ROW}\n"
