"""Matting: how much of each pixel is foreground."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.frame_sampling import linear_to_frame, planes_of
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.matting import Matte
from edgekit.processing.task_decoder import Decoder, Outputs, one_of
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class MattingOptions:
    """Options for decoding alpha.

    Attributes:
        layout: Layout of the outputs: ``NCHW`` or ``NHWC``.
        logits: Whether alpha is before sigmoid.
        stretch: Whether alpha is stretched so that its minimum is 0 and its maximum 1, as rembg does
            with U2-Net and IS-Net.
    """

    layout: str = "NCHW"
    logits: bool = False
    stretch: bool = False

    def __post_init__(self) -> None:
        one_of(("NCHW", "NHWC"), layout=self.layout)


def matte(
    outputs: Outputs, options: MattingOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Matte:
    """``alpha`` [1, 1, h, w], 0 to 1; ``foreground`` [1, 3, h, w] in RGB, 0 to 1, if it is given."""
    alpha: Array = _planes(outputs["alpha"], options.layout, 1, "alpha").astype(np.float32)
    if options.logits:
        alpha = 1 / (1 + np.exp(-np.clip(alpha, -80, 80)))
    if options.stretch:
        low, high = float(alpha.min()), float(alpha.max())
        alpha = (alpha - low) / max(high - low, 1e-6)
    foreground = None
    if "foreground" in outputs:
        colours = linear_to_frame(_planes(outputs["foreground"], options.layout, 3, "foreground"), placed)
        foreground = np.rint(np.clip(colours, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)
    return Matte(np.clip(linear_to_frame(alpha, placed)[0], 0, 1), foreground)


def _planes(output: Array, layout: str, count: int, description: str) -> Array:
    planes = planes_of(output, layout, description)
    if len(planes) != count:
        raise EngineError(f"{description} has {count} planes, but the output is {list(output.shape)}")
    return planes


DECODERS: Mapping[str, Decoder] = {"alpha": Decoder(MattingOptions, matte, ("alpha",), ("foreground",))}
