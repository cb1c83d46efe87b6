"""Rows that a person reads as a table: in a terminal, and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from edgekit.tensor_spec import Json

T = TypeVar("T")
CELL = 'style="text-align:left;padding:1px 12px 1px 0"'


class Shown(list[T]):
    """List of results whose text is the command line's table."""

    def __init__(self, rows: Iterable[T], text: str) -> None:
        super().__init__(rows)
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return preformatted(self.text)


def preformatted(text: str) -> str:
    """Return text as HTML with its line breaks and columns."""
    from html import escape  # here: no device needs it

    return f'<pre style="white-space:pre-wrap;text-align:left">{escape(text)}</pre>'


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML; without columns it has no heading."""
    from html import escape  # here: no device needs it

    head = f"<tr>{''.join(f'<th {CELL}>{escape(name)}</th>' for name in columns)}</tr>" if columns else ""
    cells = (f"<tr>{''.join(f'<td {CELL}>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{head}{''.join(cells)}</table>"


def html_rows(rows: Sequence[Mapping[str, Json]]) -> str:
    """Return rows by column as HTML."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return html_table(columns, [[row.get(name, "") for name in columns] for row in rows])
