"""A variant on an accelerator: the same files and engine, on another processor or by other kernels.

An engine that can do so names a module in ``ENGINE.accelerators`` (target/contract.py), which follows
:class:`Accelerators`. A session makes accelerated copies of variants (runtime/fallback/accelerated.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from edgekit.target.contract import Runner
from edgekit.tensor_spec import Json, TensorSpec

KINDS = ("gpu", "npu")
"""Kinds that ``Session(device=...)`` takes. An interface of another kind is used only by its name."""
FILE = "FILE"
"""End of an interface's name that stands for a file and options: ``delegate:FILE``."""


@dataclass(frozen=True)
class Interface:
    """One way in which an engine reaches an accelerator, whether or not this machine has it.

    Attributes:
        name: Value of ``Session(device=...)`` that means this one alone, e.g. ``cuda``.
        kind: ``gpu``, ``npu``, ``cpu`` for other kernels on the same processor, ``any`` if it is not known.
        label: Its name for users, e.g. ``CUDA``.
        systems: Systems that have it, as ``sys.platform`` names them.
        install: The pip command that brings it, or what else does.
        precision: Arithmetic for a float variant, and the option that sets it.
        source: Address of the vendor's documentation.
        measured: Hardware on which models were run and compared. "" means that it has not been run.
        options: Options of the engine, as names and values.
        takes: Precisions of the variants that it runs. Empty means all.
    """

    name: str
    kind: str
    label: str
    systems: tuple[str, ...]
    install: str
    precision: str
    source: str
    measured: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    takes: tuple[str, ...] = ()

    @property
    def is_for_this_system(self) -> bool:
        return sys.platform in self.systems

    def is_meant_by(self, device: str) -> bool:
        """Return whether ``Session(device=...)`` means it: its kind, or its name with any file in it."""
        if device in KINDS:
            return device == self.kind
        return self.name == (f"{device.partition(':')[0]}:{FILE}" if ":" in device else device)


AnyInterface = TypeVar("AnyInterface", bound=Interface)


def named(interfaces: Iterable[AnyInterface], device: str) -> list[AnyInterface]:
    """Return the interfaces that a device means: those of its kind, or the one of its name.

    Args:
        interfaces: Those of one engine, in the order in which they are preferred.
        device: A kind, or the name of an interface.
    """
    return [one for one in interfaces if one.is_meant_by(device)]


def absent(engine_version: str, device: str) -> str:
    """Return the error for a device that an engine does not reach."""
    return f"{engine_version} found no {device.upper() if device in KINDS else device} on this machine"


class Accelerator(NamedTuple):
    """One accelerator of this machine, as an engine reaches it.

    Attributes:
        kind: ``gpu``, ``npu`` or ``cpu``.
        name: Interface by which the engine reaches it, e.g. ``WebGPU`` or ``CUDA``.
        version: Versions of the plug-in and of the drivers; a verdict about a variant holds for this version.
        software: Whether it computes on the CPU (a software adapter): right, but slow.
    """

    kind: str
    name: str
    version: str
    software: bool = False


class PlacedNode(NamedTuple):
    """A node that an engine ran, as its own profile has it.

    Attributes:
        provider: The execution provider that ran it.
        reason: Why the accelerator did not; "" if it did.
    """

    node: str
    op: str
    provider: str
    reason: str = ""


class Accelerators(Protocol):
    """The accelerators of one engine. A device is a kind, or the name of an interface.

    Runners that may run nodes on the CPU have the attribute ``placement``, a list of :class:`PlacedNode`.

    A module may also have ``isolation(device) -> str``: how a copy must be used once a child process has
    verified it. ``worker``: another child process runs it, after it has reproduced the golden vectors there.
    ``checked``: the app's process runs it, and checks it from time to time. "": the app just runs it.
    """

    INTERFACES: Sequence[Interface]

    def find_accelerator(self, device: str) -> Accelerator | None:
        """Return the accelerator that the engine would use here; None if there is none.

        Raises:
            MissingDependency: the engine is not installed.
        """

    def open_on(
        self,
        device: str,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> Runner:
        """Load a variant on an accelerator and run it once on zeros.

        Its ``device`` names the accelerator and, unless it runs every node, how many of them.

        Raises:
            MissingDependency: the engine or its plug-in is not installed.
            EngineError: the accelerator is missing, or it runs no node of the model.
        """
