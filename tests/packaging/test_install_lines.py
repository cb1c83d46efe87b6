"""Every line that tells how to install something: extras in one spelling, found out and not assumed."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("edgekit", "targets", "samples") for path in (ROOT / folder).rglob("*.py")
)
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WORD = r"('[a-z][a-z0-9_.-]*(\[[a-z,]+\])?([<>=]=?[0-9.]+)?'|[a-z][a-z0-9_.-]*|\{[a-z_]+\})"
PACKAGE = re.compile(rf"pip install {WORD}( {WORD})*$")
"""Packages alone, which any index has; one may be a variable."""
INSTALLED = "Where EdgeKit is installed, `pip install 'edgekit-sdk[ort]'` adds what another extra needs."


@cache
def extras() -> set[str]:
    text = (ROOT / "setup.cfg").read_text("utf-8")
    section = text[text.index("[options.extras_require]") :].split("\n[", 1)[0]
    return set(re.findall(r"^([a-z][a-z-]*) =", section, re.MULTILINE))


def test_code_names_extras_and_lets_errors_py_write_the_line() -> None:
    for path in SOURCES:
        if path == ROOT / "edgekit" / "errors.py":
            continue
        text = path.read_text("utf-8")
        assert "edgekit-sdk[" not in text, path
        for line in re.findall(r"""["'](pip install [^"\n]*)["']""", text):
            assert PACKAGE.match(line), (path, line)
        for extra in re.findall(r"""extra=["']([a-z-]+)["']""", text):
            assert extra in extras(), path


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_install_a_clone_or_a_wheel(path: Path) -> None:
    """The distribution is on no index; only where it is installed does its name do."""
    for line in path.read_text("utf-8").replace(INSTALLED, "").splitlines():
        if "pip install" in line:
            assert "edgekit-sdk" not in line, line
            wanted = {
                name for names in re.findall(r"(?:\.|whl)\[([a-z,-]+)\]'", line) for name in names.split(",")
            }
            assert wanted <= {*extras(), "test"}, line
