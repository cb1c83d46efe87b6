"""What a channel says is text for a terminal, whoever signs it."""

from __future__ import annotations

import pytest

from edgekit.errors import UpdateError
from edgekit.release.updates.releases import Target, parse_channel, parse_release
from edgekit.tensor_spec import Json

PATH = "stable/detector/3.edgekit"


@pytest.mark.parametrize(("text", "shown"), [("\x1b[2J", r"\x1b[2J"), ("\u202e", r"\u202e"), ("é\n", "é\n")])
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    index = {"issued": "2026-11-22T10:00:00Z", "stopped": text, "models": {}}
    assert parse_channel("stable", {"edgekit": index}).stopped == shown
    release = {"release": 3, "bundle": "a" * 64, "buckets": 1, "withdrawn": text}
    assert parse_release(Target(PATH, PATH, 1, "b" * 64, {"edgekit": release})).withdrawn == shown


SIGNED = {"release": 3, "bundle": "a" * 64, "buckets": 1, "deltas": {}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("release", 0),
        ("release", True),
        ("release", 1 << 31),
        ("buckets", -1),
        ("buckets", 10_001),
        ("buckets", True),
        ("deltas", []),
        ("deltas", {"../x": "y"}),
        ("deltas", {"a" * 64: 7}),
        ("bundle", "A" * 64),
        ("bundle", "a" * 63),
        ("bundle", 7),
        ("withdrawn", "x" * 1001),
        ("withdrawn", ["x"]),
        ("signature", "x" * 301),
    ],
)
def test_a_malformed_release_is_refused(key: str, value: object) -> None:
    def parsed(custom: object) -> None:
        parse_release(Target(PATH, PATH, 1, "b" * 64, {"edgekit": custom}))

    parsed(SIGNED)
    with pytest.raises(UpdateError) as error:
        parsed({**SIGNED, key: value})
    assert str(error.value) == (
        f"{PATH}: what is signed about it has no valid {key!r}\n"
        "  it was not made by `edgekit release publish`, or by a newer one than this"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("issued", "yesterday"),
        ("issued", "2026-11-22T10:00:00Zx"),
        ("stopped", "x" * 1001),
        ("stopped", 1),
        ("models", []),
        ("models", {"../x": [1]}),
        ("models", {"a": 1}),
        ("models", {"a": [0]}),
        ("models", {"a": [True]}),
        ("models", {"a": [1 << 31]}),
        ("models", {"a": list(range(1, 102))}),
    ],
)
def test_a_malformed_channel_is_refused(key: str, value: object) -> None:
    index = {"issued": "2026-11-22T10:00:00Z", "stopped": "", "models": {"a": [2, 1]}}
    assert parse_channel("stable", {"edgekit": index}).models == {"a": (2, 1)}
    with pytest.raises(UpdateError, match=f"^stable: what is signed about it has no valid '{key}'"):
        parse_channel("stable", {"edgekit": {**index, key: value}})
    nothing: list[Json] = [None, [], {}, {"edgekit": []}]
    for none in nothing:
        with pytest.raises(UpdateError, match="has no valid 'edgekit'"):
            parse_channel("stable", none)
