"""What a channel says is text for a terminal, whoever signs it."""

from __future__ import annotations

import pytest

from edgekit.updates.releases import Target, parse_channel, parse_release

PATH = "stable/detector/3.edgekit"


@pytest.mark.parametrize(("text", "shown"), [("\x1b[2J", r"\x1b[2J"), ("\u202e", r"\u202e"), ("é\n", "é\n")])
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    index = {"issued": "2026-11-22T10:00:00Z", "stopped": text, "models": {}}
    assert parse_channel("stable", {"edgekit": index}).stopped == shown
    release = {"release": 3, "bundle": "a" * 64, "buckets": 1, "withdrawn": text}
    assert parse_release(Target(PATH, PATH, 1, "b" * 64, {"edgekit": release})).withdrawn == shown
