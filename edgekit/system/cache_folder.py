"""The location of this user's caches, and that nobody else looks into them."""

from __future__ import annotations

import os
import stat
import sys
from functools import partial
from pathlib import Path

from edgekit.system.forked import at_exit
from edgekit.system.interrupts import pass_on

VARIABLE = "EDGEKIT_CACHE"
_of_this_process: list[str] = []


def cache_folder() -> Path:
    """EDGEKIT_CACHE, or the user's cache folder by the system's conventions. It need not exist.

    That of the conventions is made private again (mode 0700) if others may look into it; who may write to it
    or to EDGEKIT_CACHE is checked where files are used (edgekit/system/ownership.py). A user without a home
    has one for this process and its children, which is removed at its end.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local, "edgekit") if local else Path(os.path.expanduser("~"), ".cache", "edgekit")
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # by the specification a relative one is ignored
        return _private(Path(chosen, "edgekit"))
    home = os.path.expanduser("~")
    if os.path.isabs(home):
        return _private(Path(home, ".cache", "edgekit"))
    return _without_home()


def is_temporary() -> bool:
    """Return whether this user has no home, and the cache ends with this process."""
    return bool(_of_this_process) and os.environ.get(VARIABLE) == _of_this_process[0]


def _private(folder: Path) -> Path:
    if sys.platform == "win32":
        return folder
    try:
        facts = os.lstat(folder)
        others, may_write = facts.st_mode & 0o077, facts.st_mode & 0o022
        # Where others may write they may have: that is refused, and not made to look well.
        if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and others and not may_write:
            os.chmod(folder, 0o700)
    except OSError as problem:
        pass_on(problem)
    return folder


def _without_home() -> Path:
    """Create a folder of a random name: one that can be guessed may exist already, made by another user."""
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="edgekit-cache-")  # mode 0700
    at_exit(partial(shutil.rmtree, folder, ignore_errors=True))
    _of_this_process[:] = [folder]
    os.environ[VARIABLE] = folder  # for all that this process starts
    return Path(folder)
