"""From a map of density to a count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.processing.frame_sampling import content, planes_of
from edgekit.processing.predictions import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit_count.prediction import Count


@dataclass(frozen=True)
class DensityOptions:
    """Options of the decoder.

    Attributes:
        unit: Number of density units per person: networks are trained on densities of 100 or 1000 times.
    """

    unit: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.unit < float("inf"):
            raise ValueError(f"unit is {self.unit:g}; it must be above 0")


def count(
    outputs: Outputs, options: DensityOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Count:
    """``density`` [1, 1, rows, columns]."""
    planes = planes_of(outputs["density"], "NCHW", "density")
    density = planes[0][content(placed, planes.shape[1:])]
    density = np.maximum(density, 0).astype(np.float32) / np.float32(options.unit)
    return Count(float(density.sum(dtype=np.float64)), density)


DECODERS: Mapping[str, Decoder] = {"density": Decoder(DensityOptions, count, ("density",))}
