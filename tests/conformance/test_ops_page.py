"""The table of operators in the documentation is what the grid gives."""

from __future__ import annotations

import pytest

from tests.conformance.ops_page import PAGE, page


@pytest.mark.needs_ort
def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.conformance.ops_page"
