"""The two contracts at a target's seams, and how targets are found.

A target is a package (``targets/edgekit_tflite``) with two modules that this file describes as protocols:

    compile.py   Compiler   host: canonical model -> files                entry-point group edgekit.compilers
    run.py       Engine     device: files -> a Runner, numpy + one engine  entry-point group edgekit.runners

The entry points are the lazy import: a module is loaded by name, when it is used. A third party adds a target
by installing a package with the same two entry points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from edgekit.errors import MissingDependency, ProfileError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import numpy.typing as npt
    import onnx_ir as ir

    from edgekit.findings import Finding
    from edgekit.profile import Profile
    from edgekit.quantize.rules import Rules

Array: TypeAlias = "npt.NDArray[Any]"
Json = Any  # None | bool | int | float | str | list[Json] | dict[str, Json]: what json.loads gives


class TensorSpec(NamedTuple):
    """One input or output of the source model: its own name, numpy dtype name and shape.

    An input's shape is static. One dimension of an output may be -1: as many as the data give (the boxes that
    NonMaxSuppression leaves).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        shape = "x".join("?" if d == -1 else str(d) for d in self.shape)
        return f"{self.name} {self.dtype} {shape or 'scalar'}"

    @property
    def is_open(self) -> bool:
        """Whether the data decide its shape."""
        return -1 in self.shape

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape can be it."""
        if len(shape) != len(self.shape):
            return False
        return all(declared in (d, -1) for d, declared in zip(shape, self.shape, strict=True))

    def zeros(self) -> Array:
        return np.zeros(self.shape, np.dtype(self.dtype))


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


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # here: it costs 15 ms, and draws in socket

    return {point.name: point for point in entry_points(group=group)}


def target_names() -> list[str]:
    """Names of the installed targets, sorted."""
    return sorted(_found("edgekit.runners"))


def target_package(name: str) -> str:
    """Import name of a target's package, e.g. ``edgekit_tflite``."""
    return _find("edgekit.runners", name).value.partition(".")[0]


def compiler(name: str) -> Compiler:
    """The compiler of a target.

    Raises:
        ProfileError: no such target.
    """
    return cast(Compiler, _find("edgekit.compilers", name).load())


def io_layouts(name: str) -> tuple[str, ...]:
    """Layouts (edgekit/layouts.py) that a target's artifacts can have: the compiler's ``IO_LAYOUTS``, if any.

    Raises:
        ProfileError: no such target.
    """
    return tuple(getattr(compiler(name), "IO_LAYOUTS", ("nchw",)))


def refined(
    name: str,
    model: ir.Model,
    profile: Profile,
    precision: str,
    artifact: Artifact,
    samples: Sequence[Mapping[str, Array]],
) -> Artifact:
    """The artifact of a compiler that looks at samples once more: its ``refined_model``, if it has one.

    Raises:
        ProfileError: no such target.
    """
    refine = getattr(compiler(name), "refined_model", None)
    return (
        artifact if refine is None else cast(Artifact, refine(model, profile, precision, artifact, samples))
    )


def stand_in(name: str) -> Engine | None:
    """What computes a target's files on a machine without its engine: the compiler's module ``stand_in``, if
    there is one. Its runners have ``stands_in_for``.

    Raises:
        ProfileError: no such target.
    """
    return cast("Engine | None", getattr(compiler(name), "stand_in", None))


def inside(name: str) -> ModuleType | None:
    """What a target can tell of the inside of its artifacts (edgekit/inside.py); None where nothing.

    Raises:
        ProfileError: no such target.
    """
    package = target_package(name)
    try:
        return import_module(f"{package}.inside")
    except ModuleNotFoundError as problem:
        if problem.name != f"{package}.inside":
            raise
        return None


def engine(name: str) -> Engine:
    """The engine of a target.

    Raises:
        ProfileError: no such target.
    """
    module = _by_its_name(name)
    return cast(Engine, module if module is not None else _find("edgekit.runners", name).load())


@cache
def _by_its_name(name: str) -> ModuleType | None:
    """The module ``run`` of a target whose package is called as the target is: none needs looking for in the
    lists of what is installed, which takes 25 ms of a cold start."""
    if not name.isidentifier():  # a bundle from elsewhere may name anything
        return None
    try:
        return import_module(f"edgekit_{name}.run")
    except ModuleNotFoundError as problem:
        if problem.name not in (f"edgekit_{name}", f"edgekit_{name}.run"):
            raise
        return None


def available(name: str) -> Engine:
    """A target's engine, or on a machine without it what stands in for it, if anything does.

    Raises:
        ProfileError: no such target.
    """
    found = engine(name)
    try:
        found.engine_version()
    except MissingDependency:
        return stand_in(name) or found
    return found


def _find(group: str, name: str) -> EntryPoint:
    try:
        return _found(group)[name]
    except KeyError:
        raise ProfileError(f"no target is called {name!r}; there are {', '.join(_found(group))}") from None
