from __future__ import annotations

import pytest

from edgekit.cli import main
from edgekit.cli.command_group import SECTIONS, VERBS
from tests.fixtures.command_line import Call


def test_the_help_lists_the_verbs_by_section_in_the_order_of_their_use(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = call("--help").stdout
    headings = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":")]
    assert headings == ["Options", *SECTIONS]
    lines = [line for line in text.split(f"{headings[1]}:")[1].splitlines() if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == list(VERBS)
    assert sorted(VERBS) == sorted(main.commands)
    assert len({line.index(line.split()[1], 12) for line in lines}) == 1  # one column for all sections
    assert not any(line.endswith("...") for line in lines)
