"""Files of labels, which may be anyone's: plain, bounded and in UTF-8."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.compiler.evaluate.sample_files import RECURSIVE, files_below, find_files
from edgekit.errors import SampleError
from edgekit.system.regular_file import read_plain

LABELS_LIMIT_BYTES = 512 << 20
"""Largest size of one file; the labels of COCO's training photographs have 469 MB."""
ROWS_LIMIT = 10_000_000
"""Maximum number of rows or objects of one file."""
LABEL_FOLDERS = ("labels", "annotations", "Annotations")
"""Names of folders with labels next to the folder of the samples. A build may read them
(edgekit/compiler/sandbox/limits.py)."""


def sample_paths(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the samples in a folder and below it, sorted.

    Raises:
        SampleError: it is not a folder, or has no samples.
    """
    if not folder.is_dir():
        raise SampleError(
            f"{folder} is not a folder; pass the folder that holds the samples and their labels"
        )
    return find_files(str(folder / RECURSIVE), suffixes)


def label_folders(folder: Path, names: Sequence[str] = LABEL_FOLDERS) -> list[Path]:
    """Return the folders outside a folder of samples that may hold their labels: next to it, and instead of
    the last ``images`` in its path.

    >>> [str(path) for path in label_folders(Path("/set/images/val"), ("labels",))]
    ['/set/images/labels', '/set/labels/val']
    """
    parts = folder.absolute().parts
    folders = [Path(*parts[:-1], name) for name in names]
    if "images" in parts:
        last = max(index for index, part in enumerate(parts) if part == "images")
        folders += [Path(*parts[:last], name, *parts[last + 1 :]) for name in names]
    return list(dict.fromkeys(folders))


def label_paths(folder: Path, suffixes: Sequence[str], beside: Sequence[str] = LABEL_FOLDERS) -> list[Path]:
    """Return the files of labels in a folder and below it, and in its :func:`label_folders`."""
    folders = [folder, *label_folders(folder, beside)]
    return [path for one in folders if one.is_dir() for path in files_below(one, suffixes)]


def read_label_text(path: Path) -> str:
    """Read a file of labels.

    Raises:
        SampleError: it is not a plain file of at most LABELS_LIMIT_BYTES, or not in UTF-8.
    """
    try:
        return read_plain(path, LABELS_LIMIT_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise SampleError(f"{path} can't be read as labels: {reason}") from None


def read_json(path: Path) -> Any:
    """Parse a JSON file.

    Raises:
        SampleError: it can't be read, or is not valid JSON.
    """
    try:
        return json.loads(read_label_text(path))
    except (ValueError, RecursionError) as problem:
        raise SampleError(f"{path} is not valid JSON: {problem}") from None


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a table with a header: columns separated by tabs in a ``.tsv``, else by commas or semicolons.

    Raises:
        SampleError: it can't be read, or has more than ROWS_LIMIT rows.
    """
    content = read_label_text(path)
    header = content.split("\n", 1)[0]
    separator = "\t" if path.suffix.lower() == ".tsv" else max(",;", key=header.count)
    rows: list[dict[str, str]] = []
    reader = csv.DictReader(io.StringIO(content, newline=""), delimiter=separator)
    try:
        for row in reader:
            if len(rows) == ROWS_LIMIT:
                raise SampleError(f"{path} has more than {ROWS_LIMIT} rows")
            rows.append({(key or "").strip().lower(): str(value or "") for key, value in row.items()})
    except csv.Error as problem:
        raise SampleError(f"{path}, line {reader.line_num}: {problem}") from None
    return rows


def column_of(row: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return the first of these columns that a row has; None if it has none of them."""
    return next((name for name in names if name in row), None)


class NoLabelsError(SampleError):
    """There are no labels in a known format."""


class Paths:
    """Samples by the names that labels give them, e.g. ``val/0001.jpg``.

    Args:
        paths: The samples.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._by_name: dict[str, list[Path]] = {}
        for path in paths:
            for name in {path.name, path.stem}:
                self._by_name.setdefault(name, []).append(path)

    def find(self, name: str, origin: Path) -> Path | None:
        """Return the sample of this name; None if there is none.

        Raises:
            SampleError: several samples have the name.
        """
        wanted = Path(name.replace("\\", "/"))
        paths = self._by_name.get(wanted.name, [])
        if len(paths) > 1:
            parts = wanted.parts
            paths = [path for path in paths if path.parts[-len(parts) :] == parts] or paths
        if len(paths) > 1:
            raise SampleError(
                f"{origin}: {name!r} may be {paths[0]} or {paths[1]}; name their folders in the labels"
            )
        return paths[0] if paths else None
