"""Rules of plain English that a program can check: openings, negations, and one meaning for a class name.

A finding is a warning in the summary of the run, not a failure: a name is for its reader to judge.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
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
ENTRY = re.compile(
    rf"^\s+\*{{0,2}}\w+(?:, \*{{0,2}}\w+)*: (?:{'|'.join(OPENINGS - {'If', 'Whether'})})\b", re.MULTILINE
)
"""An argument or attribute, in a docstring, whose description opens so."""
NEGATION = re.compile(
    r"(?<!here )\b(?:is|are) no (?!(?:longer|more|less|better|worse|faster|slower|larger)\b)[a-z]"
    r"|\b[Nn]one has\b"
)
"""Negated nouns, as in "is no JSON"; "there is no" and comparisons are English."""
SHARED_NAMES = {"Builder", "Op", "Value"}
"""Counterparts in the targets: each lowers ONNX to its own format, with these parts."""
RIDDLES = {
    *("said", "asked", "told", "heard", "seen", "found", "given", "wanted", "held", "kept", "known", "made"),
    *("taken", "moved", "turned", "got", "why", "why_not", "what", "who", "where", "when", "how", "which"),
    *("say", "tell", "hear", "see", "again", "here", "there", "these", "those", "each", "own", "thing"),
    *("beside", "besides", "among", "across", "inside", "into", "over", "by", "at", "of", "up", "but"),
    *("room", "least", "most", "usual", "few", "late", "stuck", "fresh", "good", "alone", "instead"),
}
"""Words that say nothing of a parameter or variable, which is named by a noun of the field, with its unit."""
KEPT_PARAMETERS = {"edgekit/runtime/gallery.py search: least"}
"""Parameters of users' code, whose names do not change for style."""
NOUN_OPENINGS = {
    *("The", "A", "An", "One", "Two", "Each", "Every", "Any", "All", "Another", "Its", "Those", "This", "It"),
    *(
        "Why",
        "When",
        "While",
        "For",
        "In",
        "With",
        "Without",
        "From",
        "Under",
        "Between",
        "Names",
        "Rows",
        "Indices",
    ),
}
"""No function's docstring opens so, but with a verb."""
Documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


def warn_of(findings: Iterable[str]) -> None:
    """Warn of each finding, with its place."""
    for finding in findings:
        warnings.warn(f"plain English: {finding}", stacklevel=2)


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
    warn_of(wrong)


def test_help_opens_with_a_verb_or_a_noun() -> None:
    wrong = []
    for verb, command in all_verbs().items():
        options = [option for option in command.params if isinstance(option, click.Option)]
        texts = [command.help, *(option.help for option in options)]
        wrong += [f"{verb}: {text}" for text in texts if not text or opens_badly(text)]
    warn_of(wrong)


Trees = list[tuple[str, ast.Module]]


@pytest.fixture(scope="module")
def trees() -> Trees:
    """The path and the syntax tree of each file of the product: 1.5 million objects, which every later
    garbage collection would visit (1.6 s)."""
    files = sorted(path for folder in ("edgekit", "targets") for path in (ROOT / folder).rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))) for path in files]


def bad_entries(text: str) -> list[str]:
    """Return the descriptions of arguments or attributes that do not name a thing.

    >>> bad_entries("Args:\\n    name: Of the file.\\n    size: Size of the file.")
    ['name: Of']
    """
    return [entry.strip() for entry in ENTRY.findall(text)]


def test_arguments_and_attributes_are_described_by_what_they_are(trees: Trees) -> None:
    wrong = [
        f"{path} {getattr(node, 'name', 'module')}: {entry}"
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, Documented)
        for entry in bad_entries(ast.get_docstring(node) or "")
    ]
    warn_of(wrong)


def test_verbs_are_negated_instead_of_nouns(trees: Trees) -> None:
    wrong = [
        f"{path}:{node.lineno}: {found[0]}"
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for found in [NEGATION.search(re.sub(r"\s+", " ", node.value))]
        if found
    ]
    warn_of(wrong)


def parameters(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the name of each function with the name of each of its parameters.

    >>> list(parameters(ast.parse("def load(path, *, what=1, **given): pass")))
    [('load', 'path'), ('load', 'what'), ('load', 'given')]
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            listed = node.args
            rest = [each for each in (listed.vararg, listed.kwarg) if each is not None]
            for each in (*listed.posonlyargs, *listed.args, *listed.kwonlyargs, *rest):
                yield node.name, each.arg


def test_parameters_are_named_by_nouns_of_the_field(trees: Trees) -> None:
    wrong = {
        f"{path} {function}: {name}"
        for path, tree in trees
        for function, name in parameters(tree)
        if name in RIDDLES
    }
    warn_of(sorted(wrong - KEPT_PARAMETERS))


def variables(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each variable, caught exception and argument of a lambda, without fields of classes.

    >>> list(variables(ast.parse("def load(self):\\n    found = lambda each: each")))
    ['found', 'each']
    """
    fields = {
        id(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node.name
        elif isinstance(node, ast.Lambda):
            yield from (argument.arg for argument in node.args.args)


def test_variables_are_named_by_nouns_of_the_field(trees: Trees) -> None:
    wrong = [f"{path}: {name}" for path, tree in trees for name in variables(tree) if name in RIDDLES]
    warn_of(wrong)


def test_docstrings_of_functions_open_with_a_verb(trees: Trees) -> None:
    """A property's may open with a noun."""
    wrong = [
        f"{path} {node.name}: {text.splitlines()[0]}"
        for path, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node))
        if text.split()[0] in NOUN_OPENINGS
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    warn_of(wrong)


def homonyms(classes: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the class names that several files define, with these files.

    >>> homonyms([("Limits", "a.py"), ("Step", "a.py"), ("Limits", "b.py"), ("Op", "a.py"), ("Op", "b.py")])
    {'Limits': ['a.py', 'b.py']}
    """
    places: dict[str, list[str]] = {}
    for name, path in classes:
        places.setdefault(name, []).append(path)
    return {name: at for name, at in places.items() if len(at) > 1 and name not in SHARED_NAMES}


def test_a_class_name_has_one_meaning(trees: Trees) -> None:
    classes = [
        (node.name, path) for path, tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    warn_of([f"class {name}: {', '.join(at)}" for name, at in homonyms(classes).items()])
