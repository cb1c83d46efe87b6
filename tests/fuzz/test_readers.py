"""The short form of ``python -m tests.fuzz.readers``, and that it finds what is planted."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.readers import ROOT, Fault, share_of

CASES = 2000
SLOW = "s of processor time"
PLANTED = """
import os, signal, sys
from pathlib import Path
from tests.fuzz import readers, targets

def read(content):
    what = content.decode()
    if what == "traceback":
        raise KeyError(what)
    if what == "outside":
        Path("../outside.txt").write_text("x")
    if what == "link":
        os.symlink("a", sys.argv[1] + "-link")
    if what == "hang":
        while True: pass
    if what == "memory":
        bytearray(2 << 30)
    if what == "end":
        os.kill(os.getpid(), signal.SIGSEGV)
    return "read"

KINDS = ["fine", "traceback", "outside", "link", "hang", "memory", "end"]
targets.targets = lambda folder: {
    kind: targets.Target(1 if kind == "end" else 4, lambda draw, kind=kind: kind.encode(), read)
    for kind in KINDS
}
readers.HANG_S = 0.2
folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
os.chdir(folder)
readers._work(folder, range(*map(int, sys.argv[2:4])), 1)
"""


def test_readers_refuse_or_read_2000_mutations(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("cryptography")
    pytest.importorskip("zstandard")
    counts: Counter[str] = Counter()
    faults = []
    for found in share_of(tmp_path / "work", range(CASES), 0):
        if isinstance(found, Fault):
            if not found.what.endswith(SLOW):  # of a clock, which a test does not judge
                faults.append(found)
        else:
            counts.update(found)
    assert faults == []
    assert counts.total() == CASES
    assert len({key.rpartition(" ")[0] for key in counts}) == 30  # each reader had its turn
    assert min(counts[f"{name} read"] for name in ("bundle", "manifest", "signature", "state of a store")) > 5


def test_what_is_planted_is_told(tmp_path: Path) -> None:
    at, found = 0, []
    while at < 40:
        command = [sys.executable, "-c", PLANTED, str(tmp_path / "work"), str(at), "40"]
        child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found += [line for line in child.stdout.splitlines() if line.startswith("[")]
        if child.returncode == 0:
            break
        at = int((tmp_path / "work.at").read_text()) + 1
        found.append(f'"end" ended with {child.returncode}')
    told = "\n".join(found)
    for kind, words in {
        "traceback": "KeyError: 'traceback'",
        "outside": "outside: ",
        "link": "os.symlink",
        "hang": "more than 0.2 s",
        "memory": "MemoryError",
        "end": "ended with -11",
    }.items():
        assert any(f'"{kind}"' in line and words in line for line in found), (kind, told)
    assert '"fine"' not in told
