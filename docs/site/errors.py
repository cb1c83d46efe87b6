"""The page of errors: the classes of edgekit/errors.py and the codes of findings, each with an example."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from docs.site.commands import prose
from docs.site.error_examples import CLASSES, CODES
from edgekit import diagnostics as findings
from edgekit import errors
from edgekit.errors import EdgeKitError

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = 5
"""So many folders that make an error are named."""

INTRODUCTION = """# Errors

An error that you can fix is one message and no traceback: what is wrong, where, why, and what to do. On
the command line it ends with the exit code below; with `--json` the object on stdout names its class. In
Python, all of them are `edgekit.EdgeKitError`. Anything else that escapes is a bug and keeps its traceback;
please report it.

Made from `edgekit/errors.py`, from `edgekit/diagnostics.py`, and from the places where each is made.
"""
FINDINGS = """## Findings

What `edgekit check` and `build` say of one node or input of the model. An error keeps the model from being
built for that target; warnings and notes go into the report.
"""


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of EdgeKit and its targets, by its path in the repository."""
    paths = sorted([*(ROOT / "edgekit").rglob("*.py"), *(ROOT / "targets").rglob("*.py")])
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_bytes()) for path in paths}


def classes() -> list[type[EdgeKitError]]:
    """The root and every error below it that edgekit/errors.py has, in its order."""
    found = [each for each in vars(errors).values() if inspect.isclass(each)]
    return [each for each in found if issubclass(each, EdgeKitError)]


@cache
def makers() -> dict[str, Counter[str]]:
    """Class name -> the modules that make such an error, and in how many places."""
    names = {each.__name__ for each in classes()}
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                found[node.func.id][path] += 1
    return found


def _tree(of: type[EdgeKitError], depth: int = 0) -> Iterator[str]:
    yield f"{'  ' * depth}{of.__name__}"
    for each in classes():
        if of in each.__bases__:
            yield from _tree(each, depth + 1)


def _where(name: str) -> str:
    """The folders that make the error, those with most places first."""
    counted: Counter[str] = Counter()
    for path, places in makers()[name].items():
        counted[path.rpartition("/")[0]] += places
    total, more = counted.total(), len(counted) - FOLDERS
    listed = ", ".join(f"`{folder}/` ({places})" for folder, places in counted.most_common(FOLDERS))
    also = f", and {more} more folders" if more > 1 else ", and one more folder" if more == 1 else ""
    return f"{total} {'place' if total == 1 else 'places'}: {listed}{also}"


def class_section(each: type[EdgeKitError]) -> str:
    name = each.__name__
    text = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:")[0]
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    said = [paragraph.replace("``", "`") for paragraph in paragraphs]
    if each is EdgeKitError:
        return "\n\n".join([f"## {name}", *said]) + "\n"
    example = CLASSES[name]
    facts = [f"Exit code {each.exit_code}."]
    if each.__bases__[0] is not EdgeKitError:
        base = each.__bases__[0].__name__
        facts.append(f"It is a [{base}](#{base.lower()}).")
    return "\n".join(
        [
            f"## {name}\n",
            "\n\n".join([*said, " ".join(facts)]) + "\n",
            f"```text\n{example.message}\n```\n",
            f"**What to do:** {example.remedy}\n",
            f"Made in {_where(name)}.\n",
        ]
    )


def codes() -> dict[str, tuple[str, str]]:
    """Code of a finding -> its severity and its meaning, as edgekit/diagnostics.py lists them."""
    rows = re.findall(r"^(EK\d+) +(\w+) +(.+)$", findings.__doc__ or "", re.MULTILINE)
    return {code: (severity, meaning) for code, severity, meaning in rows}


def code_section(code: str, severity: str, meaning: str) -> str:
    example = CODES[code]
    return (
        f"### {code}\n\n{severity.capitalize()}: {prose(meaning)}.\n\n"
        f"```text\n{example.message}\n```\n\n**What to do:** {example.remedy}\n"
    )


def errors_page() -> str:
    tree = "\n".join(_tree(EdgeKitError))
    return "\n".join(
        [
            INTRODUCTION,
            f"```text\n{tree}\n```\n",
            *(class_section(each) for each in classes()),
            FINDINGS,
            *(code_section(code, *row) for code, row in codes().items()),
        ]
    )
