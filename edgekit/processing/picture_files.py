"""Decodes untrusted pictures: five formats, detected by content, with a limit on the number of pixels.

Pillow supports many more formats. One of them is a program (PostScript, which it passes to Ghostscript), and
the decoders of the others are less reviewed.

The directory of a TIFF file is checked before Pillow reads it. Its entries say where their data are, so that
a thousand entries can name the same megabytes, and a reader that copies each fills the memory. Older releases
of Pillow do. The format: TIFF revision 6.0, section 2.
"""

from __future__ import annotations

import io
import logging
import math
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from edgekit.errors import SampleError, need_package
from edgekit.system.regular_file import read_plain
from edgekit.target.kept_arrays import kept_array
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from PIL import Image

Result = TypeVar("Result")
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF")
"""Pillow's names. The content determines the format, not the suffix."""
PIXELS_LIMIT = 1 << 26
"""67 million pixels: 200 MB as RGB, and twice that while a picture is rotated."""
PICTURE_LIMIT_BYTES = 4 * PIXELS_LIMIT + (1 << 20)
"""Largest file: an uncompressed BMP of PIXELS_LIMIT pixels."""
SCANS_LIMIT = 500
"""Most scans of a progressive JPEG: each processes all pixels, however few bytes it has. Pillow writes
ten."""
KEPT_BYTES = 8 << 20
"""Largest array that a photograph is decoded into again, 1920 x 1080 and a bit: each thread keeps some."""
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)
"""The tag of EXIF, and its values for which height and width are exchanged."""

NO_OUTPUT = logging.NullHandler()


def read_picture(path: Path) -> Array:
    """Decode a picture to [height, width, 3] uint8 RGB, with its EXIF orientation applied.

    If simplejpeg is installed, it decodes JPEGs: the same bytes, in a kept array. Like OpenCV's ``imread``,
    this keeps the upper 8 of 16 bits per channel, and the first page of a TIFF.

    Raises:
        MissingDependency: Pillow is not installed.
        SampleError: the file is not one of FORMATS, corrupt, or too large.
    """
    return decode_picture(_content(path), str(path))


def decode_picture(content: bytes, name: str) -> Array:
    """Decode a file's content like :func:`read_picture`; ``name`` names the file in errors.

    Raises: see :func:`read_picture`.
    """
    return _opened(_decoded, content, name)


def picture_size(path: Path) -> tuple[int, int]:
    """Return the height and width of the array that :func:`read_picture` returns. Only the header is read,
    except of TIFF files and of PNG files without EXIF.

    Raises: see :func:`read_picture`.
    """
    return _opened(_size, _content(path), str(path))


def read_indices(path: Path) -> Array:
    """Decode a picture of one channel, or of a palette's indices, as it is: uint8 or int32 [height, width].

    Raises: see :func:`read_picture`; and SampleError: it has colours.
    """
    return _opened(_indices, _content(path), str(path))


def picture_pixels(content: bytes, name: str) -> int:
    """Return the number of pixels that a file's header states; nothing is decoded.

    Raises: see :func:`read_picture`.
    """
    return _opened(_pixels, content, name)


def _content(path: Path) -> bytes:
    _need_pillow()
    try:
        return read_plain(path, PICTURE_LIMIT_BYTES)
    except FileNotFoundError:
        raise SampleError(f"{path}: file not found") from None
    except Exception as problem:
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        raise SampleError(f"{path} can't be read as a picture: {reason}") from None


def _opened(read: Callable[[bytes], Result], content: bytes, name: str) -> Result:
    _need_pillow()
    from PIL import Image, UnidentifiedImageError

    # Without a handler Python prints what Pillow logs of a corrupt file; an app that has one still gets it.
    logging.getLogger("PIL").addHandler(NO_OUTPUT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about corrupt metadata, and sizes that are rejected below
            return read(content)
    except UnidentifiedImageError:
        reason: object = f"it is not one of {', '.join(FORMATS)}; convert it to one of them"
    except Image.DecompressionBombError:
        reason = TOO_LARGE
    except Exception as problem:  # a corrupt file: Pillow's plugins and EXIF reader raise anything
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        if not isinstance(problem, ValueError):  # those say what to do
            reason += "; save the picture again, or remove the file"
    raise SampleError(f"{name} can't be read as a picture: {reason}")


def _need_pillow() -> None:
    # Only Pillow: a device that runs one picture needs no other package of the host.
    with need_package("pillow", "reading a picture", "pip install pillow"):
        import PIL  # noqa: F401


TOO_LARGE = f"it has more than {PIXELS_LIMIT // 10**6} million pixels; scale it down first"


def _pixels(content: bytes) -> int:
    from PIL import Image

    if content[:2] in (b"II", b"MM"):
        check_directory(content, PIXELS_LIMIT)
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        return image.width * image.height


def _size(content: bytes) -> tuple[int, int]:
    from PIL import Image

    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.format == "TIFF":  # Pillow turns it upright as it decodes
            height, width, _ = _decoded(content).shape
            return height, width
        is_turned = image.getexif().get(ORIENTATION, 1) in TURNED
        return (image.width, image.height) if is_turned else (image.height, image.width)


def _decoded(content: bytes) -> Array:
    from PIL import Image

    if content[:2] in (b"II", b"MM"):
        check_directory(content, PIXELS_LIMIT)
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > PIXELS_LIMIT:
            raise ValueError(TOO_LARGE)
        # Counts the markers of scans: within a scan's data 0xff is followed by a zero.
        if image.format in ("JPEG", "MPO") and content.count(b"\xff\xda") > SCANS_LIMIT:
            raise ValueError(f"it is a JPEG of more than {SCANS_LIMIT} scans; save it as a baseline JPEG")
        if image.format == "TIFF" and image.mode in ("I", "F"):
            raise ValueError(
                "its pixels have 32 bits, so the value of white is unknown; save it with 8 or 16"
            )
        colour_jpeg = image.format in ("JPEG", "MPO") and image.mode == "RGB"
        if colour_jpeg and image.getexif().get(ORIENTATION, 1) == 1:
            pixels = _by_simplejpeg(content, (image.height, image.width, 3))
            if pixels is not None:
                return pixels
        return upright_pixels(image)


def _by_simplejpeg(content: bytes, shape: tuple[int, int, int]) -> Array | None:
    """Decode a JPEG in colour into a kept array; None if the package is missing or the file is damaged."""
    try:
        import simplejpeg
    except ImportError:
        return None
    fresh = math.prod(shape) > KEPT_BYTES
    pixels = np.empty(shape, np.uint8) if fresh else kept_array(shape, np.uint8)
    try:
        simplejpeg.decode_jpeg(content, "RGB", buffer=pixels)
    except ValueError:  # Pillow reads what can be read of it, or says what is wrong
        return None
    return pixels


def upright_pixels(image: Image.Image) -> Array:
    """Return a Pillow image's pixels, uint8 [height, width, 3] in RGB, with its EXIF orientation applied."""
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16-bit grey: convert() would clip it to 255
        high = (np.asarray(upright).astype(np.int32) >> 8).astype(np.uint8)
        return np.repeat(high[:, :, None], 3, axis=2)
    return np.asarray(upright.convert("RGB"))


def _indices(content: bytes) -> Array:
    from PIL import Image

    if _pixels(content) > PIXELS_LIMIT:
        raise ValueError(TOO_LARGE)
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.mode == "1":
            return np.asarray(image).astype(np.uint8)
        if image.mode not in ("L", "P") and not image.mode.startswith("I"):
            raise ValueError("it has colours; save the labels as the values of one channel")
        return np.asarray(image)


ENTRIES_LIMIT = 1000
"""Most entries of all directories together; a scan with all its metadata has 100."""
DIRECTORIES = {34665, 34853, 40965}
"""Tags that name a directory: EXIF, GPS and interoperability."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}
"""Type of a value -> its size in bytes; readers skip other types."""
TILE_WIDTH, TILE_LENGTH = 322, 323


def check_directory(content: bytes, pixels_limit: int) -> None:
    """Check that the directory of a TIFF file is valid.

    Args:
        pixels_limit: Most pixels of a tile, which is decoded as a whole.

    Raises:
        ValueError: it is a BigTIFF, is cut short, or names more data than it has; the text says which.
    """
    order = {b"II": "<", b"MM": ">"}.get(content[:2])
    if order is None or len(content) < 8 or struct.unpack_from(f"{order}H", content, 2)[0] != 42:
        raise ValueError("it is not a plain TIFF (a BigTIFF?); save it again as TIFF or PNG")
    waiting, entries, total = [struct.unpack_from(f"{order}I", content, 4)[0]], 0, 0
    tile = [0, 0]
    while waiting:
        offset = waiting.pop()
        if offset + 2 > len(content):
            raise ValueError("its directory is truncated")
        (count,) = struct.unpack_from(f"{order}H", content, offset)
        entries += count
        if entries > ENTRIES_LIMIT or offset + 2 + 12 * count > len(content):
            raise ValueError(f"its directory is truncated, or has more than {ENTRIES_LIMIT} entries")
        for place in range(offset + 2, offset + 2 + 12 * count, 12):
            tag, kind, length, value = struct.unpack_from(f"{order}HHII", content, place)
            size = SIZES.get(kind, 0) * length
            total += size if size > 4 else 0
            if tag in DIRECTORIES:
                waiting.append(value)
            if tag in (TILE_WIDTH, TILE_LENGTH):
                short = struct.unpack_from(f"{order}H", content, place + 8)[0]
                tile[tag - TILE_WIDTH] = short if kind == 3 else value
    if total > len(content):
        raise ValueError("its directory names more data than the file has")
    if tile[0] * tile[1] > pixels_limit:
        raise ValueError(f"its tiles have {tile[0]} x {tile[1]} pixels; save it with smaller ones")
