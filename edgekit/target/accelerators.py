"""A variant on a GPU or an NPU: the same files, run by the same engine on another processor.

An engine that can do so names a module in ``ENGINE.accelerators`` (target/contract.py), which follows
:class:`Accelerators`. A session makes accelerated copies of variants (runtime/fallback/accelerated.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edgekit.tensor_spec import Json, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

KINDS = ("gpu", "npu")


class Accelerator(NamedTuple):
    """One accelerator of this machine, as an engine reaches it.

    Attributes:
        kind: ``gpu`` or ``npu``.
        name: Interface by which the engine reaches it, e.g. ``WebGPU`` or ``CUDA``.
        version: Versions of the plug-in and of the drivers; a verdict about a variant holds for this version.
        software: Whether it computes on the CPU (a software adapter): right, but slow.
    """

    kind: str
    name: str
    version: str
    software: bool = False


class Accelerators(Protocol):
    """The accelerators of one engine."""

    def find_accelerator(self, kind: str) -> Accelerator | None:
        """Return the accelerator of a kind that the engine would use here; None if there is none.

        Raises:
            MissingDependency: the engine is not installed.
        """

    def open_on(
        self,
        kind: str,
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
            EngineError: there is no accelerator of the kind, or it runs no node of the model.
        """
