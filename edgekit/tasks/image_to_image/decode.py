"""From image to image: super-resolution, denoising, style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.frame_sampling import content, linear_to_frame, planes_of
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.image_to_image import Picture
from edgekit.processing.task_decoder import Decoder, Outputs, one_of


@dataclass(frozen=True)
class PictureOptions:
    """Options for decoding images.

    Attributes:
        layout: Layout of the output: ``NCHW`` or ``NHWC``.
        colour: Channel order, ``RGB`` or ``BGR``. One channel is grey with either.
        range: Values of black and white. Values beyond them are clipped.
        size: Size of the image: ``model`` for the output's own without the padding, or ``frame``.
    """

    layout: str = "NCHW"
    colour: str = "RGB"
    range: tuple[float, ...] = (0.0, 1.0)
    size: str = "model"

    def __post_init__(self) -> None:
        one_of(("NCHW", "NHWC"), layout=self.layout)
        one_of(("RGB", "BGR"), colour=self.colour)
        one_of(("model", "frame"), size=self.size)
        if len(self.range) != 2 or not self.range[0] < self.range[1]:
            raise ValueError(f"range is {list(self.range)}; it must be [black, white]")


def picture(
    outputs: Outputs, options: PictureOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Picture:
    """``picture`` [1, 3, h, w] or [1, 1, h, w] (or [1, h, w, 3 or 1]), of the input's proportions."""
    planes = planes_of(outputs["picture"], options.layout, "a picture")
    if len(planes) not in (1, 3):
        shape = list(outputs["picture"].shape)
        raise EngineError(f"a picture has 1 or 3 channels in {options.layout}, but the output is {shape}")
    if options.size == "frame":
        planes = linear_to_frame(planes, placed)
    else:
        planes = planes[(slice(None), *content(placed, planes.shape[1:]))]
    black, white = options.range
    levels = (planes.astype(np.float32) - np.float32(black)) * np.float32(255 / (white - black))
    pixels = np.clip(np.rint(levels), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return Picture(np.ascontiguousarray(pixels[:, :, ::-1] if options.colour == "BGR" else pixels))


DECODERS: Mapping[str, Decoder] = {"picture": Decoder(PictureOptions, picture, ("picture",))}
