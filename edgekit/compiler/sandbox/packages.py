"""Bundles of model packages, in the cache: a package is judged once, in a child process, then opened like any
bundle."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from itertools import islice
from pathlib import Path

from edgekit._version import __version__
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.sandbox.public import build_request
from edgekit.errors import ModelError
from edgekit.system.atomic_files import locked, private_folder
from edgekit.system.cache_folder import cache_folder
from edgekit.system.regular_file import sha256_of
from edgekit.target import registry
from edgekit.target.model_packages import package_target

FILES_LIMIT, TOTAL_LIMIT_BYTES = 10_000, 32 << 30
LOCK_SECONDS = 3600.0
BUNDLES_LIMIT = 8
"""Bundles of packages in the cache; beyond it those go that were opened longest ago."""


def package_bundle(folder: Path) -> Path:
    """Return the bundle of a package in the cache; it is made again if a file of the package changed.

    Raises:
        ModelError: the folder is not a package that can be opened. CrashError: its process died.
        MissingDependency: the engine is not installed.
        OSError: the cache can't be written.
    """
    target = package_target(folder)
    if target is None:
        raise ModelError(f"{folder}: is not a model package of an installed target")
    engine = registry.engine(target).engine_version()
    key = hashlib.sha256(f"{__version__}\n{engine}\n{_folder_digest(folder)}".encode()).hexdigest()
    root = cache_folder() / "packages"
    private_folder(root)
    path = root / f"{key}.edgekit"
    with locked(root / ".lock", LOCK_SECONDS):
        if not path.exists():
            build_request(BuildRequest(folder, targets=[target], progress=False)).save(path, 0o600)
        os.utime(path)
        opened = sorted(root.glob("*.edgekit"), key=lambda kept: kept.stat().st_mtime_ns, reverse=True)
        for old in opened[BUNDLES_LIMIT:]:
            with contextlib.suppress(OSError):  # Windows keeps what another process has open
                old.unlink()
    return path


def _folder_digest(folder: Path) -> str:
    """Compute the sha256 of the names and contents of a folder's regular files. Others are refused later, by
    the child."""
    digest, left = hashlib.sha256(), TOTAL_LIMIT_BYTES
    paths = sorted(islice(folder.rglob("*"), FILES_LIMIT + 1))
    for path in paths:
        try:
            facts = os.lstat(path)
            left -= facts.st_size
            if left < 0 or len(paths) > FILES_LIMIT:
                raise ModelError(
                    f"{folder}: a package has at most {FILES_LIMIT} files and {TOTAL_LIMIT_BYTES >> 30} GB"
                )
            if stat.S_ISREG(facts.st_mode):
                name = os.fsencode(path.relative_to(folder))
                digest.update(name + b"\0" + sha256_of(path, follow_links=False).encode())
        except OSError as problem:
            raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None
    return digest.hexdigest()
