"""Pairs of photographs or texts with their similarity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit.compiler.evaluate.label_files.classes import TABLES, sample_kind
from edgekit.compiler.evaluate.label_files.folder import (
    Paths,
    column_of,
    label_paths,
    read_table,
    sample_paths,
)
from edgekit.compiler.evaluate.label_metric import LabelledSample, LabelledSamples
from edgekit.compiler.evaluate.prepared_files import PREPARED
from edgekit.errors import SampleError
from edgekit.processing.card import Card

PAIR_COLUMNS = (
    ("a", "b"), ("file1", "file2"), ("image1", "image2"), ("text1", "text2"), ("sentence1", "sentence2"),
    ("left", "right"), ("query", "document"),
)  # fmt: skip
"""Names of the columns of the two items, in lower case."""
SCORE_COLUMNS = ("score", "similarity", "label", "same", "match", "relevance")


def read_pairs(folder: Path, card: Card) -> LabelledSamples:
    """Read tables of pairs with a score: 0 or 1 for different or same, or any similarity.

    Raises:
        SampleError: there is no such table, or it is malformed.
        UsageError: the card's input is not an image, audio or text.
    """
    kind = sample_kind(card)
    paths = None if kind == "text" else Paths(sample_paths(folder, PREPARED[kind]))
    samples, tables = [], []
    for table in label_paths(folder, TABLES):
        rows = read_table(table)
        columns = next((pair for pair in PAIR_COLUMNS if rows and set(pair) <= set(rows[0])), None)
        score = column_of(rows[0], SCORE_COLUMNS) if rows else None
        if columns is None or score is None:
            continue
        tables.append(table.name)
        for number, row in enumerate(rows, 2):
            location = f"{table}, line {number}"
            items = tuple(_item(row[column].strip(), paths, table, location) for column in columns)
            name = f"{table.name}, line {number}"
            samples.append(LabelledSample(name, items, _number(row, score, location)))
    if not samples:
        columns_text = " and ".join(PAIR_COLUMNS[0])
        raise SampleError(
            f"{folder} has no table of pairs. Write a .csv or .tsv with the columns {columns_text} ({kind}s) "
            f"and {SCORE_COLUMNS[0]} (1 same, 0 different, or a similarity)"
        )
    return LabelledSamples(samples, f"pairs in {', '.join(tables)}")


def _item(value: str, paths: Paths | None, table: Path, location: str) -> Path | str:
    if paths is None:
        return value
    path = paths.find(value, table)
    if path is None:
        raise SampleError(f"{location}: {value[:80]!r} is not in the folder")
    return path


def _number(row: Mapping[str, str], column: str, location: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise SampleError(f"{location}: {column} is {row[column][:40]!r}, not a number")
    return value
