"""Two processes on one store, at random, killed at random: there is a bundle to start, and none is lost.

python tests/runtime/store_soak.py [--operations N] [--seed S]

Each worker installs, begins, opens, confirms and gives up; at some opens an engine is missing, a disk full or
memory short. It writes down what it does before it does it. Checked at each step, and by the parent at each
kill: what begins is a whole bundle that was installed, or the factory's; what is good was confirmed by a
worker that had opened it, and its file is whole; nothing was given up for a reason that may pass.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from edgekit.bundle import Bundle
from edgekit.errors import BundleError, MissingDependency
from edgekit.runtime.store.bundle_store import Store
from edgekit.target import registry
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.fake_engines import Engines

NAMES = "abcdef"
PASSING = "passing"
OURS = ("slow", "3 starts ended before it was confirmed")
MAY_PASS = (OSError(28, PASSING), MemoryError(PASSING), MissingDependency(PASSING, "a test", "pip"))


def work(folder: Path, seed: int, log: Path) -> None:
    """Operate on the store until killed, or until the log says that it was enough."""
    draw = random.Random(seed)
    engines = Engines("ort")
    registry.engine = engines
    known = {Bundle.open(path).digest for path in folder.glob("*.edgekit")}
    store = Store(folder / "store", folder / "factory.edgekit")
    with open(log, "ab", buffering=0) as file:
        while True:
            does = draw.choice(["install", "begin", "begin", "open", "open", "confirm", "confirm", "give up"])
            file.write(f"? {does} {store.opened or ''}\n".encode())
            if does == "install":
                store.install(folder / f"{draw.choice(NAMES)}.edgekit")
            elif does == "begin":
                with_bundle(store.begin(), known)
            elif does == "open":
                refused = draw.sample(NAMES, draw.choice([0, 0, 1, 2, 6]))
                engines["ort"].refused = {name: draw.choice(MAY_PASS) for name in refused}
                store.open(probe=False).close()
                assert store.opened == "" or store.opened in known
            elif store.opened is not None:
                store.confirm() if does == "confirm" else store.give_up("slow")
            check(store, folder)
            file.write(b"!\n")


def with_bundle(path: Path, known: set[str]) -> None:
    """Open what a start gave; the other process may have given it up, twice, since."""
    try:
        with Bundle.open(path) as bundle:
            bundle.verify_entries()
            assert bundle.digest in known
    except BundleError as problem:
        if "file not found" not in str(problem):
            raise


def check(store: Store, folder: Path) -> None:
    """What holds at every moment, whoever was killed."""
    state = Store(store.root, store.factory).state
    for digest, reason in state.given_up:
        assert reason in OURS, (digest, reason)
    confirmed = {
        line.split()[2]
        for log in folder.glob("log.*")
        for line in log.read_text("utf-8").splitlines()
        if line.startswith("? confirm") and len(line.split()) == 3
    }
    assert set(state.good) <= confirmed
    if Store(store.root, store.factory).state == state:  # nobody changed it meanwhile
        for digest in state.good:
            try:
                with Bundle.open(store.root / "slots" / f"{digest}.edgekit") as bundle:
                    bundle.verify_entries()
                    assert bundle.digest == digest
            except BundleError:
                assert digest not in Store(store.root, store.factory).state.good


def soak(folder: Path, operations: int, seed: int) -> tuple[int, int]:
    """Run two workers, and kill one of them at a time."""
    draw = random.Random(seed)
    for name in ("factory", *NAMES):
        small_bundle([variant(name, "ort")]).save(folder / f"{name}.edgekit")
    logs = [folder / "log.0", folder / "log.1"]
    kills = 0
    running: list[subprocess.Popen[str] | None] = [None, None]
    store = Store(folder / "store", folder / "factory.edgekit")
    try:
        while True:
            ended = sum(log.read_bytes().count(b"!") for log in logs if log.exists())
            for number, log in enumerate(logs):
                if running[number] is None:
                    given = [str(folder), str(draw.randrange(1 << 30)), str(log)]
                    command = [sys.executable, __file__, "--work", *given]
                    running[number] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            time.sleep(draw.uniform(0.5, 4.0))
            for child in running:
                assert child is not None
                if child.poll() is not None:
                    raise AssertionError(child.communicate()[1])
            if ended >= operations:
                return ended, kills
            number = draw.randrange(2)
            child = running[number]
            assert child is not None
            child.kill()
            child.communicate()
            running[number] = None
            kills += 1
            check(store, folder)
    finally:
        for child in running:
            if child is not None:
                child.kill()
                child.communicate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(Path(asked.work[0]), int(asked.work[1]), Path(asked.work[2]))
        return
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        os.environ["EDGEKIT_CACHE"] = str(Path(place) / "cache")
        ended, kills = soak(Path(place), asked.operations, asked.seed)
        state = Store(Path(place) / "store", Path(place) / "factory.edgekit").state
    seconds = time.perf_counter() - began
    print(f"{ended} operations of two processes, {kills} kills, {state.serial} states, {seconds:.0f} s")


if __name__ == "__main__":
    main()
