"""From a frame to a model's image input."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing import yuv_frames
from edgekit.processing.inputs.image import ImageInput
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.resize import Box, grey_picture, resize_planes
from edgekit.target.kept_arrays import kept_array
from edgekit.tensor_spec import Array

LIMITS = {
    # Integer dtype -> least and greatest value of float32 that it holds; above 2^24 float32 has gaps.
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "int32": (-(2**31), 2**31 - 2**7),
    "int64": (-(2**63), 2**63 - 2**39),
}
ORDERS = ("rgb", "bgr", *yuv_frames.SHAPES)
"""Orders of an image's channels."""


def prepare_image(image: ImageInput, frame: Array, order: str = "rgb") -> Array:
    """Turn a frame into the input's array.

    Args:
        frame: uint8 [height, width, 3], or as ``yuv_frames`` describes it.
        order: Order of the frame's channels: one of ORDERS.

    Returns:
        The input's dtype and shape.

    Raises:
        UsageError: the frame is none, or ``order`` is unknown.
    """
    width, height = frame_size(frame, order)
    used, target, visible, place = _areas(image, width, height)
    grey = image.colour == "GREY"
    interleaved = image.layout == "NHWC" and image.plain and order not in yuv_frames.SHAPES

    def resized(picture: Array, part: Box, channels: tuple[int, ...]) -> Array:
        return resize_planes(
            picture,
            part,
            target.width,
            target.height,
            window=visible,
            channels=channels,
            interpolation=image.interpolation,
            antialias=image.antialias,
            interleaved=interleaved,
        )

    if order in yuv_frames.SHAPES:
        convert = yuv_frames.grey_planes if grey else yuv_frames.rgb_planes
        planes = convert(frame, order, used, resized)
        if image.colour == "BGR":
            planes = planes[::-1]
    elif grey:
        planes = resized(grey_picture(frame, order), used, (0,))
    else:
        planes = resized(frame, used, (0, 1, 2) if order == image.colour.lower() else (2, 1, 0))
    return _normalised(image, planes, place)


def from_bytes(image: ImageInput, pixels: Array) -> Array:
    """Convert an image that is already resized to the input's array.

    Args:
        pixels: uint8 [1, height, width, channels], in RGB.

    Returns:
        The input's dtype and shape.
    """
    planes = pixels[0].transpose(2, 0, 1)
    whole = planes[::-1] if image.colour == "BGR" else planes
    return _normalised(image, whole, Box(0, 0, image.width, image.height))


@lru_cache(maxsize=16)
def place_image(image: ImageInput, width: int, height: int) -> ImagePlacement:
    """Compute the placement of a frame of this size in the input."""
    used, target = _layout(image, width, height)
    scale_x, scale_y = target.width / used.width, target.height / used.height
    return ImagePlacement(
        width,
        height,
        image.width,
        image.height,
        scale_x,
        scale_y,
        target.left - used.left * scale_x,
        target.top - used.top * scale_y,
    )


def frame_size(frame: Array, order: str) -> tuple[int, int]:
    """Return width and height of a frame in pixels. Raises UsageError: as ``prepare_image``."""
    if order not in ORDERS:
        raise UsageError(f"order is {order!r}; it must be one of {', '.join(ORDERS)} (OpenCV gives bgr)")
    if not isinstance(frame, np.ndarray):
        raise UsageError(f"a frame is a numpy array uint8 [height, width, 3], not a {type(frame).__name__}")
    if order in yuv_frames.SHAPES:
        return yuv_frames.yuv_size(frame, order)
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
        raise UsageError(f"a frame is uint8 [height, width, 3], not {frame.dtype} {list(frame.shape)}")
    return frame.shape[1], frame.shape[0]


@lru_cache(maxsize=16)
def _areas(image: ImageInput, width: int, height: int) -> tuple[Box, Box, Box, Box]:
    """Return the part of a frame that is used, its place in the input, which may reach beyond the input, the
    part of that place within the input, and the position of that part in the input."""
    used, target = _layout(image, width, height)
    left, top = max(0, -target.left), max(0, -target.top)
    visible = Box(left, top, min(target.width, image.width), min(target.height, image.height))
    place = Box(max(0, target.left), max(0, target.top), visible.width, visible.height)
    return used, target, visible, place


def _layout(image: ImageInput, width: int, height: int) -> tuple[Box, Box]:
    whole, full = Box(0, 0, width, height), Box(0, 0, image.width, image.height)
    if image.resize == "stretch":
        return whole, full
    if image.resize == "center-crop":
        # The largest part of the input's proportions, times ``crop``; whole pixels, rounded down.
        used_width = max(1, int(image.crop * min(width, height * image.width / image.height)))
        used_height = max(1, int(image.crop * min(height, width * image.height / image.width)))
        left, top = (width - used_width) // 2, (height - used_height) // 2
        return Box(left, top, used_width, used_height), full
    if image.resize == "resize-crop":  # torchvision's Resize and CenterCrop: the longer side is rounded down
        side, shorter = image.shorter_side, min(width, height)
        whole_width, whole_height = side * width // shorter, side * height // shorter
        left, top = whole_width - image.width, whole_height - image.height
        if image.rounding == "nearest":
            return whole, Box(-round(left / 2), -round(top / 2), whole_width, whole_height)
        return whole, Box(-(left // 2), -(top // 2), whole_width, whole_height)
    if image.resize == "fit-height":  # PaddleOCR's resize_norm_img: the width is rounded up
        return whole, Box(0, 0, min(image.width, -(-width * image.height // height)), image.height)
    # Letterbox: the whole frame at its own proportions, in whole numbers so that one side always fits.
    if image.rounding == "nearest":  # Ultralytics' LetterBox: Python's round of the product in float64
        gain = min(image.height / height, image.width / width)
        fit_width, fit_height = max(1, round(width * gain)), max(1, round(height * gain))
    elif image.width * height <= image.height * width:
        fit_width, fit_height = image.width, max(1, height * image.width // width)
    else:
        fit_width, fit_height = max(1, width * image.height // height), image.height
    centred = image.place == "center"
    left = (image.width - fit_width) // 2 if centred else 0
    top = (image.height - fit_height) // 2 if centred else 0
    return whole, Box(left, top, fit_width, fit_height)


def _normalised(image: ImageInput, planes: Array, target: Box) -> Array:
    """(pixel - mean) / std in float32, in the input's dtype, layout and shape; ``pad`` around ``target``.

    Args:
        planes: uint8 [channels, target.height, target.width].
        target: Position of the planes in the input.
    """
    dtype = np.dtype(image.dtype)
    feed = kept_array(image.shape, dtype)
    whole = feed[0] if image.layout == "NCHW" else feed[0].transpose(2, 0, 1)
    bottom, right = target.top + target.height, target.left + target.width
    if (target.width, target.height) != (image.width, image.height):
        row = _margin(image)
        whole[:, : target.top] = whole[:, bottom:] = row
        middle = whole[:, target.top : bottom]
        middle[:, :, : target.left], middle[:, :, right:] = row[:, :, : target.left], row[:, :, right:]
    region = whole[:, target.top : bottom, target.left : right]
    if image.layout == "NCHW" and dtype == np.float32 and not image.plain:
        _values(image, planes, region)
        return feed
    values = _values(image, planes)
    if image.layout == "NCHW" or image.plain:
        region[:] = values
    else:  # one plane after the other: three bytes at a time, numpy takes three times as long
        for plane, channel in zip(region, values, strict=True):
            plane[:] = channel
    return feed


def _values(image: ImageInput, planes: Array, out: Array | None = None) -> Array:
    if image.plain:
        return planes
    mean, std = _scale(image)
    values = kept_array(planes.shape, np.float32) if out is None else out
    values[:] = planes  # all at once: numpy's subtract would convert piece by piece
    if any(image.mean):
        values -= mean
    values /= std
    if image.dtype in LIMITS:
        np.clip(np.rint(values, out=values), *LIMITS[image.dtype], out=values)
    return values


@lru_cache(maxsize=16)
def _margin(image: ImageInput) -> Array:
    """Return a row of padding, [channels, 1, width] in the input's dtype and order in memory."""
    values = _values(image, np.full((image.channels, 1, image.width), image.pad, np.uint8))
    if image.layout == "NCHW":
        return values.astype(image.dtype)
    return np.ascontiguousarray(values.transpose(1, 2, 0), image.dtype).transpose(2, 0, 1)


@lru_cache(maxsize=16)
def _scale(image: ImageInput) -> tuple[Array, Array]:
    """Return mean and standard deviation, float32 [channels, 1, 1]."""
    mean, std = np.array((image.mean, image.std), np.float32)[:, :, None, None]
    return mean, std
