"""Ownership checks: who owns a folder or a file, and who else may write to it.

Files are loaded and trusted only if they are in a folder that belongs to this user or root and that no other
user may write to. For a cache this applies to all parent folders too, because a user who may write there can
replace it; a sticky folder such as /tmp may be a parent, because there users cannot rename each other's
entries. A link must belong to this user or root, and so must its target. Systems without POSIX permissions
are not checked.
"""

from __future__ import annotations

import os
import stat
import sys

from edgekit.system.regular_file import open_descriptor

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def refuse_foreign(folder: str | os.PathLike[str], parents: bool = True) -> None:
    """Check a folder, and its parents.

    Raises:
        FileNotFoundError: it does not exist.
        PermissionError: it or, with ``parents``, a parent belongs to another user, or others may write to it.
        OSError: it is not a folder, or cannot be checked.
    """
    path = os.path.abspath(folder)
    if _has_link(path, parents):
        _has_link(os.path.realpath(path), parents)


def why_foreign(facts: os.stat_result) -> str:
    """Return why a file's owner or mode makes it untrusted, or "" if it is trusted."""
    if sys.platform == "win32":
        return ""
    if facts.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {facts.st_uid}"
    return "other users can write to it" if facts.st_mode & OTHERS_WRITE else ""


def read_own(path: str | os.PathLike[str], limit_bytes: int) -> bytes:
    """Return the first bytes of a regular file that only this user or root may write to.

    Raises:
        PermissionError: it belongs to another user, or others may write to it.
        OSError: it is not a regular file, or cannot be read.
    """
    handle, facts = open_descriptor(path, follow_links=False)
    try:
        if reason := why_foreign(facts):
            raise PermissionError(0, reason)
        content = b""
        while len(content) < limit_bytes and (piece := os.read(handle, limit_bytes - len(content))):
            content += piece
        return content
    finally:
        os.close(handle)


def _has_link(path: str, parents: bool) -> bool:
    """Check a path and its parents, without following links; returns whether one is a link."""
    if sys.platform == "win32":  # owners and modes are not checked there
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise NotADirectoryError(0, "it is not a folder")
        return False
    us, leaf, has_link = os.geteuid(), True, False
    while True:
        facts = os.lstat(path)
        mode = facts.st_mode
        subject = "it" if leaf else f"{path}, where it is,"
        if facts.st_uid not in (0, us):
            raise PermissionError(0, f"{subject} belongs to user {facts.st_uid}")
        if stat.S_ISLNK(mode):
            has_link = True
        elif leaf and not stat.S_ISDIR(mode):
            raise NotADirectoryError(0, "it is not a folder")
        elif mode & OTHERS_WRITE and (leaf or not mode & stat.S_ISVTX):
            raise PermissionError(0, f"other users can write to {subject.rstrip(',')}")
        above = os.path.dirname(path)
        if above == path or not parents:
            return has_link
        path, leaf = above, False
