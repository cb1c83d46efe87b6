"""Engines of a page: packages of npm, each fetched once, checked by its lock file, and kept in the cache.

    EDGEKIT_CACHE/web/onnxruntime-web-1.30.0/ort.wasm.min.mjs ...

npm fetches one version of each, whose sha512 is in its lock file; no script of a package runs.
Every file is compared with its sha256 each time it is used.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
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


class WebEngine(NamedTuple):
    """An engine of a page.

    Attributes:
        folder: Folder of its files beside the page.
        model: The one file of a variant that it runs.
    """

    lock: str
    folder: str
    model: str


ENGINES = {
    "ort": WebEngine("onnxruntime-web.lock", "onnxruntime", "model.onnx"),
    "tflite": WebEngine("litertjs.lock", "litert", "model.tflite"),
}
"""Target -> its engine."""
LOADER = (
    b'import { createWasmLib } from "@litertjs/wasm-utils";',
    b'const createWasmLib = (...given) => globalThis[Symbol.for("edgekit.litert")](...given);',
)
"""Import of what starts LiteRT.js by a script element, which a worker lacks -> the function of litert.js."""
EXPORT = b"\nexport default ModuleFactory;\n"
"""Makes a module of a script of LiteRT.js."""


class Lock(NamedTuple):
    """Content of a lock file.

    Attributes:
        integrity: ``sha512-`` and the digest of its package file in base 64, as npm writes it.
        files: Path in the package -> sha256 of the file, hexadecimal.
    """

    name: str
    version: str
    integrity: str
    files: Mapping[str, str]


def read_lock(target: str) -> Lock:
    """Return the content of a target's lock file."""
    text = Path(__file__).with_name(ENGINES[target].lock).read_text("utf-8")
    first, *rows = [line for line in text.splitlines() if not line.startswith("#")]
    name, version, integrity = first.split()
    return Lock(name, version, integrity, {row.split()[0]: row.split()[1] for row in rows})


def engine_files(
    targets: Iterable[str], packages: Sequence[Path] = (), webgpu: bool = False
) -> dict[str, bytes]:
    """Return the files of engines from the cache, package files or npm, as a page loads them.

    Args:
        targets: Targets of :data:`ENGINES`.
        packages: Package files, as ``npm pack`` writes them. npm is asked for an engine that neither they nor
            the cache have.
        webgpu: Whether to include the files for WebGPU.

    Returns:
        Path beside the page -> content.

    Raises:
        UsageError: a package file cannot be read, or is not one of a lock file.
        MissingDependency: npm is needed and not installed.
        ToolchainError: npm failed, or what it fetched is not the package of the lock file.
    """
    locks = {target: read_lock(target) for target in ENGINES}
    brought = {_integrity(content): (path, content) for path, content in map(_read, packages)}
    for integrity in brought.keys() - {lock.integrity for lock in locks.values()}:
        commands = " or ".join(f"npm pack {lock.name}@{lock.version}" for lock in locks.values())
        raise UsageError(
            f"{brought[integrity][0]} is not a package that a page uses: its integrity is {integrity}; "
            f"fetch it with {commands}"
        )
    chosen = {}
    for target in targets:
        lock, folder = locks[target], ENGINES[target].folder
        _, content = brought.get(lock.integrity, (None, None))
        for name, data in _files(lock, content).items():
            if webgpu or not any(part in name for part in WEBGPU):
                path, data = _as_module(name, data) if target == "tflite" else (name, data)
                chosen[f"{folder}/{path}"] = data
    return chosen


def _read(package: Path) -> tuple[Path, bytes]:
    try:
        return package, read_plain(package, PACKAGE_LIMIT_BYTES)
    except OSError as problem:
        raise UsageError(f"{package} cannot be read: {problem.strerror or problem}") from None


def _integrity(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def _files(lock: Lock, package: bytes | None) -> dict[str, bytes]:
    """Return an engine's files by name, unchanged; those that the cache lacked are kept there."""
    folder = cache_folder() / "web" / f"{lock.name.strip('@').replace('/', '-')}-{lock.version}"
    if package is None:
        cached = _cached(folder, lock)
        if cached is not None:
            return cached
        with tempfile.TemporaryDirectory() as fetched:
            path, package = _read(fetch(lock, Path(fetched)))
        if _integrity(package) != lock.integrity:
            raise ToolchainError(
                f"npm fetched {path.name}, whose integrity is {_integrity(package)}; "
                f"it must be {lock.integrity}"
            )
    files = unpacked(package, lock)
    private_folder(folder.parent)
    private_folder(folder)
    for name, content in files.items():
        write_atomically(folder / name, [content])
    return files


def unpacked(package: bytes, lock: Lock) -> dict[str, bytes]:
    """Return the files that the lock file lists from its package, each checked."""
    files = {}
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:  # its digest is the lock file's
        for path, digest in lock.files.items():
            member = archive.extractfile(f"package/{path}")
            assert member is not None
            files[Path(path).name] = member.read()
            assert hashlib.sha256(files[Path(path).name]).hexdigest() == digest, path
    return files


def _as_module(name: str, content: bytes) -> tuple[str, bytes]:
    """Return a file of LiteRT.js as a module of its own, by whose name bundlers know it for one."""
    module = name.removesuffix(".js") + ".mjs"
    if name == "index.js":
        assert content.count(LOADER[0]) == 1
        return module, content.replace(*LOADER)
    return (module, content + EXPORT) if name.endswith(".js") else (name, content)


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


def fetch(lock: Lock, folder: Path) -> Path:
    """Let npm fetch a package file into a folder and return its path.

    Raises:
        MissingDependency: npm is not installed.
        ToolchainError: npm failed.
    """
    npm, name = shutil.which("npm"), f"{lock.name}@{lock.version}"
    if npm is None:
        raise MissingDependency(
            "npm",
            f"fetching {name}",
            install=f"install Node.js, or run `npm pack {name}` elsewhere and pass its file: --npm-package",
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
