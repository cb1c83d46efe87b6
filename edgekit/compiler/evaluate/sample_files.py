"""Search for sample files: in a folder, in a folder and all below it, by a glob, or one file."""

from __future__ import annotations

import glob
import mimetypes
import os
from collections.abc import Sequence
from pathlib import Path

from edgekit.errors import SampleError

RECURSIVE = "**"
"""Last part of a source that stands for all files below a folder: ``photos/**``."""
ENTRIES_LIMIT = 1_000_000
"""Most files below a folder."""
NAMED = 3
"""So many entries are named of a folder without samples."""


def find_files(source: str, suffixes: Sequence[str]) -> list[Path]:
    """Return the sample files of a source, sorted by path.

    Args:
        source: A file; a folder, of which files with these suffixes are taken; ``folder/**``: also of the
            folders below, without links and hidden ones; or a glob, of which every file is taken.
        suffixes: Suffixes of samples, lower case, with the dot.
    """
    path = Path(source)
    if path.is_dir():
        files = [p for p in sorted(path.iterdir()) if p.suffix.lower() in suffixes]
        reason = "" if files else _contents(path)
    elif path.name == RECURSIVE and path.parent.is_dir():
        files = files_below(path.parent, suffixes)
        reason = f"no file below {path.parent} has one of these endings"
    elif path.is_file():  # a name with [1] in it is no pattern
        files, reason = [path], ""
    else:
        files = sorted(Path(p) for p in glob.glob(source, recursive=True) if Path(p).is_file())
        reason = "nothing found"
    if not files:
        formats = ", ".join(suffixes)
        raise SampleError(f"no samples at {source}: {reason}; pass a folder or a glob of {formats}")
    return files


def unread_media(source: str, suffixes: Sequence[str]) -> list[str]:
    """Return the suffixes of the pictures, sounds and videos in a folder that are not read, e.g. ``.heic``.

    Args:
        source: The source of :func:`find_files`; only a folder can have others.
    """
    path = Path(source)
    others = {p.suffix.lower() for p in path.iterdir()} - set(suffixes) if path.is_dir() else set()
    kinds = {suffix: str(mimetypes.guess_type(f"x{suffix}")[0]) for suffix in others}
    return sorted(suffix for suffix in kinds if kinds[suffix].startswith(("image/", "audio/", "video/")))


def files_below(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the files in a folder and below it, without links to folders and hidden ones, sorted."""
    paths, entries = [], 0
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        entries += len(files)
        if entries > ENTRIES_LIMIT:
            raise SampleError(f"{folder} has more than {ENTRIES_LIMIT} files below it; use a smaller folder")
        paths += [
            Path(root, name)
            for name in files
            if not name.startswith(".") and Path(name).suffix.lower() in suffixes
        ]
    return sorted(paths)


def _contents(folder: Path) -> str:
    entries = sorted(folder.iterdir())
    if not entries:
        return "the folder is empty"
    names = ", ".join(entry.name for entry in entries[:NAMED])
    text = f"the folder has {names}{' ...' if len(entries) > NAMED else ''}"
    if any(entry.is_dir() for entry in entries):
        text += f"; to search folders, add --recursive ({folder / RECURSIVE})"
    return text
