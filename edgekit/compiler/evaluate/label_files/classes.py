"""Labelled classes of photographs, recordings and texts: a table, or a folder for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.compiler.evaluate.label_files.class_names import class_numbers
from edgekit.compiler.evaluate.label_files.folder import (
    NoLabelsError,
    Paths,
    column_of,
    label_paths,
    read_table,
    sample_paths,
)
from edgekit.compiler.evaluate.label_metric import LabelledSample, LabelledSamples
from edgekit.compiler.evaluate.prepared_files import NAMES, PREPARED
from edgekit.compiler.evaluate.text_files import read_line, text_lines
from edgekit.errors import SampleError, UsageError
from edgekit.processing.card import Card

TABLES = (".csv", ".tsv")
FILE_COLUMNS = ("file", "path", "file_name", "filename", "image", "audio", "recording", "id")
TEXT_COLUMNS = ("text", "sentence", "review")
NUMBER_COLUMN = "class_index"
CLASS_COLUMNS = (NUMBER_COLUMN, "label", "class", "class_name", "category")
"""Names of columns, in lower case; the first one that a table has is used."""


def read_classes(folder: Path, card: Card, files: Sequence[Path] | None = None) -> LabelledSamples:
    """Read labelled samples: by a table with a column for the file (or the text) and one for the class, or
    else by the folder that each file is in.

    Args:
        files: Samples in the folder. None means all.

    Raises:
        SampleError: there are no samples, or the labels are malformed.
        NoLabelsError: there are no labels.
        UsageError: the card's input is not an image, audio or text.
    """
    kind = sample_kind(card)
    for table in label_paths(folder, TABLES):
        if (samples := _by_table(folder, table, kind, card, files)) is not None:
            return samples
    return _by_folder(folder, kind, card, files)


def sample_kind(card: Card) -> str:
    """Return the kind of a card's input: ``image``, ``audio`` or ``text``.

    Raises:
        UsageError: it is another one.
    """
    kind = card.sources()[0].kind
    if kind not in PREPARED:
        raise UsageError(
            f"{card.title}: its input is not an image, audio or text, so there are no labelled files"
        )
    return kind


def _by_table(
    folder: Path, path: Path, kind: str, card: Card, files: Sequence[Path] | None
) -> LabelledSamples | None:
    rows = read_table(path)
    column = column_of(rows[0], CLASS_COLUMNS) if rows else None
    item_column = column_of(rows[0], TEXT_COLUMNS if kind == "text" else FILE_COLUMNS) if rows else None
    if column is None or item_column is None:
        return None
    names = [row[column].strip() for row in rows]
    notes: list[str] = []
    if column == NUMBER_COLUMN:
        wrong = next((row for row, name in enumerate(names) if not name.isdecimal() or len(name) > 9), None)
        if wrong is not None:
            raise SampleError(f"{path}, line {wrong + 2}: class_index is {names[wrong][:40]!r}, not a number")
        numbers: Mapping[str, int] = {name: int(name) for name in names}
    else:
        numbers, notes = class_numbers(names, card, str(path))
    if kind == "text":
        texts = [(f"{path.name}, line {line}", row[item_column]) for line, row in enumerate(rows, 2)]
        samples = [
            LabelledSample(location, text, numbers[name])
            for (location, text), name in zip(texts, names, strict=True)
            if name in numbers
        ]
        return LabelledSamples(samples, f"the column {column} of {path.name}", notes)
    paths = Paths(sample_paths(folder, PREPARED[kind]) if files is None else files)
    found = [
        (paths.find(row[item_column].strip(), path), name) for row, name in zip(rows, names, strict=True)
    ]
    samples = [
        LabelledSample(str(file.relative_to(folder)), file, numbers[name])
        for file, name in found
        if file is not None and name in numbers
    ]
    if not samples:
        raise SampleError(f"{path} names no {NAMES[kind]} in {folder}, e.g. {rows[0][item_column][:80]!r}")
    if missing := sum(file is None for file, _ in found):
        notes = [*notes, f"{missing} of {len(rows)} files in {path.name} are not in the folder"]
    return LabelledSamples(samples, f"the column {column} of {path.name}", notes)


def _by_folder(folder: Path, kind: str, card: Card, files: Sequence[Path] | None) -> LabelledSamples:
    is_part = files is not None
    files = sample_paths(folder, PREPARED[kind]) if files is None else files
    inside = [file for file in files if file.parent != folder]
    labels = card.task.labels if card.task is not None else ()
    # A part of the files may lack classes, so their folders can't be numbered in alphabetical order.
    if not inside or (is_part and not labels):
        column = TEXT_COLUMNS[0] if kind == "text" else FILE_COLUMNS[0]
        raise NoLabelsError(
            f"{folder} has no labels. Known formats: a folder for each class, or a table (.csv, .tsv) with "
            f"the columns {column} and {CLASS_COLUMNS[1]} (class names) or {NUMBER_COLUMN}"
        )
    try:
        numbers, notes = class_numbers({file.parent.name for file in inside}, card, str(folder))
    except SampleError as problem:  # folders may be named after anything
        raise NoLabelsError(str(problem)) from None
    if len(inside) < len(files):
        notes = [*notes, f"{len(files) - len(inside)} files are in no folder of a class and were left out"]
    samples = [
        LabelledSample(str(file.relative_to(folder)), item, numbers[file.parent.name])
        for file in inside
        if file.parent.name in numbers
        for item in _items(file, kind)
    ]
    return LabelledSamples(samples, "a folder for each class", notes)


def _items(file: Path, kind: str) -> Sequence[Path | str]:
    return [read_line(line) for line in text_lines(file)] if kind == "text" else [file]
