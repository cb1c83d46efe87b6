"""Remove or negate random statements of a room, and print those that no test of the room notices.

    python -m tests.mutation.run edgekit/runtime/store targets/edgekit_ort [--count 20] [--seed 7]

A room is a folder or a file of the product; its tests are the folder of the same path below ``tests``. The
tree is copied to a temporary folder. There one statement after the other becomes ``pass``, or the condition
of an ``if`` or ``while`` is negated, and the room's tests run until one fails. A survivor is a statement that
is not needed, or one without a test. The default seed is the day: each night draws other statements.

The exit status is 2 if a room's tests do not pass without a change. Survivors are printed; they are no error.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "edgekit", "targets", "tests", "samples", "docs", ".github",
    "setup.cfg", "pyproject.toml", "README.md", "CONTRIBUTING.md", "LICENSE",
)  # fmt: skip
REMOVED = (ast.Assign, ast.AugAssign, ast.Continue, ast.Expr, ast.Raise, ast.Return)
NEGATED = (ast.If, ast.While)


class Mutation(NamedTuple):
    """Part of a source line range, and its replacement."""

    line: int
    begin: int
    end: int
    instead: str


def mutations(source: str) -> Iterator[Mutation]:
    """Yield a mutation for each statement of the functions of a file.

    >>> text = "def f(x):\\n    if x:\\n        x += 1\\n    return x\\n"
    >>> [(each.line, each.instead) for each in mutations(text)]
    [(2, 'not (x)'), (4, 'pass'), (3, 'pass')]
    """
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    statements = {id(node): node for function in functions for node in list(ast.walk(function))[1:]}
    for node in statements.values():
        part: ast.stmt | ast.expr
        if isinstance(node, NEGATED):
            part = node.test
        elif isinstance(node, REMOVED) and not is_text(node):
            part = node
        else:
            continue
        begin = starts[part.lineno - 1] + part.col_offset
        end = starts[(part.end_lineno or part.lineno) - 1] + (part.end_col_offset or 0)
        text = source.encode()[begin:end].decode()
        yield Mutation(node.lineno, begin, end, f"not ({text})" if isinstance(node, NEGATED) else "pass")


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring, or the text below an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def tests_of(path: Path) -> Path:
    """Return the nearest test folder of a product file or folder, relative to the root.

    >>> tests_of(Path("targets/edgekit_ort/run.py")).as_posix()
    'tests/targets/ort'
    """
    first, *rest = path.parts
    parts = ["targets", rest[0].removeprefix("edgekit_"), *rest[1:]] if first == "targets" else rest
    folder = Path("tests", *parts)
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    return folder


def copy_to(tree: Path) -> None:
    """Copy what the tests need to an empty folder."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, tree / name)


def passes(tree: Path, tests: Path, first: Path | None, limit_s: float) -> bool:
    """Return whether the tests of a folder of the copied tree pass. A test that hangs does not."""
    names = [str(path) for path in (first, tests) if path is not None and (tree / path).exists()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *names]
    environment = {
        "EDGEKIT_SHARED": str(ROOT.parent / "shared"),
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "targets")]),
    }
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="+", type=Path, help="folders or files of edgekit/ and targets/")
    parser.add_argument("--count", type=int, default=20, help="mutations of each room")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--limit-s", type=float, default=900.0, help="longest run of a room's tests")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}")
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        copy_to(tree)
        for room in given.rooms:
            tests = tests_of(room)
            if not passes(tree, tests, None, given.limit_s):
                print(f"{room}: {tests} does not pass without a change")
                return 2
            files = sorted((ROOT / room).rglob("*.py")) if (ROOT / room).is_dir() else [ROOT / room]
            pairs = [
                (path.relative_to(ROOT), m) for path in files for m in mutations(path.read_text("utf-8"))
            ]
            chosen, survivors = draw.sample(pairs, min(given.count, len(pairs))), 0
            for path, mutation in chosen:
                source = (ROOT / path).read_bytes()
                changed = source[: mutation.begin] + mutation.instead.encode() + source[mutation.end :]
                (tree / path).write_bytes(changed)
                nearest = tests_of(path.parent) / f"test_{path.stem}.py"
                if passes(tree, tests, nearest, given.limit_s):
                    survivors += 1
                    statement = source[mutation.begin : mutation.end].decode().splitlines()[0]
                    print(f"survives  {path}:{mutation.line}: {statement} -> {mutation.instead}", flush=True)
                (tree / path).write_bytes(source)
            print(f"{room}: {survivors} of {len(chosen)} mutations survive {tests}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
