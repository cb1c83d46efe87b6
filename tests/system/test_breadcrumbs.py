"""What a process left behind is read after its death, whatever it is."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.errors import EngineError
from edgekit.system import breadcrumbs

CHILD = """
import os, sys
from pathlib import Path
from edgekit.system import breadcrumbs
breadcrumbs.enter("nobody asked for this")
breadcrumbs.leave_in(Path(sys.argv[1]))
breadcrumbs.enter("checked")
with breadcrumbs.at_risk("one"):
    pass
with breadcrumbs.at_risk(sys.argv[2]):
    assert breadcrumbs.last() == breadcrumbs.read(Path(sys.argv[1]).read_bytes())
    os.abort()
"""


@pytest.mark.parametrize(("place", "read"), [("node é (Div)", "node é (Div)"), ("", ""), ("n" * 9000, None)])
def test_the_last_crumb_survives(tmp_path: Path, place: str, read: str | None) -> None:
    path = tmp_path / "crumbs"
    path.write_bytes(bytes(breadcrumbs.SIZE_BYTES))
    done = subprocess.run([sys.executable, "-c", CHILD, str(path), place], check=False)
    assert done.returncode != 0
    count, stage, found = breadcrumbs.read(path.read_bytes())
    assert (count, stage) == (4, "checked")
    assert found == (place[: len(found)] if read is None else read)
    assert len(found) > 2000 or read is not None


def test_without_a_file_nothing_is_left() -> None:
    breadcrumbs.enter("stage")
    with breadcrumbs.at_risk("step"):
        pass
    assert breadcrumbs.last() == (0, "", "")


@pytest.mark.parametrize("step", ["all, l4", "ü" * 5000])
def test_a_step_that_ended_a_process_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    for name in ("_shared", "_deaths", "_place"):
        monkeypatch.setattr(breadcrumbs, name, getattr(breadcrumbs, name))
    path = tmp_path / "crumbs"
    path.write_bytes(bytes(breadcrumbs.SIZE_BYTES))
    breadcrumbs.leave_in(path)
    with breadcrumbs.at_risk("int8"), breadcrumbs.at_risk(step):
        left = breadcrumbs.read(path.read_bytes())[2]
    assert breadcrumbs.read(path.read_bytes())[2] == ""
    breadcrumbs.leave_in(path, {left: "its process was killed by SIGSEGV"})
    with breadcrumbs.at_risk(step), breadcrumbs.at_risk("int8"):  # others of these names
        assert not breadcrumbs.has_ended(step)
    with breadcrumbs.at_risk("int8"):
        assert breadcrumbs.has_ended(step)
        with (
            pytest.raises(EngineError, match=r"^its process was killed by SIGSEGV$"),
            breadcrumbs.at_risk(step),
        ):
            raise AssertionError
        assert breadcrumbs.last()[2] == "int8"


def test_any_bytes_can_be_read() -> None:
    chance = random.Random(0)
    for size in range(0, 3 * breadcrumbs.SIZE_BYTES, 97):
        _, stage, place = breadcrumbs.read(chance.randbytes(size))
        assert len(stage) + len(place) <= 2 * breadcrumbs.SIZE_BYTES
    full = os.urandom(8) + b"\xff" * 8 + bytes(breadcrumbs.SIZE_BYTES)
    assert len(breadcrumbs.read(full)[1]) < breadcrumbs.SIZE_BYTES
