"""Lines of a drafted card: a key, its value, the reason, and whether it was guessed. Written as TOML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from edgekit.errors import printable

GUESSED = "guessed: "
"""Begins the comment of a line that neither the metadata nor the graph settle."""
WIDTH = 110


class CardLine(NamedTuple):
    """Line of a card.

    Attributes:
        value: TOML value: text, number, boolean, or a list or table of them.
        reason: The reason, for the reader; "" where the key says it all.
    """

    key: str
    value: Any
    reason: str = ""
    guessed: bool = False

    def text(self) -> str:
        """Format the line as TOML. A comment that does not fit beside the value is written above it."""
        plain = f"{_bare(self.key)} = {toml_value(self.value)}"
        if not self.reason:
            return plain
        comment = comment_text(f"{GUESSED if self.guessed else ''}{self.reason}")

        if len(plain) + 2 + len(comment) <= WIDTH:
            return f"{plain}  {comment}"
        return f"{comment}\n{plain}"


def comment_text(text: str) -> str:
    """Return a comment on one line, even if names of files and outputs contain line breaks."""
    return f"# {' '.join(printable(text).split())}"


def table_text(name: str, lines: Iterable[CardLine]) -> str:
    """Return a table of the card: ``[name]`` and its lines.

    Args:
        name: Dotted parts, already quoted where they need it.
    """
    return "\n".join([f"[{name}]", *(line.text() for line in lines)])


def key_path(*parts: str) -> str:
    """Return a table's name from its parts.

    >>> key_path("inputs", "input.1")
    'inputs."input.1"'
    """
    return ".".join(map(_bare, parts))


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it, lists and inline tables in one line.

    >>> toml_value({"scores": "out", "top": 5, "std": [58.395, 1.0]})
    '{ scores = "out", top = 5, std = [58.395, 1.0] }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # A JSON string is a TOML one, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_bare(key)} = {toml_value(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)


def _bare(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else toml_value(key)
