"""Frames as cameras and video decoders give them: luma of all pixels, chroma of every second one.

The planes are resized first, chroma to the full size of the result, and only the result is converted to RGB.
That is faster than converting the frame if it is much larger (docs/runtime-latency.md). Arrays are OpenCV's:

    nv12    uint8 [height * 3 / 2, width]: rows of Y, then rows of U V U V ...
    i420    uint8 [height * 3 / 2, width]: rows of Y, then all of U, then all of V
    yuyv    uint8 [height, width, 2]: Y U Y V ...

Values are those of ITU-R BT.601 in limited range, luma from 16 to 235, as ``cv2.cvtColor`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.resize import Box
from edgekit.target.kept_arrays import kept_array
from edgekit.tensor_spec import Array

SHAPES = {"nv12": "[height * 3 / 2, width]", "i420": "[height * 3 / 2, width]", "yuyv": "[height, width, 2]"}
"""Order -> shape; width and height are even, and yuyv's height is any."""
Resize = Callable[[Array, Box, tuple[int, ...]], Array]
"""An image [rows, columns, channels], its part, and the channels of the result [channels, height, width]."""


def yuv_size(frame: Array, order: str) -> tuple[int, int]:
    """Return width and height in pixels.

    Raises:
        UsageError: the array is not such a frame.
    """
    packed = order == "yuyv"
    whole = frame.ndim == 3 and frame.shape[2] == 2 if packed else frame.ndim == 2 and not len(frame) % 3
    if frame.dtype != np.uint8 or not whole or frame.shape[1] % 2 or not frame.size:
        raise UsageError(
            f"a frame of order {order!r} is uint8 {SHAPES[order]} with an even width, "
            f"not {frame.dtype} {list(frame.shape)}"
        )
    return frame.shape[1], len(frame) if packed else len(frame) // 3 * 2


def rgb_frame(frame: Array, order: str) -> Array:
    """Convert a frame as it is: uint8 [height, width, 3]."""
    width, height = yuv_size(frame, order)
    rows, columns = np.arange(height), np.arange(width) // 2

    def repeat(picture: Array, _: Box, channels: tuple[int, ...]) -> Array:
        y = rows * len(picture) // height
        x = columns if picture.shape[1] < width else np.arange(width)
        return picture[y[:, None], x][:, :, list(channels)].transpose(2, 0, 1)

    return np.ascontiguousarray(rgb_planes(frame, order, Box(0, 0, width, height), repeat).transpose(1, 2, 0))


def rgb_planes(frame: Array, order: str, used: Box, resize: Resize) -> Array:
    """Return the resized part ``used`` of a frame: uint8 [3, height, width]."""
    luma, chroma = _resized(frame, order, used, resize)
    return _to_rgb(luma[0], *chroma)


def grey_planes(frame: Array, order: str, used: Box, resize: Resize) -> Array:
    """Return the luma of the resized part, from 0 to 255: uint8 [1, height, width]."""
    luma, _ = _resized(frame, order, used, resize, chroma=False)
    values = np.maximum(luma, 16) * np.uint16(149)
    grey: Array = np.minimum((values - np.uint16(16 * 149 - 64)) >> 7, 255).astype(np.uint8)
    return grey


def _resized(
    frame: Array, order: str, used: Box, resize: Resize, chroma: bool = True
) -> tuple[Array, list[Array]]:
    """Return Y [1, height, width], and U and V [height, width]; none if not ``chroma``."""
    width, height = yuv_size(frame, order)
    luma = resize(frame if order == "yuyv" else frame[:height, :, None], used, (0,))
    if not chroma:
        return luma, []
    across = range(used.left // 2, (used.left + used.width + 1) // 2)
    down = range(used.top // 2, (used.top + used.height + 1) // 2)
    half = Box(across.start, down.start, len(across), len(down))
    if order == "nv12":
        return luma, list(resize(frame[height:].reshape(height // 2, -1, 2), half, (0, 1)))
    if order == "yuyv":
        pairs = frame.reshape(height, width // 2, 4)
        return luma, list(resize(pairs, Box(half.left, used.top, half.width, used.height), (1, 3)))
    planes = np.ascontiguousarray(frame[height:]).reshape(2, height // 2, width // 2, 1)
    return luma, [resize(plane, half, (0,))[0] for plane in planes]


def _to_rgb(y: Array, u: Array, v: Array) -> Array:
    """Convert planes [height, width] to uint8 [3, height, width], within 1 of ``cv2.cvtColor``.

    R = 1.164 (Y - 16) + 1.596 (V - 128)
    G = 1.164 (Y - 16) - .813 (V - 128) - .391 (U - 128)
    B = 1.164 (Y - 16) + 2.018 (U - 128)

    In 16 bits, twice as fast as in 32: 6 bits of fraction, and 128 less than the value, so that all sums fit.
    """
    rgb = kept_array((3, *y.shape), np.uint8)
    red, green, blue, by_u, by_v = kept_array((5, *y.shape), np.int16)
    luma = green.view(np.uint16)
    np.clip(y, 16, 255, out=rgb[0])  # numpy's maximum takes five times as long
    np.multiply(rgb[0], 149, out=luma, dtype=np.uint16)
    luma >>= np.uint16(1)
    green -= np.int16((16 * 149 // 2) + (128 << 6) - (1 << 5))
    np.subtract(u, 128, out=by_u, dtype=np.int16)
    np.subtract(v, 128, out=by_v, dtype=np.int16)
    np.multiply(by_v, 102, out=red)
    red += green
    np.multiply(by_u, 129, out=blue)
    blue += green
    by_u *= 25
    green -= by_u
    by_v *= 52
    green -= by_v
    for plane, values in zip(rgb, (red, green, blue), strict=True):
        np.clip(values, -(128 << 6), (128 << 6) - 1, out=values)
        values >>= 6
        np.add(values, 128, out=plane, dtype=np.int16, casting="unsafe")
    return rgb
