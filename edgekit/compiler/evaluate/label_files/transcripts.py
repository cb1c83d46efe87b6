"""Texts of recordings and of photographs: next to each file, in a table, or as LibriSpeech has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgekit.compiler.evaluate.label_files.classes import FILE_COLUMNS, TABLES, sample_kind
from edgekit.compiler.evaluate.label_files.folder import (
    Paths,
    column_of,
    label_paths,
    read_label_text,
    read_table,
    sample_paths,
)
from edgekit.compiler.evaluate.label_metric import LabelledSample, LabelledSamples
from edgekit.compiler.evaluate.prepared_files import NAMES, PREPARED
from edgekit.errors import SampleError
from edgekit.processing.card import Card

TEXT_COLUMNS = ("text", "transcript", "transcription", "sentence", "words", "label")
LISTS = (".trans.txt", "_gt.txt")
"""Endings of lists with lines of a name and its text: LibriSpeech's and PaddleOCR's."""


def read_transcripts(folder: Path, card: Card) -> LabelledSamples:
    """Read the text of each recording or photograph: from a table with a column for the file and one for the
    text, from a list, or else from the ``.txt`` of the same name.

    Raises:
        SampleError: there are no samples or texts, or these are malformed.
        UsageError: the card's input is not an image, audio or text.
    """
    kind = sample_kind(card)
    files = sample_paths(folder, PREPARED[kind])
    paths, texts = Paths(files), dict[Path, str]()
    lists = [path for path in label_paths(folder, (".txt",)) if path.name.endswith(LISTS)]
    rows = [row for path in label_paths(folder, TABLES) for row in _table(path)] + [
        row for path in lists for row in _list(path)
    ]
    for origin, name, text in rows:
        file = paths.find(name, origin)
        if file is not None:
            texts[file] = text
    form = "a table of texts" if rows else "a text next to each file"
    if not rows:
        beside = [(file, file.with_suffix(".txt")) for file in files]
        texts = {file: read_label_text(path).strip() for file, path in beside if path.is_file()}
    if not texts:
        raise SampleError(
            f"{folder} has no texts of its {len(files)} {NAMES[kind]}s. Known formats: NAME.txt next to each "
            f"file, or a table (.csv, .tsv) with the columns {FILE_COLUMNS[0]} and {TEXT_COLUMNS[0]}"
        )
    missing = len(files) - len(texts)
    note = f"{missing} of {len(files)} files have no text and were left out"
    samples = [LabelledSample(str(f.relative_to(folder)), f, texts[f]) for f in files if f in texts]
    return LabelledSamples(samples, form, [note] if missing else [])


def _table(path: Path) -> Iterator[tuple[Path, str, str]]:
    rows = read_table(path)
    file, text = (column_of(rows[0], names) if rows else None for names in (FILE_COLUMNS, TEXT_COLUMNS))
    if file is not None and text is not None:
        yield from ((path, row[file].strip(), row[text].strip()) for row in rows)


def _list(path: Path) -> Iterator[tuple[Path, str, str]]:
    for line in read_label_text(path).splitlines():
        name, _, text = line.partition("\t" if "\t" in line else " ")
        if name:
            yield path, name, text.strip()
