"""What ``predict`` takes besides arrays: a file, its bytes, a Pillow image, nested lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import SampleError, UsageError
from edgekit.processing import yuv_frames
from edgekit.tensor_spec import Array

ARTICLES = {"image": "an image", "audio": "a sound", "text": "a text"}
Read = tuple[Any, str, "int | None"]
"""An item, the order of its channels, and its rate in Hz."""


def read_item(kind: str, item: Any, order: str = "rgb", rate: int | None = None) -> Read:
    """Return an item as ``processing.prepare`` takes it, with the order and the rate of what was read.

    Args:
        kind: ``image``, ``audio`` or ``text``: what the card takes.
        item: An array or, for a text, a string stays as it is. A path, the bytes of a file and a Pillow image
            are decoded, nested lists become an array.
        order: Order of an array's channels; what is read is RGB.
        rate: Sample rate of an array, in Hz.

    Raises:
        UsageError: the item is a URL, several items, or arrays by name.
        SampleError: the file can't be read.
        MissingDependency: Pillow is not installed.
    """
    if isinstance(item, np.ndarray) or (kind == "text" and not isinstance(item, os.PathLike)):
        return item, order, rate
    if isinstance(item, Mapping):
        raise UsageError(f"predict takes {ARTICLES.get(kind, 'an array')}; run() takes arrays by input name")
    if isinstance(item, str) and "://" in item:
        raise UsageError(
            f"{item} is a URL, and predict opens no network: download it first, e.g. with "
            "urllib.request.urlretrieve(url, file), and pass the file"
        )
    if isinstance(item, str | os.PathLike):
        return _file(kind, Path(item), rate) if kind in ARTICLES else (item, order, rate)
    if isinstance(item, bytes | bytearray | memoryview):
        return _content(kind, bytes(item), rate)
    if type(item).__module__.partition(".")[0] == "PIL":
        from edgekit.processing.picture_files import upright_pixels

        return upright_pixels(item), "rgb", rate
    if isinstance(item, list | tuple) and not _holds_numbers(item):
        raise UsageError("predict takes one item: use [session.predict(item) for item in items]")
    return _array(kind, item), order, rate


def read_image(item: Any, order: str = "rgb") -> Array:
    """Return an image as uint8 [height, width, 3] in RGB; as ``read_item``."""
    frame, order, _ = read_item("image", item, order)
    if order in yuv_frames.SHAPES:
        return yuv_frames.rgb_frame(frame, order)
    return np.ascontiguousarray(frame[:, :, ::-1]) if order == "bgr" else frame


def _file(kind: str, path: Path, rate: int | None) -> Read:
    if path.suffix.lower() in (".npy", ".npz"):
        raise UsageError(
            f"{path} holds arrays, and predict takes {ARTICLES[kind]}; run() takes arrays by name"
        )
    if kind == "image":
        from edgekit.processing.picture_files import read_picture

        return read_picture(path), "rgb", rate
    if kind == "audio":
        from edgekit.processing.sound_files import read_sound

        return _sound(read_sound(path))
    try:
        return path.read_text("utf-8").strip(), "rgb", rate
    except (OSError, ValueError) as problem:
        raise SampleError(f"{path} can't be read as a text: {problem}") from None


def _content(kind: str, content: bytes, rate: int | None) -> Read:
    if kind == "audio":
        from edgekit.processing.sound_files import decode_sound

        try:
            return _sound(decode_sound(content))
        except ValueError as problem:
            raise SampleError(f"the bytes can't be read as a sound: {problem}") from None
    from edgekit.processing.picture_files import decode_picture

    return decode_picture(content, "the bytes"), "rgb", rate


def _sound(sound: Any) -> Read:
    return sound.samples, "rgb", sound.rate


def _holds_numbers(items: Any) -> bool:
    while isinstance(items, list | tuple) and items:
        items = items[0]
    return isinstance(items, int | float | np.number)


def _array(kind: str, item: Any) -> Array:
    """Return numbers as an array; those of an image become bytes if each is one."""
    array = np.asarray(item)
    if kind == "image" and array.dtype.kind == "i" and array.size and array.min() >= 0 and array.max() <= 255:
        return array.astype(np.uint8)
    return array
