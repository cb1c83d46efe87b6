"""An input that is one image: ``kind = "image"`` in a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from edgekit.errors import CardError
from edgekit.processing.resize import Interpolation
from edgekit.system.formats.strict_tables import as_lists, choice, get, numbers, only, whole_numbers
from edgekit.tensor_spec import Json

Layout = Literal["NCHW", "NHWC"]
Colour = Literal["RGB", "BGR", "GREY"]
Resize = Literal["stretch", "letterbox", "center-crop", "resize-crop", "fit-height"]
Place = Literal["top-left", "center"]
Rounding = Literal["down", "nearest"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "layout": ("NCHW", "NHWC"),
    "colour": ("RGB", "BGR", "GREY"),
    "resize": ("stretch", "letterbox", "center-crop", "resize-crop", "fit-height"),
    "place": ("top-left", "center"),
    "rounding": ("down", "nearest"),
    "interpolation": ("linear", "cubic"),
    "dtype": ("float32", "float16", "uint8", "int8", "uint16", "int16", "int32", "int64"),
}
MAX_SIDE = 1 << 16
"""Maximum length of an image's shorter side before a crop, in pixels."""
REQUIRED = ("layout", "colour", "resize")
"""What a card has to say: a wrong guess would cost accuracy in silence."""
ONLY_WITH: Mapping[str, tuple[str, ...]] = {
    "place": ("letterbox",),
    "pad": ("letterbox", "fit-height"),
    "rounding": ("letterbox", "resize-crop"),
    "crop": ("center-crop", "resize-crop"),
}
"""A key that means something with some resize modes only, and is refused with the others."""


@dataclass(frozen=True)
class ImageInput:
    """Image input.

    Attributes:
        name: The input's name in the model.
        shape: Static shape with a batch of 1. It replaces dynamic dimensions of the model.
        layout: Order of the four dimensions.
        colour: Colour order that the model was trained with.
        resize: ``stretch``: to the input's size. ``letterbox``: keeps the aspect ratio, the rest is ``pad``.
            ``center-crop``: the centre, with the input's aspect ratio. ``resize-crop``: the image is scaled
            until its shorter side is the input's divided by ``crop``, then the centre is cut out
            (torchvision, transformers). ``fit-height``, for a line of text: full height, aligned left,
            squeezed if too long, the rest is ``pad``.
        place: Letterbox: position of the image.
        pad: Letterbox and fit-height: value of the rest, 0 to 255, before ``mean`` and ``std``.
        rounding: Letterbox: rounding of the shorter side's length. YOLOX rounds ``down``, Ultralytics to the
            ``nearest`` pixel. Resize-crop: rounding of the crop's position. transformers rounds ``down``,
            torchvision to the ``nearest`` pixel.
        crop: Center-crop and resize-crop: fraction of the largest possible crop, e.g. 0.875.
        interpolation: Interpolation of pixels, tested against OpenCV's, or with ``antialias`` Pillow's.
        antialias: Whether the filter is widened for downscaling, as in Pillow and not in OpenCV.
        mean: Mean by channel, in the model's colour order: input = (pixel - mean) / std, with pixels from 0
            to 255.
        std: Standard deviation by channel, in the same unit as ``mean``.
        dtype: Data type of the input; integers are rounded and clipped.
    """

    kind: ClassVar[str] = "image"

    name: str
    shape: tuple[int, ...]
    layout: Layout
    colour: Colour
    resize: Resize
    place: Place = "top-left"
    pad: int = 0
    rounding: Rounding = "down"
    crop: float = 1.0
    interpolation: Interpolation = "linear"
    antialias: bool = False
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    dtype: str = "float32"

    @property
    def channels(self) -> int:
        return self.shape[1 if self.layout == "NCHW" else 3]

    @cached_property
    def height(self) -> int:
        return self.shape[2 if self.layout == "NCHW" else 1]

    @cached_property
    def width(self) -> int:
        return self.shape[3 if self.layout == "NCHW" else 2]

    @property
    def shorter_side(self) -> int:
        """Return the length of an image's shorter side before the crop of ``resize-crop``, in pixels."""
        return round(min(min(self.width, self.height) / self.crop, 2.0**53))

    @cached_property
    def plain(self) -> bool:
        """Return whether pixel values are passed unchanged."""
        return not any(self.mean) and all(std == 1 for std in self.std) and self.dtype != "int8"

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest value that an image can give."""
        ends = [(x - mean) / std for mean, std in zip(self.mean, self.std, strict=True) for x in (0, 255)]
        low, high = min(ends), max(ends)
        if np.dtype(self.dtype).kind in "iu":
            info = np.iinfo(self.dtype)
            low, high = max(round(low), info.min), min(round(high), info.max)
        return float(low), float(high)

    def as_json(self) -> dict[str, Json]:
        skipped = {key for key, modes in ONLY_WITH.items() if self.resize not in modes} | {"name"}
        if self.rounding == "down":  # cards written before there was a choice keep their bytes
            skipped |= {"rounding"}
        table = {key: value for key, value in asdict(self).items() if key not in skipped}
        return {"kind": "image", **as_lists(table)}


def read_image(name: str, table: dict[str, Json], location: str) -> ImageInput:
    """Read the image input of a card's table.

    Raises:
        CardError: it is malformed.
    """
    only(table, ("kind", *(f.name for f in fields(ImageInput) if f.name != "name")), location)
    settings: dict[str, Any] = {"shape": whole_numbers(table, "shape", location, minimum=1)}
    for key, allowed in CHOICES.items():
        if key in table or key in REQUIRED:
            settings[key] = choice(table, key, allowed, location)
    for key, kind in (("pad", int), ("crop", float), ("antialias", bool)):
        if key in table:
            settings[key] = get(table, key, kind, location)
    for key, modes in ONLY_WITH.items():
        if key in table and settings["resize"] not in modes:
            needed = " or ".join(map(repr, modes))
            raise CardError(f"{location}.{key} needs resize = {needed}, but resize is {settings['resize']!r}")
    if not 0 <= settings.get("pad", 0) <= 255:
        raise CardError(f"{location}.pad is {settings['pad']}; it must be from 0 to 255")
    if not 0 < settings.get("crop", 1.0) <= 1:
        raise CardError(f"{location}.crop is {settings['crop']:g}; it must be above 0 and at most 1")
    shape, colour, layout = list(settings["shape"]), settings["colour"], settings["layout"]
    if len(shape) != 4 or shape[0] != 1:
        raise CardError(f"{location}.shape is {shape}; it must have 4 dimensions, the first being 1")
    channels, ax = 1 if colour == "GREY" else 3, layout.index("C")
    if shape[ax] != channels:
        raise CardError(f"{location}.shape is {shape}; {colour} in {layout} has {channels} at dimension {ax}")
    for key, default in (("mean", 0.0), ("std", 1.0)):
        settings[key] = numbers(table, key, location) if key in table else (default,) * channels
        if len(settings[key]) != channels:
            raise CardError(
                f"{location}.{key} has {len(settings[key])} numbers, but {colour} has {channels} channels"
            )
    _refuse_unit_scale(table, settings["mean"], settings["std"], location)
    if min(settings["std"]) <= 0:
        raise CardError(
            f"{location}.std is {list(settings['std'])}; pixels are divided by it: it must be above 0"
        )
    if (255 + max(map(abs, settings["mean"]))) / min(settings["std"]) > float(np.finfo(np.float32).max):
        raise CardError(f"{location}: (pixel - mean) / std is beyond float32; correct mean or std")
    image = ImageInput(name, **settings)
    if image.resize == "resize-crop" and not max(image.width, image.height) <= image.shorter_side <= MAX_SIDE:
        raise CardError(
            f"{location}.crop is {image.crop:g}, which scales pictures to a shorter side of "
            f"{image.shorter_side}; it must be from {max(image.width, image.height)}, the input's longer "
            f"side, to {MAX_SIDE}"
        )
    return image


def _refuse_unit_scale(
    table: Mapping[str, Json], mean: tuple[float, ...], std: tuple[float, ...], location: str
) -> None:
    """Refuse mean and std in units of 0 to 1, as torchvision and most model pages have them.

    Of pixels from 0 to 255 no mean is between 0 and 1, and none is divided by less than 1.

    Raises:
        CardError: they are; it has the lines to write.
    """
    small = max(std) < 1 if "std" in table else max(mean) > 0
    if not small or min(mean) < 0 or max(mean) > 1 or min(std) <= 0:
        return
    inverse = max(std) < INVERSE_BELOW and not any(mean)  # 1 / 255: a factor
    lines = [f"{key} = {numbers}" for key, numbers in (
        ("mean", _scaled(mean)), ("std", [_short(1 / value) for value in std] if inverse else _scaled(std))
    ) if any(numbers)]  # fmt: skip
    meant = (
        "is a factor, but pixels are divided by std"
        if inverse
        else "is in units of 0 to 1, but pixels are 0 to 255"
    )
    field = "std" if "std" in table else "mean"
    raise CardError(f"{location}.{field} {meant}: write {' and '.join(lines)}")


INVERSE_BELOW = 0.05
"""1 / 255 and 1 / 127.5 are below, a deviation in units of 0 to 1 is not."""


def _scaled(values: tuple[float, ...]) -> list[float]:
    return [_short(value * 255) for value in values]


def _short(value: float) -> float:
    return round(value, 4)
