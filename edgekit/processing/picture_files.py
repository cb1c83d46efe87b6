"""Decodes untrusted pictures: five formats, detected by content, with a limit on the number of pixels.

Pillow supports many more formats. One of them is a program (PostScript, which it passes to Ghostscript), and
the decoders of the others are less reviewed.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from edgekit.errors import SampleError, need_package
from edgekit.processing.tiff_directory import check_directory
from edgekit.system.regular_file import read_plain
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


NO_OUTPUT = logging.NullHandler()


def read_picture(path: Path) -> Array:
    """Decode a picture to [height, width, 3] uint8 RGB, with its EXIF orientation applied.

    Like OpenCV's ``imread``, it keeps the upper 8 of 16 bits per channel, and the first page of a TIFF.

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
        return upright_pixels(image)


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
