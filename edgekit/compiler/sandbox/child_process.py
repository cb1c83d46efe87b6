"""Start the child process of a request, and end it with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE_S = 5.0
"""Seconds that a child may take to end, after Ctrl-C or after its last message."""


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start it in an empty folder, so that it imports nothing from the current one."""
    search = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": search, "TMPDIR": str(folder / "tmp")}
    # As on the command line: further threads of OpenBLAS only wait, and change the last bits of factors.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-m", "edgekit.compiler.sandbox.confined_start"],
        stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=environment, start_new_session=True,
    )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    kill(process)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    elif process.returncode is None:  # else its number may be another's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait for the end. With ``waitid`` its number stays its own until it is waited for in the usual way.
    Windows lacks that function, and macOS has it from Python 3.13 on."""
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        if sys.platform != "win32" and hasattr(os, "waitid"):
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
        elif process.poll() is not None:
            if sys.platform != "win32":
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)  # all that it started, while the number is theirs
            return True
        time.sleep(0.01)
    return False
