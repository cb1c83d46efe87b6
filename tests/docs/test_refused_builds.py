"""docs/refused-builds.md quotes messages that EdgeKit has."""

from __future__ import annotations

import re

import pytest

from docs.site.errors import sources
from tests.docs.documents import ROOT
from tests.docs.messages import is_said

TEXT = (ROOT / "docs" / "refused-builds.md").read_text("utf-8")
BLOCKS = re.findall(r"^```text\n(.*)", TEXT, re.MULTILINE)
CELLS = re.findall(r"^\| `([^`]+)` \|", TEXT, re.MULTILINE)


@pytest.mark.parametrize("message", [*BLOCKS, *CELLS])
def test_a_quoted_message_is_in_the_source(message: str) -> None:
    assert is_said(message, sources())


def test_the_page_quotes_messages() -> None:
    assert len(BLOCKS) >= 4
    assert len(CELLS) >= 16
