"""Seeded mutations of cards, arrays and pictures: what can't be read is one error, at once, and no traceback.

``EDGEKIT_FUZZ=20`` runs twenty times as many.
"""

from __future__ import annotations

import io
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.array_files import read_arrays
from edgekit.errors import CardError, SampleError
from edgekit.processing import load_card
from edgekit.processing.card import parse_card
from edgekit.processing.picture_files import read_picture
from edgekit.tensor_spec import TensorSpec

CARDS = sorted((Path(__file__).resolve().parents[3] / "samples" / "cards").glob("*.toml"))
TIMES = int(os.environ.get("EDGEKIT_FUZZ", "1"))

TOML_TOKENS = (
    "1e400", "nan", "-inf", "1e-320", "1e-40", "-1", "0", "9" * 400, "9" * 5000, "0x" + "f" * 6000, "true",
    '""', '"."', '".."', '"a\\u0000b"', '"\\u001b[2J"', '"/dev/zero"', '"pipe"', '"link"', "[]", "[[]]", "{}",
    "[" * 2000, "{" * 50, "1979-05-27", "\\", "\0", "= =", "[task]", "[[inputs]]", "[latency]", "\u202e",
)  # fmt: skip


def test_cards(tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [path.read_text("utf-8") for path in CARDS]
    assert len(texts) > 5
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    path = tmp_path / "card.toml"
    good = 0
    for _ in range(3000 * TIMES):
        text = draw.choice(texts)
        for _ in range(draw.randint(1, 3)):
            text = _mutated_text(text, draw)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        why = "?"
        try:
            card = load_card(path)
            card.ranges()
            assert parse_card(card.as_json()) == card
            good += 1
        except CardError as problem:
            why = str(problem)
        assert why
    assert good > 30 * TIMES  # it is not the first check alone that refuses


def _mutated_text(text: str, draw: random.Random) -> str:
    kind, at = draw.random(), draw.randrange(len(text) + 1)
    values = list(re.finditer(r"= (.*)", text))
    if kind < 0.4 and values:
        value = draw.choice(values)
        return text[: value.start(1)] + draw.choice(TOML_TOKENS) + text[value.end(1) :]
    if kind < 0.6:
        return text[:at] + draw.choice(TOML_TOKENS) + text[at:]
    if kind < 0.8:
        return text[:at] + text[at + draw.randint(1, 20) :]
    return text[:at] + chr(draw.randrange(256)) + text[at + 1 :]


def _mutants(contents: Sequence[bytes], count: int, draw: random.Random) -> Iterator[bytes]:
    """Bits flipped, bytes replaced by telling ones, pieces cut out, repeated, or of another file."""
    telling = (b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"9" * 12, b"\x80")
    for _ in range(count):
        content = bytearray(draw.choice(contents))
        for _ in range(draw.randint(1, 4)):
            kind, at = draw.randrange(6), draw.randrange(len(content) + 1)
            # Headers are where the lies are: every second change is near the beginning or the end.
            near = draw.choice(
                (at, min(at, draw.randrange(150)), max(0, len(content) - draw.randrange(1, 150)))
            )
            if kind < 2 and near < len(content):
                content[near] ^= 1 << draw.randrange(8)
            elif kind == 2:
                new = draw.choice(telling)
                content[near : near + len(new)] = new
            elif kind == 3:
                del content[near : near + draw.randint(1, 40)]
            elif kind == 4:
                content[near:near] = content[at : at + draw.randint(1, 60)]
            else:
                content = content[:at] + draw.choice(contents)[at:]
        yield bytes(content)


def _read_all(
    path: Path, contents: Sequence[bytes], count: int, read: Callable[[Path], object], seed: int
) -> int:
    """How many of the mutants could be read."""
    good = 0
    for content in _mutants(contents, count, random.Random(seed)):
        path.write_bytes(content)
        why = str(path)
        try:
            read(path)
            good += 1
        except SampleError as problem:
            why = str(problem)
        assert why.startswith(str(path))
    return good


X = TensorSpec("x", "float32", (4, 5))
Y = TensorSpec("y", "int64", (3,))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_arrays(tmp_path: Path, suffix: str) -> None:
    x, y = np.arange(20, dtype=np.float32).reshape(4, 5), np.arange(3)
    contents = []
    for number in range(2):
        whole = io.BytesIO()
        if suffix == ".npy":
            np.save(whole, x if number == 0 else np.asfortranarray(x))
        else:
            (np.savez, np.savez_compressed)[number](whole, x=x, y=y)
        contents.append(whole.getvalue())
    inputs = [X] if suffix == ".npy" else [X, Y]

    def read(path: Path) -> None:
        for spec, array in zip(inputs, read_arrays(path, inputs).values(), strict=True):
            assert (array.shape, array.dtype) == (spec.shape, np.dtype(spec.dtype))

    good = _read_all(tmp_path / f"a{suffix}", contents, 2500 * TIMES, read, 2)
    assert good > 10 * TIMES


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP"])
def test_pictures(tmp_path: Path, kind: str) -> None:
    image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    exif = image.Exif()
    exif[0x0112] = 6
    options = [{}, {"exif": exif}] if kind != "BMP" else [{}]
    if kind == "JPEG":
        options.append({"progressive": True})
    contents = []
    for option in options:
        whole = io.BytesIO()
        image.fromarray(noise).save(whole, kind, **option)
        contents.append(whole.getvalue())

    def read(path: Path) -> None:
        picture = read_picture(path)
        assert picture.dtype == np.uint8
        assert (picture.ndim, picture.shape[2]) == (3, 3)

    good = _read_all(tmp_path / "a.png", contents, 500 * TIMES, read, 3)
    assert good > 5 * TIMES
