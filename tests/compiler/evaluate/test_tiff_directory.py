"""Directories of hostile TIFF files, written byte by byte."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from edgekit.compiler.evaluate.picture_files import read_picture
from edgekit.compiler.evaluate.tiff_directory import check_directory
from edgekit.errors import SampleError

PIXELS = 1 << 26


def written(*entries: tuple[int, int, int, int], order: str = "<", magic: int = 42, tail: int = 0) -> bytes:
    """A TIFF with one directory of (tag, type, count, value), and zeros behind it."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", magic, 8)
    rows = b"".join(struct.pack(f"{order}HHII", *entry) for entry in entries)
    return head + struct.pack(f"{order}H", len(entries)) + rows + bytes(4 + tail)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (written(magic=43), "it is not a plain TIFF (a BigTIFF?); save it again as TIFF or PNG"),
        (b"II*\0", "it is not a plain TIFF (a BigTIFF?); save it again as TIFF or PNG"),
        (b"II" + struct.pack("<HI", 42, 5000), "its directory is truncated"),
        (
            b"MM" + struct.pack(">HIH", 42, 8, 900),
            "its directory is truncated, or has more than 1000 entries",
        ),
        (
            written(*((tag, 1, 1, 0) for tag in range(1001))),
            "its directory is truncated, or has more than 1000 entries",
        ),
        # Each names the same 600 bytes: a reader that copies them needs 200 times the file.
        (
            written(*((40000 + tag, 7, 600, 8) for tag in range(200)), tail=600),
            "its directory names more data than the file has",
        ),
        (written((256, 2, 2**32 - 1, 8)), "its directory names more data than the file has"),
        # An EXIF directory that names itself.
        (written((34665, 4, 1, 8)), "its directory is truncated, or has more than 1000 entries"),
        (
            written((322, 4, 1, 2**31), (323, 4, 1, 2**31)),
            "its tiles have 2147483648 x 2147483648 pixels; save it with smaller ones",
        ),
    ],
)
def test_a_directory_that_is_no_honest_one(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        check_directory(content, PIXELS)


def test_it_is_checked_before_a_picture_is_read(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    (tmp_path / "a.jpg").write_bytes(written((256, 2, 2**32 - 1, 8)))  # whatever it is called
    with pytest.raises(SampleError, match=r"as a picture: its directory names more data than the file has$"):
        read_picture(tmp_path / "a.jpg")


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiles_of_short_numbers(order: str) -> None:
    left = 0 if order == "<" else 16
    short = (3, 1, 65535 << left)
    content = written((322, *short), (323, *short), order=order)
    with pytest.raises(ValueError, match="its tiles have 65535 x 65535 pixels"):
        check_directory(content, PIXELS)
    check_directory(written((322, 3, 1, 256 << left), (323, 3, 1, 256 << left), order=order), PIXELS)
