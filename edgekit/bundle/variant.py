"""One variant of a bundle: what was built for a target, in a precision, and how that went."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from edgekit.errors import no_attribute
from edgekit.system.formats.shown import html_table
from edgekit.system.formats.strict_json import brief
from edgekit.tensor_spec import Json


class Status(str, Enum):
    """The outcome of a variant. In the manifest it is text, followed by the reason: :func:`status_text`."""

    VERIFIED = "verified"
    """An engine, or a reference executor, ran it within its limits."""
    REJECTED = "rejected"
    """It is wrong, or no gain; its files are not in the bundle."""
    NOT_RUN = "not run"
    """Nothing here can run it."""


_NEED_A_REASON = {status.value: status for status in (Status.REJECTED, Status.NOT_RUN)}


def status_text(status: Status, reason: str) -> str:
    """Return the status and its reason as the manifest has them.

    >>> status_text(Status.VERIFIED, "on ONNX Runtime 1.20"), status_text(Status.REJECTED, "SNR 3 dB")
    ('verified on ONNX Runtime 1.20', 'rejected: SNR 3 dB')
    """
    separator = " " if status is Status.VERIFIED else ": "
    return f"{status.value}{separator}{reason}" if reason else status.value


def parse_status(text: str) -> tuple[Status, str]:
    """Parse a text of :func:`status_text`.

    >>> parse_status("verified on ONNX Runtime 1.20")
    (<Status.VERIFIED: 'verified'>, 'on ONNX Runtime 1.20')

    Raises:
        ValueError: it is neither ``verified ...`` nor ``rejected: why`` nor ``not run: why``.
    """
    word, _, reason = text.partition(": ")
    if reason and word in _NEED_A_REASON:
        return _NEED_A_REASON[word], reason
    after = text[len("verified") :]
    if text.startswith("verified") and not (after[:1].isalnum() or after[:1] == "_"):
        return Status.VERIFIED, after.lstrip(" :,;")
    raise ValueError(f"{brief(text)} is neither verified, 'rejected: why' nor 'not run: why'")


class Variant(NamedTuple):
    """The model as one target at one precision has it.

    Attributes:
        name: Unique in the bundle, e.g. ``rpi5-fp16``.
        target: The target whose engine runs it, e.g. ``tflite``.
        profile: The profile it was built for, e.g. ``rpi5``.
        precision: ``fp32``, ``fp16`` ...
        files: File name as the engine wants it -> name of the entry that holds it.
        options: Settings for the target's runner, besides the files.
        status: ``verified ...``, ``rejected: why`` or ``not run: why``, for people; code asks ``outcome``.
        evidence: Measurements: error against the reference, timing, size.
        shrunk: For a variant that computes a smaller model than the source's: ``multiplications`` before and
            after, and its own ``golden`` outputs. None means it computes the source model.
    """

    name: str
    target: str
    profile: str
    precision: str
    files: Mapping[str, str]
    options: Mapping[str, Json] = MappingProxyType({})
    status: str = "not run: not verified yet"
    evidence: Mapping[str, Json] = MappingProxyType({})
    shrunk: Mapping[str, Json] | None = None

    @property
    def has_shapes(self) -> bool:
        """Return whether it was compiled at several shapes (edgekit/target/shapes.py, shape_range.py)."""
        return not self.options.keys().isdisjoint(("shapes", "range", "lengths"))

    @property
    def outcome(self) -> Status:
        """Return the outcome in ``status``, without the reason."""
        return parse_status(self.status)[0]

    @property
    def reason(self) -> str:
        """Return ``status`` after its first word: the engine that verified it, or the reason why not."""
        return parse_status(self.status)[1]

    @property
    def verified(self) -> bool:
        return self.outcome is Status.VERIFIED

    @property
    def rejected(self) -> bool:
        return self.outcome is Status.REJECTED

    @property
    def usable(self) -> bool:
        """Return whether a session may run it: it has files and was not rejected."""
        return bool(self.files) and not self.rejected

    @property
    def smaller_by(self) -> float:
        """Share (0 to 1) of the source model's multiplications that it lacks; 0 if it is that model."""
        if self.shrunk is None:
            return 0.0
        before, after = self.shrunk["multiplications"]
        return float(1 - after / before)

    def __repr__(self) -> str:
        return f"<Variant {self.name}: {self.status}>"

    def _repr_html_(self) -> str:
        row = (self.name, self.profile, self.precision, self.status)
        return html_table(("variant", "target", "precision", "status"), [row])

    def as_json(self) -> dict[str, Json]:
        return {
            key: dict(value) if isinstance(value, Mapping) else value
            for key, value in self._asdict().items()
            if key != "shrunk" or value is not None
        }


def _refuse(variant: Variant, name: str) -> NoReturn:
    raise no_attribute(variant, name, {"export": "bundle.export(name, folder) writes its files"})


Variant.__getattr__ = _refuse  # type: ignore[attr-defined]  # a type checker finds wrong names itself
