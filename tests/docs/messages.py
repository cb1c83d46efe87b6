"""Texts of messages in the source, to which a document's quotations are compared."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache

from docs.site.errors import sources

LEAST_CHARS = 12
"""A text of the source with fewer letters of its own fits any message."""


@cache
def texts(path: str) -> list[list[str]]:
    """The first lines of a module's texts, each as what stands between the values that are put in."""
    found = []
    for node in ast.walk(sources()[path]):
        if isinstance(node, ast.JoinedStr):
            parts = [str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = [node.value]
        else:
            continue
        first = "".join(parts).partition("\n")[0]
        if len(first.replace("\0", "")) >= LEAST_CHARS:
            found.append(first.split("\0"))
    return found


def is_said(line: str, paths: Iterable[str]) -> bool:
    """Whether a text of these modules is in the line, part by part in its order."""
    for path in paths:
        for parts in texts(path):
            at = 0
            for part in parts:
                at = line.find(part, at)
                if at < 0:
                    break
                at += len(part)
            else:
                return True
    return False
