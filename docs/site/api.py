"""The page of the Python API: the names of ``edgekit`` with their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import edgekit
from docs.site.commands import described, prose

INTRODUCTION = """# Python API

Made from the docstrings: what `help(edgekit.NAME)` prints. `edgekit.runtime` has the same `Session` on a
device, without the host side.
"""
MEMBERS = ("Bundle", "Card", "Finding", "Profile", "Session", "TextSession", "Variant")
"""Classes whose public methods and properties are listed."""
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$", re.MULTILINE)
_ROW = re.compile(r"^    (\S[^:\n]*): ", re.MULTILINE)


def signature_of(name: str, value: Any) -> str:
    """Return a signature as it is written, one argument a line if it is long; types without their modules."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    shown: list[str] = []
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for entry in signature.parameters.values():
        default = "" if entry.default is entry.empty else f" = {entry.default!r}"
        default = " = ..." if callable(entry.default) and default else default
        star = stars.get(entry.kind, "")
        if entry.kind is entry.KEYWORD_ONLY and "*" not in shown and not any(s[0] == "*" for s in shown):
            shown.append("*")
        if entry.name != "self":
            shown.append(f"{star}{entry.name}{_type_text(entry.annotation, ': ')}{default}")
    returned = _type_text(signature.return_annotation, " -> ")
    line = f"{name}({', '.join(shown)}){returned}"
    return line if len(line) <= 88 else f"{name}(\n    " + ",\n    ".join(shown) + f",\n){returned}"


def _type_text(annotation: Any, before: str) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return before + re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text).strip("'")


def documented(value: Any) -> Iterator[str]:
    """Yield a docstring as Markdown: paragraphs, examples as code, sections as lists of definitions."""
    text, *sections = _SECTION.split(inspect.getdoc(value) or "")
    yield from paragraphs(text)
    for heading, body in zip(sections[::2], sections[1::2], strict=True):
        yield f"**{heading}**\n"
        _, *rows = _ROW.split(body.strip("\n"))
        if heading in ("Args", "Attributes") and rows:
            yield from (
                described(term, text.replace("``", ""))
                for term, text in zip(rows[::2], rows[1::2], strict=True)
            )
        else:
            yield from paragraphs(inspect.cleandoc(body))


def paragraphs(text: str) -> Iterator[str]:
    for part in filter(str.strip, text.split("\n\n")):
        if part.startswith((">>>", "    ")):
            yield f"```python\n{inspect.cleandoc(part)}\n```\n"
        else:
            yield prose(" ".join(part.replace("``", "").split())) + "\n"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(value) and inspect.getdoc(value):
            yield name, value


def api_page() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for name in sorted(edgekit.__all__, key=str.lower):
        value = getattr(edgekit, name)
        if name.startswith("_"):
            continue
        code = signature_of(f"edgekit.{name}", value)
        parts += [f"## {name}\n", f"```python\n{code}\n```\n", *documented(value)]
        for method, function in members(value) if name in MEMBERS else ():
            call = signature_of(f"{name}.{method}", function)
            is_property = isinstance(inspect.getattr_static(value, method), property)
            parts += [f"### {name}.{method}\n"]
            parts += [
                f"```python\n{f'{name}.{method}' if is_property else call}\n```\n",
                *documented(function),
            ]
    return "\n".join(parts)
