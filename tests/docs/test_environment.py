"""docs/environment.md has a row for every environment variable that the code reads."""

from __future__ import annotations

import ast
import re

from tests.docs.documents import ROOT

PAGE = (ROOT / "docs" / "environment.md").read_text("utf-8")
ROWS = [row.strip("| ").split(" | ") for row in re.findall(r"^\| `.*$", PAGE, re.MULTILINE)]
NAMES = [name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])]
NOT_SETTINGS = {"HOME", "LD_LIBRARY_PATH", "PATH", "TERM"}
"""Variables of the system, which mean the same for EdgeKit as for every program."""


def read_by(tree: ast.Module) -> set[str]:
    """Return the variables that a module reads, named as text or by a constant of the module."""
    constants = {
        target.id: value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for targets, values in [(node.targets[0], node.value)]
        for target, value in (
            zip(targets.elts, values.elts, strict=False)
            if isinstance(targets, ast.Tuple) and isinstance(values, ast.Tuple)
            else [(targets, values)]
        )
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    found = set()
    for node in ast.walk(tree):
        key: ast.expr | None = None
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "os.environ.get",
            "os.environ.setdefault",
            "os.getenv",
        ):
            key = node.args[0]
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node.value) == "os.environ"
        ):
            key = node.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.add(key.value)
        elif isinstance(key, ast.Name) and key.id in constants:
            found.add(constants[key.id])
    return found


def test_every_variable_that_the_code_reads_has_a_row() -> None:
    files = (path for folder in ("edgekit", "targets") for path in (ROOT / folder).rglob("*.py"))
    texts = (path.read_text("utf-8") for path in files)
    read = {name for text in texts if "environ" in text for name in read_by(ast.parse(text))}
    assert {"EDGEKIT_CACHE", "ORT_DISABLE_TELEMETRY"} <= read
    assert read - NOT_SETTINGS - set(NAMES) == set()


def test_every_variable_of_the_project_has_one_row_and_every_row_a_variable() -> None:
    folders = ("edgekit", "targets", "tests", "samples")
    files = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in ("", ".py"))
    texts = [path.read_text("utf-8", "replace") for path in files if path.is_file()]
    used = {name for text in texts for name in re.findall(r"\bEDGEKIT_[A-Z0-9_]+", text)}
    documented = [name for name in NAMES if name.startswith("EDGEKIT_")]
    assert sorted(documented) == sorted(used)


def test_every_row_has_a_meaning() -> None:
    assert len(ROWS) > 15
    assert [row for row in ROWS if len(row) < 3 or len(row[1]) < 10] == []


def test_a_variable_that_is_read_by_a_constant_is_found() -> None:
    tree = ast.parse(
        'import os\nA, B = "ONE", "TWO"\nos.environ.get(B)\nprint(os.environ["THREE"])\nos.environ["A"] = ""'
    )
    assert read_by(tree) == {"TWO", "THREE"}
