"""Images as files, and the directory of a TIFF."""

from __future__ import annotations

import io
import os
import re
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from edgekit.errors import SampleError
from edgekit.processing import picture_files
from edgekit.processing.picture_files import (
    FORMATS,
    ORIENTATION,
    PIXELS_LIMIT,
    SCANS_LIMIT,
    TOO_LARGE,
    check_directory,
    decode_picture,
    picture_size,
    read_picture,
)

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


@pytest.mark.parametrize("kind", ["EPS", "GIF", "PPM", "ICO", "TGA", "PCX"])
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_other_formats_are_refused_whatever_they_are_called(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    Image.new("RGB", (16, 16)).save(path, kind)
    assert refused(path) == "it is not one of JPEG, PNG, BMP, WEBP, TIFF; convert it to one of them"


def test_a_truncated_picture_says_what_to_do(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:6000])
    assert refused(tmp_path / "a.png").endswith("; save the picture again, or remove the file")


def test_postscript_never_reaches_ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program on the path that would say that it ran."""
    ran = tmp_path / "ran"
    for name in ("gs", "gswin32c", "gswin64c"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {ran}\n", "ascii")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    assert refused(tmp_path / "a.png").startswith("it is not one of ")
    assert not ran.exists()


@pytest.mark.parametrize("kind", FORMATS)
def test_the_formats_under_any_of_the_suffixes(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (16, 8), (255, 0, 0)).save(tmp_path / "a.png", kind)
    found = read_picture(tmp_path / "a.png")
    assert found.shape == (8, 16, 3)
    assert abs(found.astype(int) - (255, 0, 0)).max() <= 2


@pytest.mark.parametrize("side", [8193, 13_000, 60_000])
def test_a_picture_of_too_many_pixels_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    """13,000 x 13,000 pixels are 169 million, in a file of 20 KB; nothing is said but the error."""
    assert side * side > PIXELS_LIMIT
    (tmp_path / "a.png").write_bytes(png(side, side, bytes(side // 8 + 2) * 9, 1))
    monkeypatch.delattr("PIL.ImageFile.ImageFile.load")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert refused(tmp_path / "a.png") == TOO_LARGE
    assert TOO_LARGE == "it has more than 67 million pixels; scale it down first"


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


SAVED: dict[str, dict[str, Any]] = {
    "4:2:0": {}, "4:4:4": {"subsampling": 0}, "progressive": {"progressive": True},
    "RGB": {"keep_rgb": True, "subsampling": 0}, "grey": {"mode": "L"}, "CMYK": {"mode": "CMYK"},
    "turned": {"turned": 6},
}  # fmt: skip


@pytest.mark.parametrize("kind", SAVED)
def test_simplejpeg_gives_pillows_bytes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    options = {"mode": "RGB", **SAVED[kind]}
    exif = Image.Exif()
    exif[ORIENTATION] = options.pop("turned", 1)
    ramp = np.add.outer(np.arange(181), np.arange(301)).astype(np.uint8)
    noise = np.random.default_rng(0).integers(0, 9, (181, 301, 3), np.uint8)
    picture = Image.fromarray(np.stack([ramp, ramp[::-1], ramp // 2], 2) + noise)
    file = io.BytesIO()
    picture.convert(options.pop("mode")).save(file, "JPEG", exif=exif, **options)
    decoded = Mock(wraps=simplejpeg.decode_jpeg)
    monkeypatch.setattr(simplejpeg, "decode_jpeg", decoded)
    pixels = decode_picture(file.getvalue(), "a.jpg")
    assert decoded.call_count == (kind not in ("grey", "CMYK", "turned"))
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    np.testing.assert_array_equal(pixels, decode_picture(file.getvalue(), "a.jpg"))
    with pytest.raises(SampleError) as without:
        decode_picture(file.getvalue()[:2000], "a.jpg")
    monkeypatch.setitem(sys.modules, "simplejpeg", simplejpeg)
    with pytest.raises(SampleError) as error:
        decode_picture(file.getvalue()[:2000], "a.jpg")
    assert str(error.value) == str(without.value)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp", ".tif"])
@pytest.mark.parametrize("orientation", [None, *range(1, 9)])
def test_a_size_is_that_of_the_array(suffix: str, orientation: int | None, tmp_path: Path) -> None:
    options: dict[str, Any] = {}
    if orientation is not None and suffix != ".bmp":
        options["exif"] = Image.Exif()
        options["exif"][ORIENTATION] = orientation
    path = tmp_path / f"a{suffix}"
    Image.new("RGB", (5, 3)).save(path, **options)
    assert picture_size(path) == read_picture(path).shape[:2]


def test_a_size_is_read_without_the_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (50, 30)).save(tmp_path / "a.jpg")
    monkeypatch.setattr(picture_files, "_decoded", lambda content: pytest.fail("decoded"))
    assert picture_size(tmp_path / "a.jpg") == (30, 50)
    (tmp_path / "b.jpg").write_bytes(b"text")
    with pytest.raises(SampleError, match="it is not one of JPEG, PNG"):
        picture_size(tmp_path / "b.jpg")


def test_a_pipe_and_a_device_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("/dev/zero")
    for name in ("a.png", "b.png"):
        assert refused(tmp_path / name) == "it is not a regular file"


@pytest.mark.parametrize(
    ("compression", "mode"),
    [
        *(
            (kind, mode)
            for kind in ("raw", "tiff_lzw", "packbits")
            for mode in ("RGB", "L", "1", "P", "CMYK")
        ),
        *(("tiff_adobe_deflate", mode) for mode in ("RGB", "RGBA", "LA")),
        *(("jpeg", mode) for mode in ("RGB", "L", "CMYK")),
    ],
)
def test_tiff_of_8_bits(tmp_path: Path, compression: str, mode: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    image = Image.fromarray(noise).convert(mode)
    image.save(tmp_path / "a.tiff", compression=compression)
    found = read_picture(tmp_path / "a.tiff")
    assert found.shape == (9, 11, 3)
    if compression != "jpeg":
        np.testing.assert_array_equal(found, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_of_16_bits_keeps_the_upper_byte(tmp_path: Path, order: str) -> None:
    grey = np.random.default_rng(0).integers(0, 2**16, (5, 7), np.uint16)
    (tmp_path / "a.tif").write_bytes(tiff(order, grey.astype(f"{order}u2").tobytes(), 7, 5, bits=16))
    found = read_picture(tmp_path / "a.tif")
    for channel in range(3):
        np.testing.assert_array_equal(found[:, :, channel], grey >> 8)


def test_tiff_of_16_bits_and_three_channels_as_opencv_has_it(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    pixels = np.random.default_rng(0).integers(0, 2**16, (6, 5, 3), np.uint16)
    cv2.imwrite(str(tmp_path / "a.tif"), pixels)
    np.testing.assert_array_equal(read_picture(tmp_path / "a.tif"), pixels[:, :, ::-1] >> 8)


def test_tiff_is_turned_upright_once(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.array([[10, 20, 30]], np.uint8)).save(tmp_path / "a.tif", exif=exif)
    assert read_picture(tmp_path / "a.tif")[:, :, 0].tolist() == [[10], [20], [30]]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_tiff_of_32_bits_is_refused(tmp_path: Path, dtype: type) -> None:
    Image.fromarray(np.zeros((2, 2), dtype)).save(tmp_path / "a.tif")
    assert refused(tmp_path / "a.tif") == (
        "its pixels have 32 bits, so the value of white is unknown; save it with 8 or 16"
    )


def test_of_several_pages_the_first_is_read(tmp_path: Path) -> None:
    pages = [Image.new("L", (4, 3), colour) for colour in (10, 200)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert read_picture(tmp_path / "a.tif").max() == 10


def test_a_tiff_of_too_many_pixels(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(tiff("<", b"\0", 60_000, 60_000))
    assert refused(tmp_path / "a.tif") == TOO_LARGE


def tiff(order: str, pixels: bytes, width: int, height: int, bits: int = 8) -> bytes:
    """An uncompressed grey TIFF of one strip."""
    entries = [
        (256, width),
        (257, height),
        (258, bits),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, height),
    ]
    entries.append((279, len(pixels)))
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8 + len(pixels))
    rows = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in entries)
    return head + pixels + struct.pack(f"{order}H", len(entries)) + rows + bytes(4)


def test_what_pillow_logs_of_a_corrupt_file_is_not_printed(tmp_path: Path) -> None:
    """In a process without a handler for logs: there Python prints errors to stderr."""
    pil = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    pil.fromarray(np.zeros((8, 8, 3), np.uint8)).save(buffer, "TIFF")
    content = bytearray(buffer.getvalue())
    (directory,) = struct.unpack_from("<I", content, 4)
    (count,) = struct.unpack_from("<H", content, directory)
    entries = (directory + 2 + 12 * number for number in range(count))
    samples_per_pixel = next(at for at in entries if struct.unpack_from("<H", content, at) == (277,))
    struct.pack_into("<H", content, samples_per_pixel + 8, 9)
    (tmp_path / "x.tif").write_bytes(content)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from edgekit.errors import SampleError\n"
        "from edgekit.processing.picture_files import read_picture\n"
        "try:\n    read_picture(Path(sys.argv[1]))\n"
        "except SampleError:\n    sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.tif")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (7, "")


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
