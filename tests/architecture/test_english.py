"""Rules of plain English that a program can check: openings of docstrings and of help texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from edgekit.cli.command_group import all_verbs

ROOT = Path(__file__).resolve().parents[2]
OPENINGS = {
    *("Of", "As", "What", "Which", "Who", "Whom", "Whose", "Where"),
    *("How", "By", "Nothing", "That", "If", "Whether"),
}
"""No text opens so; a function's opens with a verb, a class's or a module's with a noun."""
ELSEWHERE = ("The reverse of",)
Documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


def opens_badly(text: str) -> bool:
    """Return whether a text opens with a word that names neither an action nor a thing.

    >>> opens_badly("Of a language model: longest text."), opens_badly("Return the offset.")
    (True, False)
    """
    first = re.match(r"\w+", text)
    return (first is not None and first[0] in OPENINGS) or text.startswith(ELSEWHERE)


def docstrings(source: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each module, class and function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", "module"), text


@pytest.mark.parametrize("folder", ["edgekit", "targets"])
def test_docstrings_open_with_a_verb_or_a_noun(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} {name}: {text.splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, text in docstrings(path.read_text("utf-8"))
        if opens_badly(text)
    ]
    assert wrong == []


def test_help_opens_with_a_verb_or_a_noun() -> None:
    wrong = []
    for verb, command in all_verbs().items():
        options = [option for option in command.params if isinstance(option, click.Option)]
        texts = [command.help, *(option.help for option in options)]
        wrong += [f"{verb}: {text}" for text in texts if not text or opens_badly(text)]
    assert wrong == []


def test_a_bad_opening_is_seen() -> None:
    source = '"""What is here."""\ndef a():\n    """As ``b``."""\nclass C:\n    """A thing."""\n'
    assert [name for name, text in docstrings(source) if opens_badly(text)] == ["module", "a"]
