"""The readers of what a repository's channel says, under a signature that holds."""

from __future__ import annotations

import json
from pathlib import Path

from edgekit.errors import UpdateError, printable
from edgekit.updates.releases import Target as UpdateTarget
from edgekit.updates.releases import parse_channel, parse_release
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
    """Channels and releases."""

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
    }
