"""Power lost after any call of any operation: the store goes on from every state of the disk."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from tests.runtime.store.crash_histories import KILLED, SHORT, History, drawn
from tests.runtime.store.crash_model import REMOVABLE, Operation, crash_states, explored

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the recorder asks /proc for names")


def moves_of(which: str) -> Sequence[str]:
    return KILLED if which == "killed" else SHORT


@pytest.mark.parametrize("which", ["short", "killed", "named"])
def test_no_power_cut_loses_a_step_or_leaves_what_cannot_be_loaded(tmp_path: Path, which: str) -> None:
    history = History(tmp_path, moves_of(which), "reader" if which == "named" else None)
    count, wrong = explored(history.operations, history.states, history.bundles, random.Random(1))
    assert wrong == []
    assert count > 400


def test_random_histories(tmp_path: Path) -> None:
    draw, states = random.Random(2), 0
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        history = History(folder, drawn(draw, 12))
        count, wrong = explored(history.operations, history.states, history.bundles, draw)
        assert wrong == []
        states += count
    assert states > 5000


@pytest.mark.parametrize("which", ["short", "killed", "named"])
def test_without_any_one_flush_or_rename_a_step_is_lost(tmp_path: Path, which: str) -> None:
    history = History(tmp_path, moves_of(which), "reader" if which == "named" else None)
    needed = [n for n, operation in enumerate(history.operations) if operation.kind in REMOVABLE]
    assert {history.operations[n].kind for n in needed} == set(REMOVABLE)
    survived = []
    for number in needed:
        without = history.operations[:number] + history.operations[number + 1 :]
        _, wrong = explored(without, history.states, history.bundles, random.Random(3), 1)
        if not wrong:
            survived.append(history.operations[number])
    # Of several models: the root is flushed for its folder of slots, and once more for that of the models.
    assert survived == ([Operation("flush folder", "store")] if which == "named" else [])


def test_the_store_itself_starts_from_what_is_left(tmp_path: Path) -> None:
    """The model judges by the state files; here the store does, on the same files."""
    history = History(tmp_path, SHORT)
    draw = random.Random(4)
    starts = 0
    for number in draw.sample(range(len(history.operations)), 20):
        files = draw.choice(list(crash_states(history.operations[:number], draw)))
        place = tmp_path / f"after-{number}"
        for name, content in files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(content)
            path.chmod(0o600)
        with Bundle.open(history.store(place).begin()) as bundle:
            bundle.verify_entries()
            starts += bundle.digest in history.bundles
    assert starts > 5
