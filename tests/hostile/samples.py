"""Crafted arrays, pictures, videos, sounds and texts."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from edgekit.system.formats.npy import npy_bytes
from tests.fixtures.bundles import X
from tests.hostile.case import ESCAPE, Case, file, pipe

CARD: dict[str, Any] = {
    "title": "c",
    "inputs": {
        "x": {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    },
}


def _npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


def _npz(contents: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", method) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return whole.getvalue()


def _zeros(folder: Path) -> Path:
    """64 MB behind an array of 24 bytes, in 65 kB."""
    content = _npz({"x.npy": npy_bytes(X)[:-24] + bytes(64 << 20)}, zipfile.ZIP_DEFLATED)
    return file("a.npz", content)(folder)


def _encrypted() -> bytes:
    content = bytearray(_npz({"x.npy": npy_bytes(X)}))
    content[content.rindex(b"PK\1\2") + 8] |= 1
    return bytes(content)


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(99)))
        + chunk(b"IEND", b"")
    )


def _tiff(*entries: tuple[int, int, int, int], after: int = 0) -> bytes:
    rows = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II" + struct.pack("<HIH", 42, 8, len(entries)) + rows + struct.pack("<I", after) + bytes(64)


def _wav(
    form: int = 1, channels: int = 1, rate: int = 8000, bits: int = 16, size: int = 8, data: bytes = bytes(8)
) -> bytes:
    block = channels * bits // 8
    head = struct.pack("<HHIIHH", form, channels, rate, (rate * block) % 2**32, block, bits)
    return (
        b"RIFF"
        + bytes(4)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + head
        + b"data"
        + struct.pack("<I", size)
        + data
    )


SHAPE = "'fortran_order': False, 'shape': (1, 6), }"
EVAL = "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').system('touch evil'),), }"
PLAYLIST = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"
SAMPLES = {
    "pickle": Case(
        "array", file("a.npy", _npy("{'descr': '|O', " + SHAPE, b"cos\nsystem\n")), "Python objects"
    ),
    "code in a header": Case("array", file("a.npy", _npy(EVAL)), "its header is malformed"),
    "terabytes of data": Case(
        "array",
        file("a.npy", _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999,), }")),
        "its header declares 3,999,999,999,996 bytes of data",
    ),
    "negative shape": Case(
        "array",
        file("a.npy", _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -6), }")),
        "invalid shape in the header",
    ),
    "npy of version 9": Case("array", file("a.npy", b"\x93NUMPY\x09\0" + bytes(90)), "version 9.0"),
    "archive of zeros": Case("array", _zeros, "but it has 67,108,864"),
    "encrypted": Case("array", file("a.npz", _encrypted()), "is encrypted"),
    "another packing": Case(
        "array", file("a.npz", _npz({"x.npy": npy_bytes(X)}, zipfile.ZIP_LZMA)), "has a compression method"
    ),
    "path in an archive": Case(
        "array", file("a.npz", _npz({"../../evil.npy": npy_bytes(X)})), "the model's inputs are"
    ),
    "escape codes in an archive": Case(
        "array", file("a.npz", _npz({f"{ESCAPE}.npy": npy_bytes(X)})), r"\x1b"
    ),
    "a pipe": Case("array", pipe("a.npy"), "no samples at"),
    "picture of 10 gigapixels": Case("picture", file("a.png", _png(100_000, 100_000)), "million pixels"),
    "cut picture": Case("picture", file("a.png", _png(64, 64)), "can't be read as a picture"),
    "scans": Case("picture", file("a.jpg", b"\xff\xd8\xff\xda" * 2000), "can't be read as a picture"),
    "PostScript": Case(
        "picture", file("a.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "it is not one of"
    ),
    "SVG": Case("picture", file("a.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "it is not one of"),
    "TIFF in a circle": Case("picture", file("a.tif", _tiff((34665, 4, 1, 8))), "its directory is truncated"),
    "TIFF, one place many times": Case(
        "picture",
        file("a.tif", _tiff(*((tag, 1, 60, 8) for tag in range(300, 900)))),
        "more data than the file has",
    ),
    "TIFF tiles": Case(
        "picture", file("a.tif", _tiff((322, 4, 1, 1 << 20), (323, 4, 1, 1 << 20))), "its tiles have"
    ),
    "BigTIFF": Case("picture", file("a.tif", b"II+\0" + bytes(60)), "it is not a plain TIFF"),
    "name of a picture": Case("picture", file("\x1b[2J.png", b"x"), r"\x1b[2J.png"),
    "sound of no rate": Case("sound", file("a.wav", _wav(rate=0)), "at 0 Hz"),
    "sound of 60,000 channels": Case("sound", file("a.wav", _wav(channels=60_000, bits=8)), "60000 channels"),
    "sound of gigabytes": Case("sound", file("a.wav", _wav(size=1 << 30)), "it ends after 8 of"),
    "sound of NaN": Case(
        "sound", file("a.wav", _wav(3, bits=32, data=b"\0\0\xc0\x7f" * 2)), "NaN or infinite"
    ),
    "RIFX": Case("sound", file("a.wav", b"RIFX" + bytes(60)), "it is not a WAV file"),
    "playlist": Case("video", file("a.mp4", PLAYLIST), "it is not one of MP4"),
    "boxes": Case(
        "video",
        file("a.mp4", struct.pack(">I4s", 0xFFFFFFFF, b"ftyp") + bytes(99)),
        "can't be read as a video",
    ),
    "video of a pipe": Case("video", pipe("a.mkv"), "no samples at"),
    "text not UTF-8": Case("text", file("a.txt", b"\xff\xfe\0"), "can't be read as text"),
    "a million lines": Case("text", file("a.txt", b"a\n" * 1_000_001), "the limit is 1000000"),
    "text of nothing": Case("text", file("a.txt", b"\n \n"), "has no text"),
}
