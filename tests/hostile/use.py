"""Does with each case of the corpus what a user would, in one child with limits, and tells what came of it.

    python -m tests.hostile.use FOLDER

A line of JSON for each: its name, kind of end, text, processor time and what was touched outside of FOLDER.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from edgekit.bundle import Bundle
from edgekit.cli import main
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.evaluate.text_files import read_line, text_lines
from edgekit.errors import EdgeKitError
from edgekit.processing import load_card
from edgekit.processing.card import parse_card
from edgekit.processing.sound_files import read_sound
from edgekit.runtime.store.bundle_store import Store
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.bundles import X
from tests.fixtures.keys import KINDS, key_files
from tests.fuzz.readers import Watched
from tests.hostile.corpus import CORPUS
from tests.hostile.samples import CARD

MEMORY_BYTES = 1 << 30
HANG_S = 60
INPUT = TensorSpec("x", "float32", X.shape)


class Outcome(NamedTuple):
    """What came of a case."""

    name: str
    end: str
    text: str
    outside: list[str]


def _verb(*words: str) -> Callable[[Path], str]:
    """A command: its error's text, where it is one and no traceback."""

    def use(path: Path) -> str:
        result = CliRunner().invoke(main, [words[0], str(path), *words[1:]])
        if not isinstance(result.exception, SystemExit):
            raise result.exception or AssertionError(f"it was accepted: {result.output}")
        assert result.exit_code in (1, 2), result.exit_code
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        return result.stderr

    return use


def _samples(path: Path, card: bool) -> object:
    described = parse_card(CARD) if card else None
    spec = TensorSpec("x", "float32", (1, 3, 8, 8)) if card else INPUT
    return [dict(sample) for sample in load_samples(str(path), [spec], described).arrays]


def _store(root: Path) -> str:
    """The factory's bundle is started; what the store says of the others."""
    store = Store(root, root.parent / "factory.edgekit")
    started = store.begin()
    assert started == store.factory, started
    said = [*store.notes, *(reason for _, reason in store.state.given_up)]
    return "\n".join(said)


def _refused(read: Callable[[Path], object]) -> Callable[[Path], str]:
    def use(path: Path) -> str:
        try:
            found = read(path)
        except EdgeKitError as problem:
            return str(problem)
        raise AssertionError(f"it was accepted: {found!r:.100}")

    return use


def uses(folder: Path) -> dict[str, Callable[[Path], str]]:
    """What is done with a case, by name."""
    _, public = key_files(folder, "key", KINDS["P-256"]())
    return {
        "inspect": _verb("inspect"),
        "stage": _refused(lambda path: Bundle.open(path).stage("s")),
        "card": _refused(load_card),
        "array": _refused(lambda path: _samples(path, card=False)),
        "picture": _refused(lambda path: _samples(path, card=True)),
        "video": _refused(lambda path: _samples(path, card=True)),
        "sound": _refused(read_sound),
        "text": _refused(lambda path: [read_line(line) for line in text_lines(path)]),
        "store": _store,
        "signature": _verb("verify", "--key", str(public)),
    }


def _hang(*_: object) -> None:
    raise TimeoutError(f"more than {HANG_S} s")


def main_of_child(folder: Path) -> None:
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    known, made = uses(folder), {}
    for number, (name, case) in enumerate(CORPUS.items()):
        own = folder / str(number)
        own.mkdir()
        made[name] = case.make(own)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    signal.signal(signal.SIGALRM, _hang)
    watched = Watched(folder)
    os.chdir(folder)
    for name, case in CORPUS.items():
        watched.outside.clear()
        end, text = "refused", ""
        signal.alarm(HANG_S)
        try:
            text = known[case.use](made[name])
        except BaseException:
            end = traceback.format_exc()
        signal.alarm(0)
        outcome = Outcome(name, end, text, watched.outside)
        print(json.dumps(outcome), file=told, flush=True)


if __name__ == "__main__":
    main_of_child(Path(sys.argv[1]))
