"""An update that is killed, or whose disk fails, at a system call, and what must be true after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from edgekit.bundle import Bundle
from edgekit.release.updates.update import Updated
from edgekit.runtime.store.bundle_store import Store
from tests.release.updates.conftest import World

WORKER = Path(__file__).with_name("update_worker.py")
CALLS = ("rename", "fsync", "mkdir", "unlink", "unlinkat", "rmdir", "write", "symlink")
"""What an update asks of the system that a power cut or a full disk can hit."""


QUIET = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
"""No other writes than the update's."""


class Trial:
    """A device that has release ``a``, and a server with release ``b``."""

    def __init__(self, world: World) -> None:
        self.world, self.trace = world, world.folder / "trace"
        self.before = world.folder / "before"
        world.publish("a")
        world.update()
        world.store.begin()
        world.store.confirm()
        world.publish("b")
        shutil.copytree(world.store.root, self.before)
        self.outcomes: Counter[str] = Counter()

    def run(self, inject: str) -> bool:
        """One update of a device as it was, hit at a call; whether there was such a call."""
        world = self.world
        shutil.rmtree(world.store.root)
        shutil.copytree(self.before, world.store.root)
        root = world.site / "metadata" / "1.root.json"
        command = [sys.executable, str(WORKER), str(world.store.root), world.server.url, str(root)]
        strace = ["strace", "-qq", "-f", "-o", str(self.trace), "-e", f"inject={inject}"]
        done = subprocess.run([*strace, *command], capture_output=True, timeout=120, check=False, env=QUIET)
        known = {0: "done", 3: "refused", -9: "killed", 137: "killed"}
        assert done.returncode in known, done.stderr.decode()
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        self.outcomes[known[done.returncode]] += 1
        self.check()
        text = self.trace.read_text("utf-8", errors="replace")
        return "(INJECTED)" in text or "killed by SIGKILL" in text

    def check(self) -> None:
        """The store opens release a or b, whole, and the next update ends with b and no rest."""
        world = self.world
        store = Store(world.store.root, world.store.factory)
        with Bundle.open(store.path) as bundle:
            bundle.verify_entries()
            assert bundle.variants[0].name in "ab"
        done: Updated = world.update()
        assert done.release == 2
        assert world.current() == "b"
        left = [path.name for path in (world.store.root / "updates").rglob("*") if path.is_file()]
        strange = [name for name in left if name.endswith((".part", ".draft")) and not name.startswith(".")]
        assert strange == []


def at_every_call(
    world: World, effect: str, calls: Sequence[str] = CALLS, numbers: Sequence[int] = range(1, 1000)
) -> Counter[str]:
    """Updates that are hit at the first, second ... of these calls, until there is no such call."""
    trial = Trial(world)
    for call in calls:
        for number in numbers:
            if not trial.run(f"{call}:{effect}:when={number}"):
                break
            trial.outcomes["hit"] += 1
    return trial.outcomes
