"""Crafted cards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.hostile.case import Case, file

CARD_TOML = """title = "c"
[inputs.x]
kind = "image"
shape = [1, 3, 8, 8]
layout = "NCHW"
colour = "RGB"
resize = "stretch"
[task]
kind = "classify"
decode = "logits"
labels = %s
outputs = { scores = "y" }
"""


def _card(labels: str, name: str = "", target: str = "") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if name and target:
            (folder / name).symlink_to(target)
        elif name:
            os.mkfifo(folder / name)
        path = folder / "card.toml"
        path.write_text(CARD_TOML % labels)
        return path

    return make


CARDS = {
    "labels out": Case("card", _card('"../../etc/passwd"'), "it must be a list or a file in its folder"),
    "labels of another file": Case("card", _card('"l.txt"', "l.txt", "/etc/passwd"), "it is a symbolic link"),
    "labels of a pipe": Case("card", _card('"l.txt"', "l.txt"), "it is not a regular file"),
    "labels endless": Case("card", _card('"l.txt"', "l.txt", "/dev/zero"), "it is a symbolic link"),
    "labels zero byte": Case("card", _card('"a\\u0000b"'), "its name contains a zero byte"),
    "nested": Case("card", _card("[" * 50_000), "nested too deep"),
    "infinite": Case(
        "card", file("card.toml", (CARD_TOML % "[]").replace("[1, 3", "[1e999, 3").encode()), "shape"
    ),
    "negative": Case(
        "card", file("card.toml", (CARD_TOML % "[]").replace("8, 8", "-8, 8").encode()), "shape"
    ),
    "escape codes in a key": Case("card", file("card.toml", b'title = "c"\n"\\u001b[2J" = 1\n'), r"\x1b[2J"),
    "a megabyte": Case("card", file("card.toml", b"# " + b"x" * (2 << 20)), "more than 1 MB"),
    "not UTF-8": Case("card", file("card.toml", b'title = "\xff\xfe"'), "can't be read as a card"),
    "digits": Case("card", file("card.toml", b"title = " + b"9" * 100_000), "is not valid TOML"),
}
