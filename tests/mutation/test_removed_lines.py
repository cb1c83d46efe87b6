"""The table of lines that must not be lost names what is there; ``removed_lines.py`` removes them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation import removed_lines
from tests.mutation.removal import TO_COME, Removal
from tests.mutation.removed_lines import REMOVALS, ROOT, removed


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda r: f"{r.file}:{r.lines.partition(chr(10))[0][:40]}")
def test_every_line_still_exists_and_every_test_too(removal: Removal) -> None:
    text = (ROOT / removal.file).read_text("utf-8")
    changed = removed(text, removal)
    ast.parse(changed)  # a fault of syntax would be noticed by every test
    for test in removal.tests:
        if test != TO_COME:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text("utf-8")


def test_a_line_that_is_gone_or_ambiguous_is_an_error() -> None:
    with pytest.raises(ValueError, match="file: found 2 times, must be once: 'a'"):
        removed("a a", Removal("file", "a", ()))
    with pytest.raises(ValueError, match="found 0 times"):
        removed("b", Removal("file", "a", ()))


@pytest.mark.slow
def test_what_no_test_notices_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a tree of its own, one line of which is tested."""
    (tmp_path / "edgekit").mkdir()
    (tmp_path / "edgekit" / "__init__.py").write_text("value = 0\nvalue += 1\nother = 2\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(
        "import edgekit\ndef test_value():\n    assert edgekit.value == 1\n"
    )
    monkeypatch.setattr(removed_lines, "ROOT", tmp_path)
    monkeypatch.setattr(removed_lines, "COPIED", ("edgekit", "tests"))
    its = ("tests/test_it.py::test_value",)
    rows = [Removal("edgekit/__init__.py", line, its) for line in ("value += 1", "other = 2")]
    rows.append(Removal("edgekit/__init__.py", "value += 1", (TO_COME,)))
    rows.append(Removal("edgekit/__init__.py", "value += 1", its, "syntax error"))
    for chosen, code, said in (
        (rows[:1], 0, "1 removals, 0 survivors, 0 that cannot be told"),
        (rows[:3], 1, "3 removals, 2 survivors, 0 that cannot be told"),
        (rows, 2, "4 removals, 2 survivors, 1 that cannot be told"),
    ):
        monkeypatch.setattr(removed_lines, "REMOVALS", chosen)
        assert removed_lines.main([]) == code
        assert said in capsys.readouterr().out
