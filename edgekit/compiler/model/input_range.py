"""The range of one input, without the packages that read models: a device reads sample files too."""

from __future__ import annotations

from typing import NamedTuple

from edgekit.tensor_spec import Json


class InputRange(NamedTuple):
    """Least and greatest value of an input, and why, e.g. ``rows of the table of /embeddings/Gather``."""

    low: float
    high: float
    reason: str

    def as_json(self) -> dict[str, Json]:
        return {"range": [self.low, self.high], "why": self.reason}
