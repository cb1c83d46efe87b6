"""Why torch.export can't trace a module, without torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.compiler.importers.pytorch import _untraceable


def raised(forward: Any) -> Exception:
    with pytest.raises(RuntimeError) as error:
        forward()
    return error.value


def test_the_line_of_a_branch_on_values() -> None:
    def forward() -> None:
        raise RuntimeError("Could not guard on data-dependent expression Eq(u0, 1)")

    line = forward.__code__.co_firstlineno + 1
    assert _untraceable(SimpleNamespace(), raised(forward)) == (
        f"a branch or a size depends on the values of a tensor (test_untraceable.py, line {line}), which "
        "torch.export can't trace: write the branch with torch.where, or keep that part outside the module"
    )


def test_an_error_without_a_traceback() -> None:
    problem = RuntimeError("a data-dependent size")
    assert "the values of a tensor, which torch.export can't trace" in _untraceable(
        SimpleNamespace(), problem
    )


def test_other_errors_have_no_known_reason() -> None:
    module = SimpleNamespace(modules=list)
    assert _untraceable(module, RuntimeError("broken")) == ""
