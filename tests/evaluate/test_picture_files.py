"""Pictures from elsewhere: four formats by content, a bound on pixels, and 16 bits that stay a picture."""

from __future__ import annotations

import io
import os
import struct
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import SampleError
from edgekit.evaluate.picture_files import FORMATS, PIXELS_LIMIT, SCANS_LIMIT, TOO_LARGE, read_picture

Image = pytest.importorskip("PIL.Image")


def refused(path: Path) -> str:
    with pytest.raises(SampleError) as error:
        read_picture(path)
    return str(error.value).replace(f"{path} can't be read as a picture: ", "")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, rows: bytes, bits: int = 8, colour: int = 0) -> bytes:
    """A PNG of these unfiltered rows, each with its filter byte; colour 0: grey, 2: RGB."""
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("colour", [0, 2])
def test_16_bits_become_8_by_their_upper_byte(tmp_path: Path, colour: int) -> None:
    """Grey and RGB alike, and as OpenCV reads them. They were white: above 255 is 255."""
    values = np.array([0, 255, 256, 0x1234, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF], np.uint16)
    pixels = np.repeat(values[None, :, None], 3 if colour else 1, axis=2)
    path = tmp_path / "a.png"
    path.write_bytes(png(8, 1, b"\0" + pixels.astype(">u2").tobytes(), 16, colour))
    found = read_picture(path)
    assert found.shape == (1, 8, 3)
    assert found.dtype == np.uint8
    for channel in range(3):
        np.testing.assert_array_equal(found[0, :, channel], values >> 8)


def test_16_bits_as_opencv_has_them(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    grey = np.random.default_rng(0).integers(0, 2**16, (30, 40), np.uint16)
    Image.fromarray(grey).save(tmp_path / "a.png")
    expected = cv2.cvtColor(cv2.imread(str(tmp_path / "a.png")), cv2.COLOR_BGR2RGB)
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png"), expected)


def test_16_bits_are_turned_upright_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    grey = np.array([[0x1000, 0x2000, 0x3000]], np.uint16)
    Image.fromarray(grey).save(tmp_path / "a.png", exif=exif)
    assert read_picture(tmp_path / "a.png")[:, :, 0].tolist() == [[0x10], [0x20], [0x30]]


@pytest.mark.parametrize("kind", ["EPS", "GIF", "TIFF", "PPM", "ICO", "TGA", "PCX"])
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_other_formats_are_refused_whatever_they_are_called(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    Image.new("RGB", (16, 16)).save(path, kind)
    assert refused(path) == "it holds none of JPEG, PNG, BMP, WEBP; convert it to one of them"


def test_postscript_never_reaches_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program on the path that would say that it ran."""
    ran = tmp_path / "ran"
    for name in ("gs", "gswin32c", "gswin64c"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {ran}\n", "ascii")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    assert refused(tmp_path / "a.png").startswith("it holds none of ")
    assert not ran.exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_the_four_formats_under_any_of_the_suffixes(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (16, 8), (255, 0, 0)).save(tmp_path / "a.png", kind)
    found = read_picture(tmp_path / "a.png")
    assert found.shape == (8, 16, 3)
    assert abs(found.astype(int) - (255, 0, 0)).max() <= 2


@pytest.mark.parametrize("side", [8193, 13_000, 60_000])
def test_a_picture_of_too_many_pixels_is_not_decoded(tmp_path: Path, side: int) -> None:
    """13,000 x 13,000 pixels are 169 million, in a file of 20 KB; nothing is said but the error."""
    assert side * side > PIXELS_LIMIT
    (tmp_path / "a.png").write_bytes(png(side, side, bytes(side // 8 + 2) * 9, 1))
    began = time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert refused(tmp_path / "a.png") == TOO_LARGE
    assert time.thread_time() - began < 1
    assert TOO_LARGE == "it has more than 67 million pixels; make it smaller first"


def test_a_jpeg_of_thousands_of_scans(tmp_path: Path) -> None:
    content = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(content, "JPEG", progressive=True)
    whole = content.getvalue()
    assert whole.count(b"\xff\xda") == 10
    last = whole.rindex(b"\xff\xda")
    (tmp_path / "a.jpg").write_bytes(whole)
    read_picture(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes(whole[:last] + whole[last:-2] * SCANS_LIMIT + b"\xff\xd9")
    assert refused(tmp_path / "a.jpg") == ("it is a JPEG of more than 500 scans; save it as a baseline JPEG")


def test_a_pipe_and_a_device_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("/dev/zero")
    for name in ("a.png", "b.png"):
        assert refused(tmp_path / name) == "it is not a regular file"
