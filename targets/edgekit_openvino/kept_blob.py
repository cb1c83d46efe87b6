"""OpenVINO's compiled model, kept beside the unpacked artifact, so that the next process opens it sooner.

A blob is OpenVINO's own format, and a damaged one may crash it. So a file begins with the sha256 of the rest.
Its name covers all that the blob depends on besides the artifact, whose folder it is in: settings, version,
processor.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.system import cpu
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.interrupts import kept_signal_stack
from edgekit.system.ownership import read_own

DIGEST_BYTES = hashlib.sha256().digest_size
LIMIT_BYTES = 1 << 30
KEPT = 4
"""Blobs of an artifact, e.g. for several numbers of threads."""


def blob_path(folder: Path, version: str, settings: Mapping[str, str]) -> Path:
    """Return the file in which this machine keeps what it compiles with these settings."""
    facts = repr((version, sorted(settings.items()), cpu.cpu_name(), cpu.instruction_sets()))
    return folder / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.blob"


def read_blob(core: Any, path: Path, device: str, settings: Mapping[str, str]) -> Any:
    """Return the ``openvino.CompiledModel`` that is kept, or None if there is none that OpenVINO takes."""
    try:
        content = read_own(path, LIMIT_BYTES)
        digest, blob = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        if hashlib.sha256(blob).digest() != digest:
            return None
        with kept_signal_stack():
            return core.import_model(blob, device, dict(settings))
    except (OSError, RuntimeError):  # absent, another user's, or another build of OpenVINO's
        return None


def keep_blob(compiled: Any, path: Path) -> None:
    """Keep a compiled model for the next process. A folder that can't be written to keeps nothing."""
    try:
        blob = compiled.export_model()
        if not isinstance(blob, bytes):
            blob = blob.getvalue()
        if len(blob) + DIGEST_BYTES >= LIMIT_BYTES:
            return
        private_folder(path.parent)
        write_atomically(path, [hashlib.sha256(blob).digest(), blob], 0o600)
        for old in sorted(path.parent.glob("*.blob"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            os.unlink(old)
    except (OSError, RuntimeError):
        return
