"""The two contracts at a target's seams, and how targets are found.

A target is a package (``targets/edgekit_tflite``) with two modules that this file describes as protocols:

    compile.py   Compiler   host: canonical model -> files                entry-point group edgekit.compilers
    run.py       Engine     device: files -> a Runner, numpy + one engine  entry-point group edgekit.runners

The entry points are the lazy import: a module is loaded by name, when it is used. A third party adds a target
by installing a package with the same two entry points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edgekit.tensors import Array, Json, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.findings import Finding
    from edgekit.target.profile import Profile
    from edgekit.target.quant_rules import Rules


class Artifact(NamedTuple):
    """What a compiler makes of a model.

    Attributes:
        files: File name -> content: relative paths of plain names, as docs/bundle-format.md has them.
        options: What the runner must know besides the files (I/O names and layouts, pinned precision). JSON.
        facts: What the report says about the compilation (ops, transposes left and why). JSON.
    """

    files: Mapping[str, bytes]
    options: Mapping[str, Json] = MappingProxyType({})
    facts: Mapping[str, Json] = MappingProxyType({})


class Compiler(Protocol):
    """The host half of a target: the module ``compile.py``. It never changes the model it is given."""

    PRECISIONS: tuple[str, ...]
    """The precisions ``compile_model`` takes, e.g. ``("fp32", "fp16")``.

    Q/DQ pairs say themselves what is int8: such a model is compiled as ``fp32``, or as ``int8`` where the
    target has something to say about the floats between the pairs.
    """

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        """Say what will not run and what will leave the fast path, without compiling."""

    def quantization_rules(self, profile: Profile) -> Rules:
        """What the target, or the device, computes on integers: its ``quant_rules.py``."""

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        """Compile the canonical model.

        Raises:
            UnsupportedError: some nodes have no form here; all are named, and nothing was lowered.
            MissingDependency: a tool that compiles for this target is not installed.
        """


class Runner(Protocol):
    """One loaded variant. Not safe for concurrent calls: a Session holds a lock around it."""

    device: str
    """What it runs on, as the engine names it, e.g. ``CPU``."""
    precision: str
    """The arithmetic precision that is executed, e.g. ``fp32``."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once. ``feeds`` holds every input, C-contiguous, of the declared dtype and shape.

        The arrays returned have the source model's names, dtypes, shapes and layouts, and are the caller's:
        they stay as they are when ``run`` is called again.
        """

    def facts(self) -> dict[str, Json]:
        """What only the loaded engine knows, e.g. the nodes that its delegate did not take."""

    def close(self) -> None:
        """Free the engine's memory. The runner is not used afterwards."""


def stands_in_for(runner: Runner) -> str:
    """What a runner that is not the engine itself stands in for, e.g. ``Apple hardware``; "" for an engine.

    A reference executor has the attribute ``stands_in_for``: it computes what the files say, on any machine.
    Its answers are evidence of the files, its times are none of the device's.
    """
    return str(getattr(runner, "stands_in_for", ""))


class Engine(Protocol):
    """The device half of a target: the module ``run.py``.

    One whose variants are made ready on the device, in a child process of its own, has the attribute
    ``PREPARED_ON_DEVICE = True``: they are opened in the background, and not probed.
    """

    def engine_version(self) -> str:
        """Name and version of the installed engine, e.g. ``LiteRT 2.3.0``.

        Raises:
            MissingDependency: it is not installed; the text has the pip line.
        """

    def open_runner(
        self,
        files: Mapping[str, Path],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
        threads: int | None,
    ) -> Runner:
        """Load a variant.

        Args:
            files: File name -> path, as in the artifact.
            inputs: The source model's inputs, in order.
            outputs: The source model's outputs, in order.
            options: The artifact's options.
            threads: Threads for one run; None is the target's default.

        Raises:
            MissingDependency: the engine is not installed.
            EngineError: the engine refused the files.
        """
