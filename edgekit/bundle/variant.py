"""One variant of a bundle: what was built for a target, in a precision, and how that went."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from edgekit.tensors import Json


class Variant(NamedTuple):
    """The model as one target at one precision has it.

    Attributes:
        name: Unique in the bundle, e.g. ``rpi5-fp16``.
        target: The target whose engine runs it, e.g. ``tflite``.
        profile: The profile it was built for, e.g. ``rpi5``.
        precision: ``fp32``, ``fp16`` ...
        files: File name as the engine wants it -> name of the entry that holds it.
        options: What the target's runner must know besides the files.
        status: ``verified ...``, ``rejected: why`` or ``not run: why``.
        evidence: What was measured: error against the reference, timing, size.
    """

    name: str
    target: str
    profile: str
    precision: str
    files: Mapping[str, str]
    options: Mapping[str, Json] = MappingProxyType({})
    status: str = "not run: not verified yet"
    evidence: Mapping[str, Json] = MappingProxyType({})

    @property
    def usable(self) -> bool:
        """Whether a session may run it: it has files and was not rejected."""
        return bool(self.files) and not self.status.startswith("rejected")

    def as_json(self) -> dict[str, Json]:
        return {
            key: dict(value) if isinstance(value, Mapping) else value for key, value in self._asdict().items()
        }
