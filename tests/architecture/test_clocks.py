"""No test asserts how long something took: on a busy machine it would fail without a fault.

A test that waits for an event within a generous limit (``while not done: assert time.monotonic() < end``) is
fine: it ends with the event. Times are in tests/benchmarks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
CLOCKS |= {f"{clock}_ns" for clock in CLOCKS}
TESTS = [path for path in sorted(ROOT.glob("tests/**/*.py")) if "benchmarks" not in path.parts]


def durations(text: str) -> Iterator[int]:
    """Yield the lines of assertions that contain the difference of two readings of a clock."""
    tree = ast.parse(text)
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            readings = names_of(scope, is_reading, set())
            intervals = names_of(scope, is_interval, readings)
            for node in statements(scope):
                if isinstance(node, ast.Assert) and any(
                    is_interval(part, readings) or (isinstance(part, ast.Name) and part.id in intervals)
                    for part in ast.walk(node.test)
                ):
                    yield node.lineno


def statements(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield child
            yield from statements(child)


def names_of(scope: ast.AST, is_kind: object, readings: set[str]) -> set[str]:
    """Return the names to which a value of a kind is assigned, also one of a tuple."""
    found: set[str] = set()
    for node in statements(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    if isinstance(name, ast.Name) and is_kind(value, readings):  # type: ignore[operator]
                        found.add(name.id)
    return found


def is_reading(node: ast.AST, _: set[str]) -> bool:
    """Return whether a node calls a clock."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCKS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "time"
    )


def is_interval(node: ast.AST, readings: set[str]) -> bool:
    """Return whether a node is the difference of two readings."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and all(
            is_reading(side, readings) or (isinstance(side, ast.Name) and side.id in readings)
            for side in (node.left, node.right)
        )
    )


def test_no_test_asserts_how_long_something_took() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for path in TESTS
        if "import time" in (text := path.read_text("utf-8"))
        for line in durations(text)
    ] == []
