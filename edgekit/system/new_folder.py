"""A folder that is written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import UsageError


def need_empty(folder: Path) -> None:
    """Check that a folder is missing or empty.

    Raises:
        UsageError: it is not.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder; choose another one. Nothing was written")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a draft next to ``folder``, which becomes ``folder`` at the end. An error leaves nothing.

    Args:
        folder: Destination; it must be missing or empty.

    Raises:
        UsageError: it is not an empty folder, or cannot be written to.
    """
    need_empty(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".edgekit-", dir=folder.parent) as draft:
            root = Path(draft, "draft")
            root.mkdir()
            yield root
            root.chmod(0o755)
            if folder.exists():
                folder.rmdir()
            root.rename(folder)
    except OSError as problem:
        raise UsageError(
            f"can't write to {folder}: {problem.strerror}; choose another folder. Nothing was written"
        ) from None
