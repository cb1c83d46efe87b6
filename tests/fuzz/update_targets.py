"""The readers of what a repository serves: what a channel says and differences between bundles."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np

from edgekit.errors import UpdateError, printable
from edgekit.release.updates.delta import BLOCK, HEAD, MAGIC, DeltaError, apply_delta, make_delta
from edgekit.release.updates.releases import Target as UpdateTarget
from edgekit.release.updates.releases import parse_channel, parse_release
from tests.fixtures.bundle_mutations import bytes_changed
from tests.fixtures.bundles import small_bundle
from tests.fuzz import mutations
from tests.fuzz.target import READ, REFUSED, Target, refused

INDEX = {"edgekit": {"issued": "2026-11-22T10:00:00Z", "stopped": "", "models": {"detector": [3, 2]}}}
DELTAS = {"b" * 64: "stable/detector/3.from-2.delta"}
RELEASE = {
    "edgekit": {
        "release": 3,
        "bundle": "a" * 64,
        "buckets": 2500,
        "withdrawn": "",
        "signature": "stable/detector/3.sig",
        "deltas": DELTAS,
    }
}


def updates(folder: Path) -> dict[str, Target]:
    """Channels and releases, under a signature that holds, and differences."""

    def read_channel(content: bytes) -> str:
        try:
            found = parse_channel("stable", json.loads(content))
        except UpdateError as problem:
            return refused(problem)
        except ValueError:
            return REFUSED  # by python-tuf, which reads the file
        assert printable(found.stopped) == found.stopped
        assert all("/" not in name and ".." not in name for name in found.models)
        return READ

    def read_release(content: bytes) -> str:
        path = "stable/detector/3.edgekit"
        try:
            custom = json.loads(content)
        except ValueError:
            return REFUSED
        try:
            found = parse_release(UpdateTarget(path, path, 1, "c" * 64, custom))
        except UpdateError as problem:
            return refused(problem)
        assert len(found.bundle) == 64
        assert printable(found.withdrawn) == found.withdrawn
        return READ

    changed = mutations.changed_json
    return {
        "channel": Target(2, lambda draw: changed(draw, INDEX), read_channel),
        "release": Target(2, lambda draw: changed(draw, RELEASE), read_release),
        "difference": _difference(folder),
    }


def _difference(folder: Path) -> Target:
    old, new, path = folder / "old.edgekit", folder / "new.edgekit", folder / "case.delta"
    weights = np.arange(4096, dtype=np.float32)
    noise = np.random.default_rng(0).bytes(3000)
    small_bundle(entries={"a.bin": weights.tobytes(), "b.bin": noise}).save(old)
    small_bundle(entries={"a.bin": (weights + 1).tobytes(), "b.bin": noise[7:] + b"new"}).save(new)
    out = io.BytesIO()
    make_delta(old, new, out)
    whole, wanted = out.getvalue(), new.read_bytes()
    start = len(MAGIC) + HEAD.size

    def make(draw: random.Random) -> bytes:
        """Blocks with other fields, in another order, or with another payload; the file's hashes fit."""
        if draw.random() < 0.2:
            return bytes_changed(draw, whole)
        blocks, at = [], start
        while at < len(whole):
            fields = list(BLOCK.unpack_from(whole, at))
            at += BLOCK.size
            blocks.append((fields, whole[at : at + fields[-1]]))
            at += fields[-1]
        for _ in range(draw.choice((1, 1, 2))):
            fields, payload = draw.choice(blocks)
            how = draw.randrange(4)
            if how == 0:
                bits = (8, 8, 8, 32, 64, 32, 32)
                field = draw.randrange(len(bits))
                fields[field] = draw.choice((0, 1, 2, 3, 4, fields[field] + 1, 2 ** bits[field] - 1))
                fields[field] %= 2 ** bits[field]
            elif how == 1:
                blocks.append((list(fields), payload))
            elif how == 2:
                draw.shuffle(blocks)
            else:
                payload = bytes_changed(draw, payload)
                fields[-1] = len(payload)
                blocks[draw.randrange(len(blocks))] = (fields, payload)
        return whole[:start] + b"".join(BLOCK.pack(*fields) + payload for fields, payload in blocks)

    def read(content: bytes) -> str:
        path.write_bytes(content)
        made = io.BytesIO()
        try:
            apply_delta(old, path, made)
        except (DeltaError, ValueError) as problem:  # both are told; ValueError: an empty file
            return refused(problem)
        assert made.getvalue() == wanted
        return READ

    return Target(4, make, read)
