"""A file by its sha256: room first, resumed where it was left, hashed as it comes, flushed, then renamed.

    FOLDER/SHA256.part     what has come so far
    FOLDER/SHA256          the file, complete and right

Nothing that a server says is believed: more bytes than were signed are an error at once, and what was resumed
and does not hash right in the end is thrown away and fetched once more from the start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from edgekit.errors import UpdateError
from edgekit.release.updates.http_files import CHUNK_BYTES, FetchError, HttpFiles
from edgekit.release.updates.releases import Target
from edgekit.system.atomic_files import flush_folder, private_folder
from edgekit.system.ownership import why_foreign
from edgekit.system.progress import Notify, step
from edgekit.system.regular_file import sha256_of

FLUSHED_BYTES = 8 << 20
"""So much may be lost of a download when the power is cut."""
RESERVE_BYTES = 16 << 20
"""Room that is left to others on the disk."""
COPIES = 2
"""Of a file that the disk must have room for: the store makes one of a bundle."""
READ_BYTES = 1 << 20


def download(
    files: HttpFiles,
    target: Target,
    folder: Path,
) -> Path:
    """Fetch a file.

    Args:
        folder: Private to this user; created.

    Returns:
        The file's path.

    Raises:
        UpdateError: it cannot be fetched, differs from the signed one, or the disk is full.
            What has come is kept.
        OSError: it cannot be written.
    """
    private_folder(folder, parents=False)
    whole, part = folder / target.sha256, folder / f"{target.sha256}.part"
    if whole.exists():
        if sha256_of(whole) == target.sha256:
            return whole
        whole.unlink()
    partial_bytes = part.stat().st_size if part.exists() else 0
    missing = target.size_bytes * COPIES - min(partial_bytes, target.size_bytes) + RESERVE_BYTES
    if (free := shutil.disk_usage(folder).free) < missing:
        raise UpdateError(
            f"{target.path} needs {missing >> 20} MB at {folder}, but {free >> 20} MB are free\n"
            "  nothing has changed; free some space"
        )
    with open(os.open(part, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600), "r+b") as file:
        if reason := why_foreign(os.fstat(file.fileno())):
            raise UpdateError(f"{part} is not used: {reason}; remove it")
        digest, offset = _resumed(file, target.size_bytes)
        resumed = offset > 0
        while True:
            with step("downloading") as report:
                offset = _fetch(files, target, file, digest, offset, report)
            if digest.hexdigest() == target.sha256:
                break
            _emptied(file)
            if not resumed:
                raise UpdateError(
                    f"{target.path} is rejected: its sha256 is not the signed one\n"
                    "  the server's file is damaged or was replaced; the installed bundle keeps working"
                )
            resumed, digest, offset = False, hashlib.sha256(), 0
        os.fsync(file.fileno())
    os.replace(part, whole)
    flush_folder(folder)
    return whole


def rebuild(old: Path, delta: Path, target: Target, folder: Path) -> str:
    """Make a file in the folder of downloads from an old one and a difference.

    Returns:
        "", or why it could not be made; the folder is then as it was.
    """
    from edgekit.release.updates.delta import DeltaError, apply_delta  # here: numpy

    draft = folder / f"{target.sha256}.draft"
    try:
        with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            apply_delta(old, delta, file)
            file.flush()
            os.fsync(file.fileno())
        if sha256_of(draft) != target.sha256:
            return "it does not produce the signed file"
        os.replace(draft, folder / target.sha256)
        flush_folder(folder)
        return ""
    except (DeltaError, ValueError) as problem:
        return str(problem)
    finally:
        draft.unlink(missing_ok=True)


def remove_others(folder: Path, needed: set[str]) -> None:
    """Remove downloads of other files than these hashes: of releases that nobody wants any more."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.removesuffix(".part") not in needed:
                path.unlink()


def _resumed(file: BinaryIO, size_bytes: int) -> tuple[hashlib._Hash, int]:
    file.seek(0)
    digest, received = hashlib.sha256(), 0
    while piece := file.read(READ_BYTES):
        digest.update(piece)
        received += len(piece)
    if received > size_bytes:
        _emptied(file)
        return hashlib.sha256(), 0
    return digest, received


def _emptied(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _fetch(
    files: HttpFiles, target: Target, file: BinaryIO, digest: hashlib._Hash, offset: int, notify: Notify
) -> int:
    """Fetch what is missing, repeating requests that fail; the size of what there is then."""
    failed, flushed = 0, offset
    while offset < target.size_bytes:
        before = offset
        try:
            with files.open(target.url_path, offset) as body:
                for piece in _after(body.pieces, offset - body.start):  # a server without parts starts at 0
                    if offset + len(piece) > target.size_bytes:
                        raise FetchError(
                            f"the server sends more than the {target.size_bytes} bytes signed",
                            retryable=False,
                        )
                    file.write(piece)
                    digest.update(piece)
                    offset += len(piece)
                    notify(target.path, offset >> 20, target.size_bytes >> 20, "MB")
                    if offset - flushed >= FLUSHED_BYTES:
                        file.flush()
                        os.fsync(file.fileno())
                        flushed = offset
            if offset < target.size_bytes:
                raise FetchError(f"the server's file ends {target.size_bytes - offset} bytes too early")
        except FetchError as problem:
            file.flush()
            failed = 1 if offset - before >= CHUNK_BYTES else failed + 1
            try:
                files.wait_after(problem, failed)
            except FetchError:
                raise UpdateError(
                    f"{target.path} can't be fetched: {problem}\n"
                    f"  {offset} of {target.size_bytes} bytes are here; the next run continues from there"
                ) from None
    file.flush()
    return offset


def _after(pieces: Iterator[bytes], skipped: int) -> Iterator[bytes]:
    """Yield the pieces without their first ``skipped`` bytes."""
    for piece in pieces:
        yield piece[skipped:]
        skipped = max(0, skipped - len(piece))
