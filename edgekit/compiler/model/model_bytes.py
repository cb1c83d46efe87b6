"""Content of a model's file, and identification of its version."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from edgekit.compiler.model.foreign_formats import describe_folder
from edgekit.compiler.model.untrusted import MAX_BYTES, read_external_file
from edgekit.errors import ModelError
from edgekit.system.regular_file import followed, sha256_of


def digest_of(data: bytes, folder: Path, stamps: Mapping[str, object]) -> str:
    """Compute the sha256 (hexadecimal) of the model's bytes and its external data files."""
    digest = hashlib.sha256(data)
    for name, stamp in stamps.items():
        digest.update(read_external_file(folder, name, 0, None))
        if file_stamp(folder, name) != stamp:
            raise ModelError(
                f"its data in {name} changed while EdgeKit read it; wait until it is completely written"
            )
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Compute the sha256 (hexadecimal) of a file. Raises ModelError: it can't be read."""
    try:
        return sha256_of(path)
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None


def file_stamp(folder: Path, name: str) -> object:
    """Return an identifier of the file's version; None if the file does not exist."""
    try:
        status = os.stat(followed(folder / name), follow_symlinks=False)
    except (OSError, ValueError, TypeError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_bytes(path: Path) -> bytes:
    """Read the content of a model's file."""
    try:
        if not path.is_file():
            raise ModelError(f"{path}: {_why_no_file(path)}")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ModelError(f"{path.name}: is {size / 2**30:.1f} GB; an ONNX file can have at most 2 GB")
        return path.read_bytes()
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None


def _why_no_file(path: Path) -> str:
    if not path.exists():
        if path.parts[:1] == ("hf:",):
            return (
                "is not a file; edgekit check, build and model card take an address hf://OWNER/NAME, as text"
            )
        address = path.parts[:1] in (("http:",), ("https:",), ("s3:",))
        return "is a URL: download the file first" if address else "file not found"
    if not path.is_dir():
        return "is not a file; pass the .onnx file"
    return describe_folder(path)
