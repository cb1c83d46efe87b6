"""The tool finds a statement that no test needs, and none that a test needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation import run

pytestmark = pytest.mark.slow


def test_only_what_no_test_notices_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, text in (
        ("edgekit/__init__.py", ""),
        ("edgekit/room/__init__.py", ""),
        ("edgekit/room/sums.py", "def f(x):\n    if x < 0:\n        x = 0\n    y = 1\n    return x\n"),
        (
            "tests/room/test_sums.py",
            "from edgekit.room.sums import f\ndef test_f():\n    assert (f(-2), f(2)) == (0, 2)\n",
        ),
    ):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert run.main(["edgekit/room"]) == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("survives")] == [
        "survives  edgekit/room/sums.py:4: y = 1 -> pass"
    ]
    assert "edgekit/room: 1 of 4 mutations survive tests/room" in printed


def test_tests_that_fail_without_a_change_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "edgekit").mkdir()
    (tmp_path / "edgekit" / "it.py").write_text("def f():\n    return 1\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("def test_it():\n    assert False\n")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert run.main(["edgekit/it.py"]) == 2
