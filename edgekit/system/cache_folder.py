"""The location of this user's caches."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """EDGEKIT_CACHE, or the user's cache folder by the system's conventions. It need not exist."""
    chosen = os.environ.get("EDGEKIT_CACHE")
    if chosen:
        return Path(chosen).absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local, "edgekit") if local else Path(os.path.expanduser("~"), ".cache", "edgekit")
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # by the specification a relative one is ignored
        return Path(chosen, "edgekit")
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        return Path(home, ".cache", "edgekit")
    return Path(os.environ.get("TMPDIR", "/tmp"), f"edgekit-{os.getuid()}")  # a container user without a home
