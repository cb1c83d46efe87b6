"""Later stages of a cascade, for the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import basis, columns_and_rows, kept_of
from edgekit.errors import printable, with_local_lines


class StageFacts(NamedTuple):
    """Later stage of a cascade.

    Attributes:
        title: Its name, and that of its model.
        columns, rows: Table of its variants; times are of one crop.
        basis: Basis of the figures.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    basis: str


def later_stages(bundle: Bundle) -> Iterator[StageFacts]:
    """Yield the facts of each later stage; none if the bundle is one model."""
    for name in bundle.stages:
        stage = bundle.stage(name)
        accepted = kept_of(stage.variants)
        columns, rows = columns_and_rows(accepted)
        texts = tuple(tuple(printable(with_local_lines(cell)) for cell in row) for row in rows)
        title = printable(f"{name}: {(stage.card or {}).get('title', stage.name)}")
        yield StageFacts(title, columns, texts, basis(stage.manifest, accepted))
