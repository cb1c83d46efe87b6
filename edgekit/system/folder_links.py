"""Symbolic links in the folder of a model: followed into the Hugging Face cache that the folder lies in, and
nowhere else. Any other link of a stranger's folder could put a file of this machine into a bundle.

``huggingface_hub`` keeps a repository so (``snapshot_download`` returns the folder of the commit):

    models--OWNER--NAME/blobs/HASH
    models--OWNER--NAME/snapshots/COMMIT/config.json -> ../../blobs/HASH
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from edgekit.system.regular_file import NotRegularFileError

SNAPSHOTS, BLOBS = "snapshots", "blobs"
ENTRIES_LIMIT = 100_000
LINK = "it is a symbolic link; replace it by the file that it leads to"


def followed(path: Path) -> Path:
    """Return the path of a file in a model's folder, or the target of the link in its place.

    Raises:
        NotRegularFileError: it is a link that does not lead into the folder's own cache.
    """
    if not os.path.islink(path):
        return path
    target = os.path.realpath(path)
    if os.path.dirname(target) == _blobs_of(os.path.realpath(path.parent)):
        return Path(target)
    raise NotRegularFileError(LINK, path)


def linked_files(folder: str) -> Iterator[str]:
    """Yield the targets of the links below a folder that ``followed`` follows into its cache."""
    blobs = _blobs_of(os.path.realpath(folder))
    with contextlib.suppress(OSError):
        for entry in islice(Path(folder).rglob("*"), ENTRIES_LIMIT) if blobs else ():
            if entry.is_symlink() and os.path.dirname(target := os.path.realpath(entry)) == blobs:
                yield target


def _blobs_of(folder: str) -> str | None:
    """Return the folder of contents of the cache that a folder is a snapshot of, or part of one. It must be a
    folder itself: the real path of what is behind a link is another one."""
    snapshots = next((parent for parent in Path(folder).parents if parent.name == SNAPSHOTS), None)
    return None if snapshots is None else str(snapshots.parent / BLOBS)
