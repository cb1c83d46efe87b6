"""Crafted states, slots and signatures."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fixtures.bundles import small_bundle, variant
from tests.hostile.case import ESCAPE, Case


def _state(content: bytes) -> Callable[[Path], Path]:
    """A store whose state files are these bytes."""

    def make(folder: Path) -> Path:
        root = installed(folder)
        for path in root.rglob("*.json"):
            path.write_bytes(content)
        return root

    return make


def _sealed(**fields: Any) -> bytes:
    """A state file under a hash that fits."""
    lists: dict[str, Any] = {"good": [], "given_up": [], "stood_in": []}
    state = {"serial": 9, "active": "", "staged": "", "starts": 0, **lists, **fields}
    text = json.dumps({key: value for key, value in state.items() if value is not None}).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def _older(current: str) -> bytes:
    """The form that was written before bundles were staged."""
    return _sealed(active=None, staged=None, current=current)


def _state_pipe(folder: Path) -> Path:
    root = installed(folder)
    for path in list(root.rglob("*.json")):
        path.unlink()
        os.mkfifo(path)
    return root


def _slot(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        root = installed(folder)
        (slot,) = (root / "slots").glob("*.edgekit")
        change(slot)
        return root

    return make


def _linked(slot: Path) -> None:
    slot.unlink()
    slot.symlink_to("/dev/zero")


def installed(folder: Path) -> Path:
    """A store with a bundle beside ``factory.edgekit``."""
    from edgekit.runtime.store.bundle_store import Store

    factory = small_bundle([variant("factory", "ort")]).save(folder / "factory.edgekit")
    store = Store(folder / "store", factory)
    store.install(small_bundle([variant("new", "ort")]).save(folder / "new.edgekit"))
    return store.root


def _signed(content: bytes | None) -> Callable[[Path], Path]:
    """A bundle with this as its signature; None: a pipe."""

    def make(folder: Path) -> Path:
        path = small_bundle().save(folder / "a.edgekit")
        beside = folder / "a.edgekit.sig"
        os.mkfifo(beside) if content is None else beside.write_bytes(content)
        return path

    return make


SIGSTORE = "application/vnd.dev.sigstore.bundle.v0.3+json"
KEYLESS = {"mediaType": SIGSTORE, "verificationMaterial": {}, "dsseEnvelope": {}}
# A torn state file is what a power cut leaves, so one that is invalid is passed over without a word.
STORES = {
    "state of noise": Case("store", _state(bytes(range(256))), ""),
    "state of megabytes": Case("store", _state(b"x" * (4 << 20)), ""),
    "state with a path": Case("store", _state(_sealed(staged="../../../evil")), ""),
    "state with an unknown slot": Case("store", _state(_sealed(staged="a" * 64)), "its file is missing"),
    "older state with a path": Case("store", _state(_older("/etc/passwd")), ""),
    "older state with an unknown slot": Case("store", _state(_older("b" * 64)), "its file is missing"),
    "state of counts": Case("store", _state(_sealed(answers=[["c" * 64, -5, 10**30]], versions=7)), ""),
    "state of lists": Case("store", _state(_sealed(good=[["a"]], given_up=3)), ""),
    "state of another size": Case("store", _state(_sealed(serial=10**30, starts=-(10**30))), ""),
    "state of a pipe": Case("store", _state_pipe, "cannot be"),
    "slot of noise": Case(
        "store", _slot(lambda slot: slot.write_bytes(b"x" * 100)), "not the bundle that was installed"
    ),
    "slot cut": Case("store", _slot(lambda slot: slot.write_bytes(b"")), "not the bundle that was installed"),
    "slot that is endless": Case("store", _slot(_linked), "cannot be used"),
    "slots for everybody": Case("store", _slot(lambda slot: slot.parent.chmod(0o777)), "cannot be"),
    "signature of noise": Case(
        "signature", _signed(bytes(range(256))), "is not a signature that can be checked"
    ),
    "signature deep": Case("signature", _signed(b"[" * 200_000), "is not a signature that can be checked"),
    "signature of megabytes": Case("signature", _signed(b" " * (4 << 20)), "it has more than 256 kB"),
    "signature of a pipe": Case("signature", _signed(None), "it is not a regular file"),
    "signature of escape codes": Case(
        "signature", _signed(json.dumps({"mediaType": ESCAPE}).encode()), "checked"
    ),
    "signature without a key": Case("signature", _signed(json.dumps(KEYLESS).encode()), "checked"),
}
