"""Depth from one image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.frame_sampling import content, linear_to_frame, planes_of
from edgekit.processing.predictions.depth import DepthKind, DepthMap
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, one_of


@dataclass(frozen=True)
class DepthOptions:
    """Options for decoding depth.

    Attributes:
        scale: Factor applied to each value, e.g. 0.001 for millimetres.
        offset: Value added after scaling.
        size: Size of the result: ``frame``, or ``model`` for the output's own without the padding.
    """

    scale: float = 1.0
    offset: float = 0.0
    size: str = "frame"

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"scale is {self.scale:g}; it must be above 0")
        one_of(("frame", "model"), size=self.size)


def _depth(kind: DepthKind) -> Callable[..., Any]:
    def decode(
        outputs: Outputs, options: DepthOptions, placed: ImagePlacement, labels: Sequence[str] = ()
    ) -> DepthMap:
        """``depth`` [1, h, w], [1, 1, h, w] or [1, h, w, 1]."""
        output = outputs["depth"]
        layout = "NHWC" if output.ndim == 4 and output.shape[3] == 1 else "NCHW"
        planes = planes_of(output, layout, "depth")
        if len(planes) != 1:
            raise EngineError(f"depth has one plane, but the output is {list(output.shape)}")
        if options.size == "frame":
            values = linear_to_frame(planes, placed)[0]
        else:
            values = planes[0][content(placed, planes.shape[1:])].astype(np.float32)
        return DepthMap(values * np.float32(options.scale) + np.float32(options.offset), kind)

    return decode


DECODERS: Mapping[str, Decoder] = {
    "metric": Decoder(DepthOptions, _depth("metric"), ("depth",)),
    "relative": Decoder(DepthOptions, _depth("relative"), ("depth",)),
    "inverse": Decoder(DepthOptions, _depth("inverse"), ("depth",)),
}
