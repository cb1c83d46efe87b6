"""Cost estimates by a target's own tool for a device that is not available: ``TargetInfo.estimate``.

The figures are not measured: wherever they are shown, the tool is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from edgekit.tensor_spec import Json


class NodeEstimate(NamedTuple):
    """One node of the files, as the tool has it after its own fusions.

    Attributes:
        op: Operator, by the tool's name.
        cycles: None if the tool estimates none, e.g. of nodes that its chip leaves to a CPU.
        why: Why it is not on the accelerator; "" if it is.
    """

    node: str
    op: str
    device: str
    cycles: int | None = None
    why: str = ""


class CostEstimate(NamedTuple):
    """An estimate for one variant on one profile.

    Attributes:
        tool: Name and version of what estimates, e.g. ``CHIP-compiler 5.2.0``.
        configuration: Device, clock and memories that it assumes, in its own words.
        cycles: Cycles of a run; None if the tool does not report them.
        latency_ms: Latency of a run at the clock in ``configuration``; None if the tool does not report it.
        memory_bytes: Memory -> bytes. ``ram`` and ``flash`` are held against the profile's facts of these
            names; others are shown.
        nodes: Placement of each node; () if the tool does not report it.
        notes: Remarks, e.g. that nodes on the CPU are not in ``cycles``.
    """

    tool: str
    configuration: str
    cycles: int | None = None
    latency_ms: float | None = None
    memory_bytes: Mapping[str, int] = MappingProxyType({})
    nodes: Sequence[NodeEstimate] = ()
    notes: Sequence[str] = ()

    def as_json(self) -> dict[str, Json]:
        """Return the estimate as JSON for the manifest."""
        return {
            **self._asdict(),
            "memory_bytes": dict(self.memory_bytes),
            "nodes": [node._asdict() for node in self.nodes],
            "notes": list(self.notes),
        }
