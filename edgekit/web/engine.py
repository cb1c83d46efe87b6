"""onnxruntime-web, the engine of a page: fetched once by npm, checked by its lock file, kept in the cache.

    EDGEKIT_CACHE/web/onnxruntime-web-1.30.0/ort.wasm.min.mjs ...

npm fetches one version of one package, whose sha512 is in ``onnxruntime-web.lock``; no script of it runs.
Every file is compared with its sha256 each time it is used.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from edgekit.errors import MissingDependency, ToolchainError, UsageError
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.cache_folder import cache_folder
from edgekit.system.regular_file import read_plain

NPM_SECONDS = 600.0
PACKAGE_LIMIT_BYTES = 256 << 20
FILE_LIMIT_BYTES = 64 << 20
WEBGPU = ("webgpu", "asyncify")
"""Parts of names of the files that only WebGPU needs."""


class Lock(NamedTuple):
    """Content of the lock file.

    Attributes:
        name: Package of npm.
        version: Its version.
        integrity: ``sha512-`` and the digest of its package file in base 64, as npm writes it.
        files: Path in the package -> sha256 of the file, hexadecimal.
    """

    name: str
    version: str
    integrity: str
    files: Mapping[str, str]


def read_lock() -> Lock:
    """Return the lock file's content."""
    text = Path(__file__).with_name("onnxruntime-web.lock").read_text("utf-8")
    first, *rows = [line for line in text.splitlines() if not line.startswith("#")]
    name, version, integrity = first.split()
    return Lock(name, version, integrity, {row.split()[0]: row.split()[1] for row in rows})


def engine_files(package: Path | None = None, webgpu: bool = False) -> dict[str, bytes]:
    """Return the engine's files by name, from the cache, a package file or npm.

    Args:
        webgpu: Whether to include the files for WebGPU.
        package: The package file ``onnxruntime-web-VERSION.tgz``; None asks npm where the cache lacks a file.

    Raises:
        UsageError: the package file is not the one of the lock file.
        MissingDependency: npm is needed and not installed.
        ToolchainError: npm failed, or what it fetched is not the package of the lock file.
    """
    lock = read_lock()
    folder = cache_folder() / "web" / f"{lock.name}-{lock.version}"
    if package is not None:
        files = unpacked(package, lock)
    else:
        cached = _cached(folder, lock)
        if cached is not None:
            return _chosen(cached, webgpu)
        with tempfile.TemporaryDirectory() as fetched:
            files = unpacked(_fetched(lock, Path(fetched)), lock)
    private_folder(folder.parent)
    private_folder(folder)
    for name, content in files.items():
        write_atomically(folder / name, [content])
    return _chosen(files, webgpu)


def unpacked(package: Path, lock: Lock) -> dict[str, bytes]:
    """Return the files that the lock file lists from a package file, each checked.

    Raises:
        UsageError: it cannot be read, or is another package.
    """
    try:
        content = read_plain(package, PACKAGE_LIMIT_BYTES)
    except OSError as problem:
        raise UsageError(f"{package} cannot be read: {problem.strerror or problem}") from None
    actual = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if actual != lock.integrity:
        raise UsageError(
            f"{package} is not {lock.name} {lock.version}: its integrity is {actual}; it must be "
            f"{lock.integrity}. Fetch it with: npm pack {lock.name}@{lock.version}"
        )
    files = {}
    with tarfile.open(package) as archive:  # its digest is known, so it is the package that was looked at
        for path, digest in lock.files.items():
            member = archive.extractfile(f"package/{path}")
            assert member is not None
            files[Path(path).name] = member.read()
            assert hashlib.sha256(files[Path(path).name]).hexdigest() == digest, path
    return files


def _chosen(files: Mapping[str, bytes], webgpu: bool) -> dict[str, bytes]:
    """Return the files for WebAssembly, and with ``webgpu`` the others too."""
    return {
        name: content for name, content in files.items() if webgpu or not any(part in name for part in WEBGPU)
    }


def _cached(folder: Path, lock: Lock) -> dict[str, bytes] | None:
    """Return the files from the cache; None if one is missing or changed."""
    files = {}
    for path, digest in lock.files.items():
        name = Path(path).name
        try:
            files[name] = read_plain(folder / name, FILE_LIMIT_BYTES)
        except OSError:
            return None
        if hashlib.sha256(files[name]).hexdigest() != digest:
            return None
    return files


def _fetched(lock: Lock, folder: Path) -> Path:
    """Let npm fetch the package file into a folder and return its path."""
    npm, name = shutil.which("npm"), f"{lock.name}@{lock.version}"
    if npm is None:
        raise MissingDependency(
            "npm",
            f"fetching {name}",
            install=f"install Node.js, or fetch {lock.name}-{lock.version}.tgz and pass --npm-package",
        )
    command = [npm, "pack", name, "--silent", "--ignore-scripts", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=NPM_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"npm took more than {NPM_SECONDS:g} s to fetch {name}") from None
    packages = list(folder.glob("*.tgz"))
    if done.returncode or len(packages) != 1:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ToolchainError(
            f"npm could not fetch {name}: {lines[-1] if lines else f'exit code {done.returncode}'}\n"
            f"  run `npm pack {name}` where there is a network, and pass the file with --npm-package"
        )
    return packages[0]
