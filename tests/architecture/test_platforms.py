"""No call that Windows or macOS lacks is made without asking for the system first.

What the standard library has on each system is read from the stubs that mypy brings. A use of it is guarded
if ``sys.platform`` or ``hasattr`` is asked around it, or before it in its function, or if an AttributeError
or ImportError is caught. Whether the guard names the right system is mypy's part, in ``make types``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("edgekit", "targets") for path in (ROOT / folder).rglob("*.py"))
LINUX_ONLY = {
    "edgekit/runtime/loading/worker.py",
    "edgekit/serve/frigate/server.py",
    "edgekit/serve/frigate/worker.py",
    "edgekit/serve/frigate/worker_process.py",
    "edgekit/system/landlock.py",
    "edgekit/system/seccomp.py",
    "targets/edgekit_tflite/device/delegates.py",
}
"""Modules whose functions ask for the system first, for all others in the file."""
MODULES = (
    "asyncio/streams",
    "mmap",
    "os/__init__",
    "select",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "time",
)
ABSENT = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
"""Modules that Windows has not at all: their import is what needs a guard."""
METHODS = {"add_signal_handler", "send_signal"}
"""Methods that raise on Windows, except for signals that it has."""
KEYWORDS = {"pass_fds", "preexec_fn"}
"""Arguments of subprocess.Popen that raise on Windows."""
OLDEST = (3, 10)
CAUGHT = {"AttributeError", "ImportError", "ModuleNotFoundError", "Exception"}


@cache
def names_of(stub: str, platform: str) -> set[str]:
    """Return the names that a module has on a system, with the oldest Python that EdgeKit runs on."""
    import mypy

    path = Path(mypy.__file__).parent / "typeshed" / "stdlib" / f"{stub}.pyi"
    return set(_defined(ast.parse(path.read_text("utf-8")).body, platform))


def _defined(body: list[ast.stmt], platform: str) -> Iterator[str]:
    for each in body:
        if isinstance(each, ast.If):
            holds = eval(ast.unparse(each.test), {"sys": _System(platform)})
            yield from _defined(each.body if holds else each.orelse, platform)
        elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield each.name
        elif isinstance(each, (ast.Import, ast.ImportFrom)):
            yield from (name.asname or name.name for name in each.names)
        elif isinstance(each, ast.AnnAssign):
            yield ast.unparse(each.target)
        elif isinstance(each, ast.Assign):
            yield from map(ast.unparse, each.targets)


class _System:
    version_info = OLDEST

    def __init__(self, platform: str) -> None:
        self.platform = platform


@cache
def missing() -> dict[str, set[str]]:
    """Return the names of each module that Linux has, and Windows or macOS has not."""
    found = {}
    for stub in MODULES:
        everywhere = names_of(stub, "win32") & names_of(stub, "darwin")
        found[stub.partition("/")[0]] = names_of(stub, "linux") - everywhere
    return found


def uses(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield each node that needs a guard, and its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = node.value.id
            if node.attr in missing().get(module, ()):
                yield node, f"{module}.{node.attr}"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or node.names[0].name
            lacks = missing().get(module, set())
            if module in ABSENT:
                yield node, f"import {module}"
            elif isinstance(node, ast.ImportFrom) and lacks & {name.name for name in node.names}:
                yield node, f"from {module} import"
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", "")
            if called in METHODS:
                yield node, called
            elif called == "CDLL" and node.args and getattr(node.args[0], "value", "") is None:
                yield node, "CDLL(None)"
            yield from ((node, word.arg) for word in node.keywords if word.arg and word.arg in KEYWORDS)


def is_guarded(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    while (parent := parents.get(node)) is not None:
        if isinstance(parent, (ast.If, ast.IfExp)) and node is not parent.test and _asks(parent.test):
            return True
        if isinstance(parent, ast.BoolOp) and node is not parent.values[0] and _asks(parent.values[0]):
            return True
        if isinstance(parent, ast.Try) and node in parent.body:
            caught = [_names(handler.type) for handler in parent.handlers]
        else:
            caught = [_names(item) for item in getattr(parent, "items", ()) if node in parent.body]  # type: ignore[attr-defined]
        if any(CAUGHT & names for names in caught):
            return True
        for block in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and node in block and any(map(_leaves, block[: block.index(node)])):
                return True
        node = parent
    return False


def _names(node: ast.AST | None) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node else set()


def _asks(test: ast.AST) -> bool:
    text = ast.unparse(test)
    return "sys.platform" in text or "hasattr(" in text


def _leaves(statement: ast.stmt) -> bool:
    """Return whether a statement ends a function, or a module, by the system."""
    if isinstance(statement, ast.Assert):
        return _asks(statement.test)
    ends = isinstance(statement, ast.If) and isinstance(statement.body[-1], (ast.Return, ast.Raise))
    return ends and _asks(statement.test)  # type: ignore[attr-defined]


def unguarded(source: str) -> list[str]:
    tree = ast.parse(source)
    found = list(uses(tree))
    if not found:
        return []
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return [
        f"{node.lineno}: {name}"  # type: ignore[attr-defined]
        for node, name in found
        if not is_guarded(node, parents)
    ]


def test_the_stubs_are_read() -> None:
    assert {"fork", "killpg", "geteuid", "sched_getaffinity", "waitid", "nice"} <= missing()["os"]
    assert {"SIGKILL", "SIGALRM", "setitimer"} <= missing()["signal"]
    assert {"start_unix_server", "open_unix_connection"} <= missing()["asyncio"]
    assert not missing()["os"] & {"replace", "kill", "O_RDONLY", "cpu_count"}


def test_what_a_system_lacks_is_guarded() -> None:
    found = {
        str(path.relative_to(ROOT)): faults
        for path in SOURCES
        if path.relative_to(ROOT).as_posix() not in LINUX_ONLY
        and (faults := unguarded(path.read_text("utf-8")))
    }
    assert found == {}
