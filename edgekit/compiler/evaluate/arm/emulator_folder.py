"""Place of the ARM emulator. Apart from it: a process that only allows a child to read it needs no engine."""

from __future__ import annotations

import os
from pathlib import Path


def emulator_folder() -> Path | None:
    """Return the folder that ``tests/arm/setup`` made if it can count instructions, else None."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("EDGEKIT_ARM") or cache / "edgekit-arm")
    return folder if (folder / "counting" / "block_counts.so").is_file() else None
