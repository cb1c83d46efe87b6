"""Engines load files: a variant is unpacked once, into a folder named by the hash of its contents.

    EDGEKIT_CACHE/artifacts/<digest>/files/...       what the engine loads
    EDGEKIT_CACHE/artifacts/<digest>/unpacked.json   each file's modification time: written last
    EDGEKIT_CACHE/artifacts/<digest>/compiled/       what an engine compiled from them here, if it keeps that
    EDGEKIT_CACHE/artifacts/.lock                    held while unpacking
    EDGEKIT_CACHE/artifacts/.<anything else>         drafts of killed processes; removed by the next unpacking

A folder appears by renaming a complete, flushed draft, so it is whole or absent, even after a crash. Every
byte is hashed while unpacking. Later opens compare only sizes and modification times with the marker: hashing
a 100 MB model takes longer than loading it, and truncated, edited or replaced files show in them. Silent disk
corruption does not; ``edgekit verify`` finds it by running the golden vectors. A folder that fails the check
is unpacked again.
"""

from __future__ import annotations

import os
import stat
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from edgekit.bundle import joined_files
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.errors import EngineError
from edgekit.system import cache_folder, ownership
from edgekit.system.atomic_files import flush_folder, locked, private_folder, write_atomically
from edgekit.system.forked import at_exit
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.interrupts import pass_on
from edgekit.tensor_spec import Json

CACHE_LIMIT_BYTES = 2 << 30
"""Size limit of the unpacked files; above it the least recently opened are removed."""
KEPT_SECONDS = 86_400
"""Anything opened within a day is kept whatever its size: a session may be about to load it."""
MARKER = "unpacked.json"
MARKER_LIMIT_BYTES = 1 << 20
LOCK_SECONDS = 60.0
"""How long to wait for another process that is unpacking, before unpacking elsewhere."""


class Unpacked(NamedTuple):
    """A variant's files on disk.

    Attributes:
        files: File name -> path, as an engine's ``open_runner`` takes it.
        note: Why they are not in the cache folder; empty if they are.
        folder: The artifact's own folder in the cache folder, or None.
    """

    files: dict[str, Path]
    note: str = ""
    folder: Path | None = None


def unpack(bundle: Bundle, variant: Variant) -> dict[str, Path]:
    """Return the files of a variant on disk: file name -> path. See :func:`unpack_noted`."""
    return unpack_noted(bundle, variant).files


def unpack_noted(bundle: Bundle, variant: Variant) -> Unpacked:
    """Unpack a variant into the cache folder if it is not there; if that fails, for this process only.

    Raises:
        BundleError: an entry is damaged.
        EngineError: it can be unpacked nowhere.
    """
    digest = joined_files.files_digest(bundle, variant)
    root = cache_folder.cache_folder() / "artifacts"
    try:
        return Unpacked(_unpacked_in(root, digest, bundle, variant), folder=root / digest)
    except OSError as problem:
        pass_on(problem)
        cause = f"{root} cannot be used: {problem.strerror or problem}"
    try:
        # Created a moment ago with mode 0700; its parents are the system's, and there is no better place.
        files = _unpacked_in(_folder_of_this_process(), digest, bundle, variant, parents=False)
    except OSError as problem:
        pass_on(problem)
        error = EngineError(
            f"variant {variant.name} cannot be unpacked: {cause}; nor in a temporary folder: "
            f"{problem.strerror or problem}; free some space, or set EDGEKIT_CACHE to a writable folder"
        )
        error.blame = "machine"
        raise error from None
    return Unpacked(files, f"{cause}; unpacked for this process only. Set EDGEKIT_CACHE to a writable folder")


def _unpacked_in(
    root: Path, digest: str, bundle: Bundle, variant: Variant, parents: bool = True
) -> dict[str, Path]:
    """Unpack a variant below ``root``, and return its files. Raises OSError if ``root`` cannot be written to,
    or is not trusted."""
    folder = root / digest
    private_folder(root, parents)
    if not _is_whole(folder, bundle, variant):
        _unpack(root, folder, bundle, variant)
    try:
        os.utime(folder)
    except OSError as problem:  # a cache that root owns and we only read
        pass_on(problem)
    return _paths(folder, variant)


def _paths(folder: Path, variant: Variant) -> dict[str, Path]:
    return {file: folder / "files" / file for file in joined_files.engine_files(variant)}


def _is_whole(folder: Path, bundle: Bundle, variant: Variant) -> bool:
    """Check that every file is as unpacked, by its size (from the bundle) and time (from the marker)."""
    try:
        ownership.refuse_foreign(folder, parents=False)
        content = ownership.read_own(folder / MARKER, MARKER_LIMIT_BYTES + 1)
        marker = strict_json.decode(content, MARKER, MARKER_LIMIT_BYTES)
        for name, path in _paths(folder, variant).items():
            facts = os.lstat(path)
            size_bytes = joined_files.size_bytes(bundle, variant, name)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size != size_bytes:
                return False
            if ownership.why_foreign(facts):
                return False
            if marker[name] != facts.st_mtime_ns:
                return False
    except (OSError, JsonError, KeyError, TypeError, IndexError) as problem:
        pass_on(problem)
        return False
    return True


def _unpack(root: Path, folder: Path, bundle: Bundle, variant: Variant) -> None:
    import shutil  # here and below: takes 3 ms, and most sessions find their files unpacked

    with locked(root / ".lock", LOCK_SECONDS):
        if _is_whole(folder, bundle, variant):
            return  # another process was faster
        _clean(root)
        draft = root / f".{folder.name}.{os.urandom(4).hex()}"
        try:
            marker: dict[str, Json] = {}
            for name, path in _paths(draft, variant).items():
                private_folder(path.parent, parents=False)
                with open(path, "xb", opener=_private_opener) as file:
                    joined_files.copy_to(bundle, variant, name, file)
                    file.flush()
                    os.fsync(file.fileno())
                marker[name] = os.lstat(path).st_mtime_ns
                flush_folder(path.parent)
            write_atomically(draft / MARKER, [strict_json.encode(marker)], 0o600)
            if folder.exists():  # damaged
                os.rename(folder, root / f".{folder.name}.{os.urandom(4).hex()}.damaged")
            os.rename(draft, folder)
            flush_folder(root)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            _clean(root)


def _private_opener(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _clean(root: Path) -> None:
    """Remove drafts of killed processes, then, above the size limit, the least recently opened folders."""
    import shutil

    folders = []
    for path in root.iterdir():
        if path.name.startswith(".") and path.name != ".lock":
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != ".lock":
            size_bytes = sum(p.lstat().st_size for p in path.rglob("*") if p.is_file())
            folders.append((path.lstat().st_mtime, size_bytes, path))
    total_bytes = sum(size_bytes for _, size_bytes, _ in folders)
    for used, size_bytes, path in sorted(folders):
        if total_bytes <= CACHE_LIMIT_BYTES or used > time.time() - KEPT_SECONDS:
            break
        shutil.rmtree(path, ignore_errors=True)
        total_bytes -= size_bytes


_process_folders: list[Path] = []


def _folder_of_this_process() -> Path:
    if not _process_folders:
        import shutil
        import tempfile

        _process_folders.append(Path(tempfile.mkdtemp(prefix="edgekit-")))
        at_exit(partial(shutil.rmtree, _process_folders[0], ignore_errors=True))
    return _process_folders[0]
