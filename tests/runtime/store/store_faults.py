"""A store's operation in a process that is killed, or whose disk fails, at one call of the system."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit.bundle import Bundle
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import small_bundle, variant

CALLS = ("openat", "write", "fsync", "rename", "unlink", "flock", "mkdir", "close", "newfstatat", "fstat")
FAILING = ("openat", "write", "fsync", "rename", "unlink", "mkdir")
"""Those of them that a full or a broken disk fails."""
SCRIPT = (
    # Temporary files have the same names in each run, so that strace can filter by path.
    "import itertools, os; count = itertools.count(); os.urandom = lambda n: next(count).to_bytes(n, 'big')\n"
    "import sys; from edgekit.errors import EdgeKitError\n"
    "from edgekit.runtime.store.bundle_store import Store; store = Store(*sys.argv[1:3])\n"
    "try:\n    store.{}\nexcept EdgeKitError as error:\n    sys.exit(3)\n"
    "sys.exit(0 if store.is_saved else 4)"
)
OPERATIONS = {
    "install": "install(sys.argv[3])",
    "activate": "begin()",
    "commit": "confirm(store.state.current)",
    "rollback": 'give_up("slow", store.state.current)',
}
ENDS = {0: "done", 3: "refused", 4: "not saved", -9: "killed", 137: "killed"}


class Trial:
    """One operation on copies of one store."""

    def __init__(self, place: Path, operation: str) -> None:
        self._log, self._operation = place / "log", operation
        self._bundles = {
            name: small_bundle([variant(name, "ort")]).save(place / f"{name}.edgekit")
            for name in ("factory", "a", "b", "c")
        }
        self.master = Store(place / "master", self._bundles["factory"])
        self._commit("a")
        if operation != "install":
            self.master.install(self._bundles["b"])
        if operation in ("commit", "rollback"):
            self.master.begin()
        self.root = place / "copy"

    def _commit(self, name: str) -> None:
        self.master.install(self._bundles[name])
        self.master.begin()
        self.master.confirm()

    def run(self, *expressions: str, paths: Sequence[str] = ()) -> str:
        """Run the operation on a copy under strace, and return how it ended."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.master.root, self.root)
        asked = [f"-P{path}" for path in paths]
        asked += [part for expression in expressions for part in ("-e", expression)]
        script = SCRIPT.format(OPERATIONS[self._operation])
        given = [str(self.root), str(self._bundles["factory"]), str(self._bundles["b"])]
        strace = ["strace", "-f", "-qq", "-y", "-o", str(self._log), *asked]
        done = subprocess.run(
            [*strace, sys.executable, "-c", script, *given], capture_output=True, text=True, check=False
        )
        assert done.returncode in ENDS, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return ENDS[done.returncode]

    def points(self, calls: Sequence[str]) -> Iterator[tuple[str, list[str], int]]:
        """Yield each call on a file of the store: its name, the store's paths, its number among the calls of
        that name on those paths. What the interpreter opens elsewhere does not count: it differs by run."""
        traced = f"trace={','.join(calls)}"
        assert self.run(traced) == "done"
        paths = sorted(set(re.findall(rf'{re.escape(str(self.root))}[^"<>]*', self._text())))
        assert self.run(traced, paths=paths) == "done"
        self.after = Store(self.root, self._bundles["factory"]).state
        lines = self._text().splitlines()
        assert lines
        assert all(str(self.root) in line for line in lines)
        names = Counter(line.split(maxsplit=1)[1].partition("(")[0] for line in lines)
        for name, count in names.items():
            for number in range(1, count + 1):
                yield name, paths, number

    def _text(self) -> str:
        return self._log.read_text(errors="replace")

    def check(self) -> None:
        """What is committed is there, and what starts is whole; the operation can be done now."""
        again = Store(self.root, self._bundles["factory"])
        before, state = self.master.state, again.state
        # Where the candidate's file cannot be read now, the committed bundle stands in for that start.
        skipped = state.stood_in != () and (state.good, state.named) == (before.good, before.named)
        assert skipped or state in (before, self.after), state
        for digest in state.named:
            with Bundle.open(again.slot(digest)) as bundle:
                bundle.verify_entries()
                assert bundle.digest == digest
        with Bundle.open(again.begin()) as bundle:
            bundle.verify_entries()
            assert bundle.variants[0].name in ("a", "b")
        again.install(self._bundles["c"])
        with Bundle.open(again.begin()) as bundle:
            assert bundle.variants[0].name == "c"


def at_every_call(
    place: Path, operation: str, effect: str, calls: Sequence[str] = CALLS
) -> Iterator[tuple[str, str]]:
    """Run an operation once for each of its calls, with strace's ``effect`` there.

    Args:
        place: An empty folder.
        operation: Of :data:`OPERATIONS`.
        effect: ``signal=KILL``, ``error=ENOSPC`` or ``error=EIO``.
        calls: Names of system calls.

    Yields: The call and how the operation ended; what it left was checked.
    """
    trial = Trial(place, operation)
    for name, paths, number in trial.points(calls):
        ended = trial.run(f"trace={name}", f"inject={name}:{effect}:when={number}", paths=paths)
        assert (ended == "killed") == (effect == "signal=KILL")
        trial.check()
        yield name, ended


def counted(found: Iterator[tuple[str, str]]) -> str:
    """As text: how often each end was met."""
    ends = Counter(f"{ended}" for _, ended in found)
    return f"{ends.total()} points: " + ", ".join(f"{count} {ended}" for ended, count in sorted(ends.items()))
