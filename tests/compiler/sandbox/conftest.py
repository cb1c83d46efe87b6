from __future__ import annotations

import pytest

from edgekit.compiler.sandbox.public import TRUSTED
from tests.cli.conftest import call

__all__ = ["call", "contained"]


@pytest.fixture(autouse=True)
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user has it; the other tests run in one process."""
    monkeypatch.delenv(TRUSTED, raising=False)
