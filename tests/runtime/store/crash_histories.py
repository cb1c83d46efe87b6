"""Operations of a store, drawn at random or given, recorded for the crash model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from edgekit.bundle import Bundle
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import small_bundle, variant
from tests.runtime.store.crash_model import Killed, Operation, Recorder

NAMES = "abcdef"
SHORT = ("install a", "begin", "confirm", "install b", "begin", "confirm", "install c", "begin", "give up")
"""Each kind of change once, and the removal of a file."""
KILLED = ("install a", "begin", "confirm", "!install b", "install b", "begin")
"""``!``: killed when the slot has its name, and before that is flushed."""
MOVES = ("install", "install", "begin", "begin", "begin", "confirm", "confirm", "give up", "!install")


class History:
    """What was done to a store."""

    def __init__(self, folder: Path, moves: Sequence[str], name: str | None = None) -> None:
        self.folder, self.name = folder, name
        self.states = "store" if name is None else f"store/models/{name}"
        outside = folder / "outside"
        outside.mkdir()
        self.factory = small_bundle([variant("factory", "ort")]).save(outside / "factory.edgekit")
        self._paths = {
            each: small_bundle([variant(each, "ort")]).save(outside / f"{each}.edgekit") for each in NAMES
        }
        self.bundles = {Bundle.open(path).digest: path.read_bytes() for path in self._paths.values()}
        recorder = Recorder(folder)
        store = self.store()
        for move in moves:
            store = self._moved(store, move, recorder)
        self.operations: list[Operation] = recorder.operations

    def store(self, folder: Path | None = None) -> Store:
        """The store, or one like it in another folder."""
        return Store((folder or self.folder) / "store", self.factory, name=self.name)

    def _moved(self, store: Store, move: str, recorder: Recorder) -> Store:
        what, _, bundle = move.partition(" ")
        if what == "begin":
            recorder.record(store.begin)
        elif what == "confirm":
            recorder.record(lambda: store.confirm(store.state.current))
        elif move == "give up":
            recorder.record(lambda: store.give_up("slow", store.state.current))
        elif what == "install":
            recorder.record(lambda: store.install(self._paths[bundle]))
        else:
            return self._killed(store, self._paths[bundle], recorder)
        recorder.done(store.state)
        return store

    def _killed(self, store: Store, path: Path, recorder: Recorder) -> Store:
        """Killed before the slots' folder is flushed: a new process goes on."""
        recorder.stop_before = "flush folder", f"{store.root.name}/slots"
        try:
            recorder.record(lambda: store.install(path))
        except Killed:
            pass
        finally:
            recorder.stop_before = None
        return self.store()


def drawn(draw: random.Random, length: int) -> list[str]:
    """So many moves at random."""
    return [
        f"{move} {draw.choice(NAMES)}" if "install" in move else move
        for move in draw.choices(MOVES, k=length)
    ]
