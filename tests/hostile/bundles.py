"""Crafted bundles and manifests."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgekit.bundle import Bundle
from edgekit.system.formats.npy import npy_bytes
from tests.fixtures.bundles import X, pack, packed_parts, small_bundle
from tests.hostile.case import ESCAPE, Case, file, link, pipe

GOOD, DATA = packed_parts(small_bundle())


def _manifest(**changes: Any) -> Callable[[Path], Path]:
    return file("a.edgekit", pack(json.dumps({**json.loads(json.dumps(GOOD)), **changes}).encode(), DATA))


def _text(text: str) -> Callable[[Path], Path]:
    return file("a.edgekit", pack(text.encode("utf-8", "surrogatepass"), DATA))


def _entries(contents: dict[str, bytes]) -> Callable[[Path], Path]:
    """A bundle whose entries are others, under a manifest that fits."""
    kept = {key: value for key, value in GOOD.items() if key != "entries"}
    parts = {"golden/0/x.npy": npy_bytes(X), "golden/0/y.npy": npy_bytes(2 * X)}
    parts |= {"variants/ort-fp32/model.bin": b"m", **contents}
    return lambda folder: Bundle.create(kept, parts).save(folder / "a.edgekit")


def _first(**changes: Any) -> Callable[[Path], Path]:
    entries = json.loads(json.dumps(GOOD["entries"]))
    entries[0].update(changes)
    return _manifest(entries=entries)


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


WHOLE = pack(json.dumps(GOOD).encode(), DATA)
PICKLE = npy_bytes(X).replace(b"'<f4'", b"'|O' ")
BUNDLES = {
    "empty": Case("inspect", file("a.edgekit", b""), "it is empty"),
    "zip": Case("inspect", file("a.edgekit", b"PK\3\4" + bytes(99)), "header: it starts with"),
    "cut header": Case("inspect", file("a.edgekit", WHOLE[:40]), "the file has 40 of 64 bytes"),
    "cut": Case("inspect", file("a.edgekit", WHOLE[:-1]), "header: it declares"),
    "other version": Case("inspect", file("a.edgekit", pack(b"{}", version=99)), "format version 99"),
    "manifest of exabytes": Case(
        "inspect", file("a.edgekit", pack(b"{}", manifest_size=2**62)), "the limit is"
    ),
    "terabyte": Case("inspect", _sparse, "the limit is"),
    "hash": Case("inspect", file("a.edgekit", pack(b"{}", digest=bytes(32))), "its sha256 is not"),
    "deep": Case("inspect", _text('{"a":' * 90_000 + "1" + "}" * 90_000), "more than 32 deep"),
    "values": Case("inspect", _text("[" + "0," * 600_000 + "0]"), "the limit is 500000"),
    "twice": Case("inspect", _text('{"tools":{},"tools":{}}'), "is twice"),
    "long number": Case("inspect", _text('{"a":' + "7" * 99_999 + "}"), "a number of 99999 digits"),
    "surrogate": Case("inspect", _text('{"a":"\\udc80"}'), "or half of a surrogate pair"),
    "escape codes": Case("inspect", _manifest(edgekit=ESCAPE), "or half of a surrogate pair"),
    "unknown key": Case("inspect", _manifest(**{ESCAPE[1:-4]: 1}), "or half of a surrogate pair"),
    "path out": Case("inspect", _first(name="../../evil"), "is not a plain relative name"),
    "absolute path": Case("inspect", _first(name="/etc/evil"), "is not a plain relative name"),
    "a device's name": Case("inspect", _first(name="aux.npy"), "a device's name on Windows"),
    "overlap": Case("inspect", _first(size=1 << 50), "is expected"),
    "tensor of exabytes": Case(
        "inspect",
        _manifest(inputs=[{"name": "x", "dtype": "float32", "shape": [1 << 40, 1 << 20]}]),
        "the limit is",
    ),
    "evidence": Case(
        "inspect",
        _manifest(variants=[{**GOOD["variants"][0], "evidence": {"accuracy": 3}}]),
        "invalid evidence",
    ),
    "artifact changed": Case("inspect", _flipped, "its sha256 is not the one in the manifest"),
    "golden pickle": Case("inspect", _entries({"golden/0/x.npy": PICKLE}), "s not match x float32 1x6"),
    "pipe": Case("inspect", pipe("a.edgekit"), "it is not a regular file"),
    "endless": Case("inspect", link("a.edgekit", "/dev/zero"), "it is not a regular file"),
    "folder": Case("inspect", lambda folder: folder, "it is not a regular file"),
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
