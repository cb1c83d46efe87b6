"""Decoding of pictures that may come from elsewhere: four formats, by content, and so many pixels at most.

Pillow knows many formats more. One of them is a program (PostScript, which it gives to Ghostscript), and
fewer people look at the others' decoders.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np

from edgekit.errors import MissingDependency, SampleError
from edgekit.system.regular_file import read_plain
from edgekit.tensors import Array

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
FORMATS = ("JPEG", "PNG", "BMP", "WEBP")
"""As Pillow calls them. A file is read as what it holds, whichever of the suffixes it has."""
PIXELS_LIMIT = 1 << 26
"""67 million pixels: 200 MB as RGB, and twice that while a picture is turned upright."""
PICTURE_LIMIT_BYTES = 4 * PIXELS_LIMIT + (1 << 20)
"""Of a file: an uncompressed BMP of so many pixels."""
SCANS_LIMIT = 500
"""Passes of a progressive JPEG: each goes over all pixels, however few bytes it has. Pillow writes ten."""


def read_picture(path: Path) -> Array:
    """Decode a picture to [height, width, 3] uint8 RGB, turned upright by its EXIF orientation.

    16 bits a channel become 8 by their upper byte, as OpenCV's ``imread`` does it.

    Raises:
        MissingDependency: Pillow is not installed.
        SampleError: the file is none of FORMATS, damaged, or too large.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        # Alone: a device that runs one picture needs nothing else of the host side.
        raise MissingDependency("pillow", "reading a picture", "pip install pillow") from None
    try:
        content = read_plain(path, PICTURE_LIMIT_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata, and of sizes that are refused below
            return _decoded(content)
    except FileNotFoundError:
        raise SampleError(f"{path}: there is no such file") from None
    except UnidentifiedImageError:
        why: object = f"it holds none of {', '.join(FORMATS)}; convert it to one of them"
    except Image.DecompressionBombError:
        why = TOO_LARGE
    except Exception as problem:  # a damaged file: Pillow's plugins and its EXIF reader raise anything
        why = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
    raise SampleError(f"{path} can't be read as a picture: {why}")


TOO_LARGE = f"it has more than {PIXELS_LIMIT // 10**6} million pixels; make it smaller first"


def _decoded(content: bytes) -> Array:
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > PIXELS_LIMIT:
            raise ValueError(TOO_LARGE)
        # A marker: within the data of a scan, 0xff is followed by a zero.
        if image.format in ("JPEG", "MPO") and content.count(b"\xff\xda") > SCANS_LIMIT:
            raise ValueError(f"it is a JPEG of more than {SCANS_LIMIT} scans; save it as a baseline JPEG")
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):  # 16 bits of grey: convert() would clip them to 255
            high = (np.asarray(upright).astype(np.int32) >> 8).astype(np.uint8)
            return np.repeat(high[:, :, None], 3, axis=2)
        return np.asarray(upright.convert("RGB"))
