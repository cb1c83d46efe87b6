"""The one line that shows what runs, on stderr: redrawn on a terminal, written now and then elsewhere.

It is drawn by a thread of its own, so that its clock goes on while an engine computes. What others print
to stderr stands above it. The cursor stays at its start: a shell's prompt replaces it after a kill.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TextIO, cast

from edgekit.system.progress import Stage, listening

TICK_S = 0.1
NARROW = 20
"""With fewer columns for the description, the line has no estimate."""
FIRST_PLAIN_S = 10.0
"""Seconds until a running stage gets a line if stderr is not a terminal; another each time they double."""
DETAIL_COLUMNS = 78
"""Width of the description in the line of a finished stage; less on a narrower terminal."""
BAR_COLUMNS = 10


@contextmanager
def live_line(line: LiveLine | None = None) -> Iterator[None]:
    """Show the events of this process."""
    line, stderr = line or LiveLine(), sys.stderr
    with listening(line):
        try:
            if line.is_terminal:
                sys.stderr = cast(TextIO, _Above(stderr, line))
            yield
        finally:
            sys.stderr = stderr
            line.close()


def line_for_python() -> AbstractContextManager[None]:
    """Show the events of a call from Python: on a terminal, or in the cell of a notebook; nowhere else."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return live_line(NotebookLine())
    line = LiveLine()
    return live_line(line) if line.is_terminal else nullcontext()


@dataclass
class _Running:
    """Stage that runs, with times of ``time.monotonic``.

    Attributes:
        counting: Start of the current count, and the number of items that were done then.
        next_plain_s: Duration after which the next plain line is due.
    """

    stage: Stage
    started: float
    event_s: float
    counting: tuple[float, int]
    next_plain_s: float


class _Above:
    """Stream to a terminal that erases the live line before it writes."""

    def __init__(self, stream: TextIO, line: LiveLine) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        self._line.erase()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class LiveLine:
    """Line for the stages that run; the outermost one is shown, with the count of the innermost."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self.is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._lock, self._closed = threading.RLock(), threading.Event()
        self._running: dict[str, _Running] = {}
        self._began_s = 0.0
        self._shown = ""
        self._thread: threading.Thread | None = None

    def __call__(self, stage: Stage) -> None:
        now = time.monotonic()
        with self._lock:
            running = self._running.get(stage.name)
            if not self._running and (not stage.step or not self._began_s):
                self._began_s = now  # of the whole build, for its numbered steps
            if stage.seconds is not None:
                self._running.pop(stage.name, None)
                if stage.detail or not self._running:
                    self._draw("")
                if stage.detail:
                    self._write(_finished(stage, self._columns() - 22 if self.is_terminal else 0))
            elif running is None:
                self._running[stage.name] = _Running(stage, now, now, (now, stage.done), FIRST_PLAIN_S)
            else:
                if (stage.detail, stage.total) != (running.stage.detail, running.stage.total):
                    running.counting = (now, stage.done)
                running.stage, running.event_s = stage, now
            if self._running and self._thread is None:
                self._thread = threading.Thread(target=self._tick, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Erase the line and end its thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self.erase()

    def erase(self) -> None:
        """Erase the line until it is drawn again."""
        with self._lock:
            self._draw("")

    def _tick(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads stderr any more
            while not self._closed.wait(TICK_S):
                with self._lock:
                    if self._running:
                        self._show(time.monotonic())

    def _show(self, now: float) -> None:
        outer, *_, inner = [*self._running.values()] * 2
        stage = _together(outer.stage, inner.stage) if inner is not outer else outer.stage
        elapsed = now - (self._began_s if stage.step else outer.started)
        left = _left(outer, now) if outer.stage.step or outer.stage.left_s is not None else _left(inner, now)
        if self.is_terminal:
            self._draw(running_line(stage, elapsed, left, self._columns() - 1))
        elif (in_stage := now - outer.started) >= outer.next_plain_s:
            outer.next_plain_s = 2 * in_stage
            self._write(running_line(stage, elapsed, left, 10_000))

    def _draw(self, text: str) -> None:
        if self.is_terminal and text != self._shown:
            self._write(f"\r{text:<{len(self._shown)}}\r", end="")
            self._shown = text

    def _write(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self._stream, flush=True)

    def _columns(self) -> int:
        return shutil.get_terminal_size().columns


class NotebookLine(LiveLine):
    """Line in the output of a notebook's cell, below those of the stages that have ended."""

    _text = ""
    _handle: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.is_terminal = True

    def _write(self, text: str, end: str = "\n") -> None:
        from IPython.display import display  # here: a notebook has it

        if self._handle is None:
            self._handle = display({}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        running = "" if end else text.strip("\r ")
        self._text += text + end if end else ""
        self._handle.update({"text/plain": self._text + running}, raw=True)

    def _columns(self) -> int:
        return DETAIL_COLUMNS + 22


def _left(running: _Running, now: float) -> float | None:
    """Return the seconds left: as the event has them, or else by the time that the items took so far."""
    stage, (since, at_first) = running.stage, running.counting
    if stage.left_s is not None:
        return max(stage.left_s - (now - running.event_s), 0.0)
    if stage.step or not stage.total or stage.done <= at_first:
        return None
    whole = (running.event_s - since) / (stage.done - at_first) * (stage.total - stage.done)
    return max(whole - (now - running.event_s), 0.0)


def _together(outer: Stage, inner: Stage) -> Stage:
    """Return a stage with the count and the description of a step within it."""
    detail = ": ".join(filter(None, (outer.detail, inner.detail)))
    shown = inner if inner.total else outer
    return outer._replace(detail=detail, done=shown.done, total=shown.total, unit=shown.unit)


def running_line(stage: Stage, elapsed: float, left_s: float | None, columns: int) -> str:
    """Format a running stage; what is too long ends in dots, so that the clock stays.

    The bar is that of the whole build if its steps are numbered, and else that of the items.

    >>> stage = Stage("searched", "tflite", None, 24, 128, "samples", None, "best 2 ms", "", 7, 9)
    >>> running_line(stage, 102.0, 148.0, 90)
    '  [7/9] searched   ####------ best 2 ms; tflite: 24 of 128 samples      1:42 of about 4:10'
    >>> running_line(Stage("observed", "16 kHz", None, 24, 128, "samples"), 3.0, 13.0, 78)
    '  observed   ##-------- 16 kHz: 24 of 128 samples            3 s of about 16 s'
    """
    total_s = None if left_s is None else max(elapsed + left_s, 1.1 * elapsed)
    clock = (
        clock_text(elapsed) if total_s is None else f"{clock_text(elapsed)} of about {clock_text(total_s)}"
    )
    number = f"[{stage.step}/{stage.steps}] " if stage.step else ""
    share = stage.done / stage.total if stage.total and not stage.step else None
    if stage.step and total_s:
        share = elapsed / total_s
    filled = round(BAR_COLUMNS * min(share or 0.0, 1.0))
    bar = f"{'#' * filled:-<{BAR_COLUMNS}} " if share is not None else ""
    count = f"{stage.done} of {stage.total} {stage.unit}".rstrip() if stage.total else ""
    detail = ": ".join(filter(None, (stage.detail, count)))
    text = bar + ("; ".join(filter(None, (stage.best, detail))) or "...")
    start = f"  {number}{stage.name:<10} "
    if columns - len(start) - len(clock) < NARROW:
        clock = clock_text(elapsed)
    width = max(columns - len(start) - len(clock) - 1, 3)
    text = text if len(text) <= width else f"{text[: width - 3]}..."
    return f"{start}{text:<{min(width, DETAIL_COLUMNS)}} {clock}"[:columns]


def clock_text(seconds: float) -> str:
    """Format a duration.

    >>> clock_text(42.4), clock_text(250), clock_text(3723)
    ('42 s', '4:10', '1:02:03')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def _finished(stage: Stage, columns: int) -> str:
    """Format a stage that has ended, with a description of at most ``columns`` columns. 0 means any
    length."""
    columns = max(10, min(columns, DETAIL_COLUMNS)) if columns else 0
    text = f"{stage.detail[: columns - 3]}..." if 0 < columns < len(stage.detail) else stage.detail
    return f"  {stage.name:<10} {text:<{columns or DETAIL_COLUMNS}} {stage.seconds:5.1f} s"
