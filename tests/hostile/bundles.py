"""Crafted bundles and manifests."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fixtures.bundles import pack, packed_parts, small_bundle
from tests.hostile.case import ESCAPE, Case, file, link

GOOD, DATA = packed_parts(small_bundle())


def _manifest(**changes: Any) -> Callable[[Path], Path]:
    return file("a.edgekit", pack(json.dumps({**json.loads(json.dumps(GOOD)), **changes}).encode(), DATA))


def _text(text: str) -> Callable[[Path], Path]:
    return file("a.edgekit", pack(text.encode("utf-8", "surrogatepass"), DATA))


def _sparse(folder: Path) -> Path:
    path = folder / "a.edgekit"
    with path.open("wb") as file:
        file.write(struct.pack("<8sIIQQ32s", b"EDGEKIT\0", 1, 0, 100, 1 << 40, bytes(32)))
        file.truncate(1 << 40)
    return path


def _flipped(folder: Path) -> Path:
    path = small_bundle().save(folder / "a.edgekit")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return path


# The forms of a manifest and a header are those of tests/bundle/test_hostile_bundle.py.
BUNDLES = {
    "manifest of exabytes": Case(
        "inspect", file("a.edgekit", pack(b"{}", manifest_size=2**62)), "the limit is"
    ),
    "terabyte": Case("inspect", _sparse, "the limit is"),
    "values": Case("inspect", _text("[" + "0," * 600_000 + "0]"), "the limit is 500000"),
    "escape codes": Case("inspect", _manifest(edgekit=ESCAPE), "or half of a surrogate pair"),
    "unknown key": Case("inspect", _manifest(**{ESCAPE[1:-4]: 1}), "or half of a surrogate pair"),
    "path out": Case("inspect", _manifest(entries=[{**GOOD["entries"][0], "name": "../../evil"}]), "plain"),
    "evidence": Case(
        "inspect",
        _manifest(variants=[{**GOOD["variants"][0], "evidence": {"accuracy": 3}}]),
        "invalid evidence",
    ),
    "artifact changed": Case("inspect", _flipped, "its sha256 is not the one in the manifest"),
    "endless": Case("inspect", link("a.edgekit", "/dev/zero"), "it is not a regular file"),
    "cascade of nothing": Case(
        "stage",
        _manifest(
            cascade={
                "stages": [{"name": "s"}],
                "bundles": {"s": {"entry": "golden/0/x.npy", "digest": "0" * 64}},
            }
        ),
        "header: it starts with",
    ),
}
