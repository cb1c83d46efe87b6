"""Latency limits of a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.errors import CardError
from edgekit.system.formats.strict_tables import get, only
from edgekit.tensor_spec import Json

STAGES = ("decode", "prepare", "infer", "decode_outputs", "waiting")
END_TO_END = "end_to_end"


@dataclass(frozen=True)
class Latency:
    """Latency limits of a response.

    Attributes:
        p95_ms: Limit of the 95th percentile of the total time, in milliseconds.
        stages: Stage = limit of its 95th percentile in milliseconds, for stages with a limit of their own.
    """

    p95_ms: float
    stages: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        table: dict[str, Json] = {"p95_ms": self.p95_ms}
        return {**table, "stages": dict(self.stages)} if self.stages else table


def read_latency(table: Json, location: str) -> Latency:
    """Read the latency contract of a card.

    Raises:
        CardError: it is malformed, or a stage may take longer than the whole.
    """
    only(table, ("p95_ms", "stages"), location)
    assert isinstance(table, Mapping)
    whole_ms = get(table, "p95_ms", float, location)
    if whole_ms <= 0:
        raise CardError(f"{location}.p95_ms is {whole_ms:g}; it must be above 0")
    stage_table = get(table, "stages", dict, location) if "stages" in table else {}
    only(stage_table, STAGES, f"{location}.stages")
    stages = {stage: get(stage_table, stage, float, f"{location}.stages") for stage in stage_table}
    for stage, limit_ms in stages.items():
        if not 0 < limit_ms <= whole_ms:
            raise CardError(
                f"{location}.stages.{stage} is {limit_ms:g}; "
                f"it must be above 0 and at most p95_ms, {whole_ms:g}"
            )
    return Latency(whole_ms, stages)
