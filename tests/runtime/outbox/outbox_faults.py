"""An outbox in a process of its own that is killed, or whose disk fails, and what must be true after it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from edgekit.runtime.outbox.outbox import Outbox

WORKER = Path(__file__).with_name("outbox_worker.py")
CALLS = (
    "pwrite64",
    "fdatasync",
    "fsync",
    "ftruncate",
    "unlink",
    "close",
    "pread64",
    "mkdir",
    "fcntl",
    "openat",
)
"""What SQLite and the outbox ask of the system that a power cut or a full disk can hit."""
ROWS = 3


class Trial:
    """One folder and the runs on it, one after the other.

    Attributes:
        acknowledged: Keys that a worker was told to be stored.
        outcomes: How the workers ended: ``killed``, ``done`` or ``refused`` (to open).
    """

    def __init__(self, place: Path) -> None:
        self.folder, self.delivered, self.trace = place / "outbox", place / "delivered", place / "trace"
        place.mkdir(parents=True, exist_ok=True)
        self.delivered.touch()
        self.acknowledged: set[str] = set()
        self.outcomes: Counter[str] = Counter()

    def run(self, inject: str = "", rows: int = ROWS, wait_s: float = 10) -> str:
        """One worker; ``inject`` is strace's, e.g. ``pwrite64:signal=KILL:when=3``; how it ended."""
        command = self._command(rows, wait_s)
        if inject:
            places = [f"-P{self.folder / name}" for name in ("", "rows-1.db", "rows-1.db-wal")]
            trace = ["-o", str(self.trace), *places, "-e", f"inject={inject}"]
            command = ["strace", "-qq", "-f", *trace, *command]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        return self._ended(done.returncode, done.stdout, done.stderr)

    def run_and_kill(self, after_s: float, stored_first: bool) -> str:
        """One worker without an end, killed so long after its start or after the first row that it stored."""
        process = subprocess.Popen(self._command(0, 10), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        first = process.stdout.readline() if stored_first else b""
        time.sleep(after_s)
        process.kill()
        out, errors = process.communicate()
        return self._ended(process.returncode, first + out, errors)

    @property
    def found(self) -> bool:
        """Whether the last injection found its system call."""
        text = self.trace.read_text("utf-8", errors="replace")
        return "(INJECTED)" in text or "killed by SIGKILL" in text

    def _command(self, rows: int, wait_s: float) -> list[str]:
        return [sys.executable, str(WORKER), str(self.folder), str(self.delivered), str(rows), str(wait_s)]

    def _ended(self, status: int, out: bytes, errors: bytes) -> str:
        known = {0: "done", 3: "refused", -9: "killed", 137: "killed"}
        assert status in known, errors.decode()
        assert b"Traceback" not in errors, errors.decode()
        self.acknowledged |= set(out.decode().split())
        self.outcomes[known[status]] += 1
        return known[status]

    def check(self) -> None:
        """Every acknowledged row is delivered, or waits; one row never came under two keys."""
        lines = [line.split() for line in self.delivered.read_text("ascii").splitlines()]
        with Outbox(self.folder) as outbox:
            counts = outbox.counts()
            assert outbox._store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            waiting = outbox._store.waiting(1_000_000, 1 << 40)
        assert counts["damaged"] == counts["rebuilt"] == 0, counts
        lines += [[parcel.key, parcel.body.decode()] for parcel in waiting]
        lost = self.acknowledged - {key for key, _ in lines}
        assert not lost, (
            f"{len(lost)} of {len(self.acknowledged)} acknowledged rows are lost: {sorted(lost)[:3]}"
        )
        keys: dict[str, str] = {}
        assert all(keys.setdefault(body, key) == key for key, body in lines), "one row came under two keys"


def at_every_call(
    place: Path, effect: str, calls: Sequence[str] = CALLS, numbers: Sequence[int] = range(1, 1000)
) -> Counter[str]:
    """A worker on a new folder, and one on a folder with rows, hit at the first, second ... system call.

    Args:
        place: An empty folder.
        effect: ``signal=KILL`` or ``error=ENOSPC``.
        calls: Names of system calls.
        numbers: Which calls of each name, counted by thread; until there is no such call.

    Returns:
        How many workers were hit, and how all ended.
    """
    outcomes: Counter[str] = Counter()
    used = Trial(place / "used")
    used.run(rows=2)
    for call in calls:
        for origin in (None, used):
            for number in numbers:
                trial = Trial(place / "trial")
                if origin is not None:
                    shutil.copytree(origin.folder, trial.folder)
                trial.run(f"{call}:{effect}:when={number}", wait_s=3)
                trial.check()
                found = trial.found
                shutil.rmtree(place / "trial")
                outcomes += trial.outcomes
                if not found:
                    break
                outcomes["hit"] += 1
    return outcomes


def at_random(place: Path, kills: int, seed: int) -> Trial:
    """Workers on one folder, each killed at a random moment."""
    draw = random.Random(seed)
    trial = Trial(place)
    for number in range(kills):
        opened = draw.random() < 0.8  # of the others most are killed while they open the folder
        trial.run_and_kill(draw.uniform(0.0, 0.05) if opened else draw.uniform(0.05, 0.4), opened)
        if number % 25 == 24:
            trial.check()
    trial.check()
    return trial
