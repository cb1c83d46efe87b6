"""Workers that keep ending are started again with pauses."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

restarts = pytest.importorskip("edgekit.serve.worker_restarts", reason="uvicorn is not installed")


def test_the_pause_doubles_up_to_its_limit_and_begins_anew_after_a_steady_time() -> None:
    end, now_s, pauses = None, 1000.0, []
    for _ in range(8):
        end = restarts.next_end(end, now_s)
        pauses.append(end.due_s - now_s)
        now_s = end.due_s + 1.0  # each runs for a second
    assert pauses == [0, 1, 2, 4, 8, 8, 8, 8]
    assert restarts.next_end(restarts.Ends(5000, 0.0), 1.0).due_s == 9.0
    steady_s = now_s - 1.0 + restarts.STEADY_SECONDS
    assert restarts.next_end(end, steady_s) == restarts.Ends(1, steady_s)


def workers_of(pid: int) -> set[int]:
    """Process ids of the workers: those of the children that were spawned, without Python's tracker."""
    found = set()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                found.add(int(child))
    return found


@pytest.mark.needs_ort
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the children of a process in /proc")
def test_others_are_answered_while_a_worker_that_ended_waits(bundle: Path) -> None:
    command = "from edgekit.cli.verbs import main; main()"
    line = ["serve", f"net={bundle}", "--listen", ":0", "--workers", "2", "--json"]
    with (
        subprocess.Popen(
            [sys.executable, "-u", "-c", command, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        while len(workers_of(process.pid)) < 2:
            time.sleep(0.05)
        kept = min(workers_of(process.pid))
        for pause in ("0", "1", "2"):
            while not (others := workers_of(process.pid) - {kept}):
                time.sleep(0.05)
            (killed,) = others
            os.kill(killed, signal.SIGKILL)
            told = process.stderr.readline().decode()
            assert told == f"error: worker {killed} ended with -9; another one starts in {pause} s\n"
        for _ in range(4):
            wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            wire.request("GET", "/v2/health/live")
            assert wire.getresponse().status == 200
            wire.close()
        assert workers_of(process.pid) == {kept}  # the other one still waits
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
