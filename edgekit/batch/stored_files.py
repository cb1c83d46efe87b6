"""Files of a catalogue: in a folder, or at a URL that fsspec opens (``s3://``, ``gs://``, ``sftp://``).

A path needs no package; a URL needs fsspec, and the package of its protocol.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from edgekit.compiler.evaluate.sample_files import RECURSIVE
from edgekit.compiler.model.external_names import external_names
from edgekit.errors import MissingDependency, UsageError, need_package
from edgekit.system.atomic_files import write_atomically
from edgekit.system.regular_file import sha256_of

PIECE_BYTES = 1 << 20


def is_url(source: str) -> bool:
    """Return whether a text is a URL and not a path.

    >>> is_url("s3://fleet/models"), is_url("models/detector.onnx"), is_url("C:/models")
    (True, False, False)
    """
    return "://" in source


class Folder:
    """Folder on a disk or at a URL, created on the first write. File names contain at most one folder
    name."""

    def __init__(self, root: str) -> None:
        """Initialize a folder on a disk or at a URL. Raises UsageError if the protocol is unknown,
        MissingDependency if a package is not installed."""
        self.root, self._files = root.rstrip("/") or root, _file_system(root) if is_url(root) else None

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def read(self, name: str, limit_bytes: int) -> bytes | None:
        """Return the content of a small file; None if it does not exist or is larger."""
        try:
            if self._files is None:
                with open(self.path(name), "rb") as file:
                    content = file.read(limit_bytes + 1)
            else:
                with self._files.open(self.path(name), "rb") as remote:
                    content = bytes(remote.read(limit_bytes + 1))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return content if len(content) <= limit_bytes else None

    def write(self, name: str, content: bytes) -> None:
        """Write a file, completely or not at all. Raises OSError if it cannot be written."""
        if self._files is None:
            path = Path(self.path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [content])
        else:
            self._make_folder(name)
            self._files.pipe_file(self.path(name), content)

    def take(self, name: str, file: Path) -> None:
        """Write a file with the content of another one. Raises: OSError: it can't be written."""
        if self._files is None:
            path = Path(self.path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "rb") as source:
                write_atomically(path, iter(lambda: source.read(PIECE_BYTES), b""))
        else:
            self._make_folder(name)
            self._files.put_file(str(file), self.path(name))

    def copy(self, name: str, other: str) -> None:
        """Give a file another name too. Raises: OSError: it can't be written."""
        if self._files is None:
            self.take(other, Path(self.path(name)))
        else:
            self._files.copy(self.path(name), self.path(other))

    def holds(self, name: str, size_bytes: int, sha256: str) -> bool:
        """Return whether a file exists and is this one. At a URL only its size is compared, because the
        whole catalogue would have to be fetched."""
        if self._files is not None:
            return bool(
                self._files.exists(self.path(name)) and self._files.size(self.path(name)) == size_bytes
            )
        path = Path(self.path(name))
        return path.is_file() and path.stat().st_size == size_bytes and sha256_of(path) == sha256

    def _make_folder(self, name: str) -> None:
        assert self._files is not None
        self._files.makedirs(self.path(name).rpartition("/")[0], exist_ok=True)


def fetch_model(source: str, folder: Path) -> Path:
    """Return the path of a model and its external data: the path itself, or a copy in ``folder`` of the files
    at a URL.
    """
    if not is_url(source):
        return Path(source)
    files, path = _file_system(source), folder / _plain_name(source)
    if files.isdir(source):
        for name in files.find(source):
            inner = str(name)[len(str(files._strip_protocol(source)).rstrip("/")) + 1 :]
            target = path.joinpath(*map(_plain_name, inner.split("/")))
            target.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(target))
        return path
    folder.mkdir(parents=True, exist_ok=True)
    files.get_file(source, str(path))
    folder_url = source.rpartition("/")[0]
    for name in sorted(external_names(path)):
        if files.exists(f"{folder_url}/{name}"):
            files.get_file(f"{folder_url}/{name}", str(folder / _plain_name(name)))
    return path


def fetch_samples(source: str, folder: Path) -> str:
    """Return a path or glob as it is, or a folder with copies of the files of a folder or glob at a URL."""
    if not is_url(source):
        return source
    files = _file_system(source)
    if files.isdir(source):
        entries = [entry for entry in files.ls(source, detail=False) if files.isfile(entry)]
    else:
        entries = list(files.glob(source)) if glob.has_magic(source) else [source]
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        files.get_file(entry, str(folder / _plain_name(str(entry))))
    if not entries:
        raise UsageError(f"no samples at {source}: nothing found")
    return str(folder)


def fetch_card(source: str, folder: Path) -> Path:
    """Return the path of a card next to the files that it names: the path itself, or a copy of its folder at
    a URL.
    """
    if not is_url(source):
        return Path(source)
    fetch_samples(source.rpartition("/")[0], folder)
    return folder / _plain_name(source)


def model_files(path: Path) -> list[Path]:
    """Return the files of a model: itself and its external data, or all files of its folder."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    external_files = (path.parent / name for name in sorted(external_names(path)))
    return [path, *(file for file in external_files if file.is_file() and file != path)]


def sample_files(source: str) -> list[Path]:
    """Return the files of a folder, of a folder and all its subfolders, or of a glob."""
    path = Path(source)
    if path.name == RECURSIVE and path.parent.is_dir():
        return sorted(file for file in path.parent.rglob("*") if file.is_file())
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.is_file())
    paths = [path] if path.is_file() else [Path(file) for file in glob.glob(source, recursive=True)]
    return sorted(file for file in paths if file.is_file())


def _plain_name(source: str) -> str:
    """Return the last part of a URL or path, so that a file name from an untrusted store stays in our
    folder."""
    name = source.replace("\\", "/").rstrip("/").rpartition("/")[2]
    if name in ("", ".", "..") or not name.isprintable():
        raise UsageError(f"{source!r} does not end with a file name")
    return name


def _file_system(url: str) -> Any:
    with need_package("fsspec", f"opening {url}", extra="catalogue"):
        from fsspec.core import url_to_fs
    try:
        return url_to_fs(url)[0]
    except ValueError as problem:
        raise UsageError(f"{url}: {problem}") from None
    except ImportError as problem:  # the package of a protocol
        scheme = url.partition(":")[0]
        package = f"'fsspec[{scheme}]'"
        missing = getattr(problem, "name", "") or f"fsspec's package for {scheme}"
        raise MissingDependency(missing, f"opening {url}", f"pip install {package}") from None
