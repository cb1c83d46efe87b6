"""Names of an ONNX file's external data, found without parsing it."""

from __future__ import annotations

import mmap
import re
from itertools import islice
from pathlib import Path

NAMES_LIMIT = 100_000
_EXTERNAL = re.compile(rb"\n\x08location\x12([\x01-\x7f])")
"""An entry of ``external_data`` in onnx.proto, up to the length of the file's name."""
_SCANNED_BYTES = 256 << 20


def external_names(model: Path) -> set[str]:
    """Return the names that may be external data's, without parsing; extra names are harmless."""
    if (
        model.suffix.lower() != ".onnx"
        or not model.is_file()
        or not 0 < model.stat().st_size < _SCANNED_BYTES
    ):
        return set()
    with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        names = set()
        for match in islice(_EXTERNAL.finditer(content), NAMES_LIMIT):
            name = content[match.end() : match.end() + match[1][0]]
            names.add(name.decode("utf-8", "replace"))
    return {name for name in names if not set(name) & set("/\\\0")}
