"""The runtime's public names: one table, each loaded when it is first used, each documented."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgekit.runtime
from tests.fixtures.child_processes import run_python

DOCUMENTS = [
    Path(__file__).resolve().parents[2] / "docs" / f"{name}.md"
    for name in (
        "runtime",
        "runtime-latency",
        "runtime-reuse",
        "remote",
        "outbox",
        "embeddings",
        "fleet",
        "speech",
        "text-to-text",
    )
]


def test_names_are_sorted_and_are_those_of_the_table() -> None:
    eager = {"Active", "Bundle", "Fallback", "Session"}
    assert set(edgekit.runtime.__all__) == eager | set(edgekit.runtime.LAZY)
    assert list(edgekit.runtime.LAZY) == sorted(edgekit.runtime.LAZY)
    assert dir(edgekit.runtime) == sorted(edgekit.runtime.__all__)


@pytest.mark.parametrize("name", edgekit.runtime.__all__)
def test_a_name_resolves_and_has_a_docstring(name: str) -> None:
    assert (getattr(edgekit.runtime, name).__doc__ or "").strip()


@pytest.mark.parametrize("name", sorted(edgekit.runtime.LAZY))
def test_a_name_is_documented(name: str) -> None:
    assert any(name in path.read_text("utf-8") for path in DOCUMENTS)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'edgekit\.runtime' has no attribute 'nothing'"):
        _ = edgekit.runtime.nothing


def test_importing_the_runtime_loads_none_of_them() -> None:
    script = (
        "import sys, edgekit.runtime as r\n"
        "lazy = {where.partition(':')[0] for where in r.LAZY.values()}\n"
        "print(*(module for module in lazy if f'edgekit.runtime.{module}' in sys.modules))"
    )
    done = run_python(script, check=True)
    assert done.stdout.split() == []
