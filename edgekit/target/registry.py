"""The installed targets, found by entry point and loaded on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from edgekit.errors import EngineError, EngineNotReady, ProfileError
from edgekit.system.forked import leave_to_parent
from edgekit.tensor_spec import Json, TensorSpec

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from edgekit.target.accelerators import Accelerators
    from edgekit.target.contract import Compiler, Engine, Runner
    from edgekit.target.decoder import DecoderCompiler, DecoderRunner
    from edgekit.target.node_reports import NodeReports


ACCELERATOR = "accelerator"
"""Option of a variant's accelerated copy, which only a session makes: its device, a kind or an
interface (target/accelerators.py)."""
_OWN = {"deferral": "edgekit.target.deferral"}
"""Targets that do not belong to one device: they run variants of others."""


@cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # here: it costs 15 ms, and imports socket

    return {point.name: point for point in entry_points(group=group)}


def target_names() -> list[str]:
    """Return the names of the installed targets, sorted."""
    return sorted(_entry_points("edgekit.runners"))


def target_package(name: str) -> str:
    """Import name of a target's package, e.g. ``edgekit_tflite``."""
    return _find("edgekit.runners", name).value.partition(".")[0]


def compiler(name: str) -> Compiler:
    """Return the compiler of a target.

    Raises:
        ProfileError: no such target.
    """
    return cast("Compiler", _find("edgekit.compilers", name).load())


def node_reports(name: str) -> NodeReports:
    """Return the node reports that a target supports; empty if none.

    Raises:
        ProfileError: no such target.
        ModuleNotFoundError: a package that this needs is not installed.
    """
    from edgekit.target.node_reports import NodeReports  # here: a session does not need it

    module = engine(name).ENGINE.node_reports
    return cast(NodeReports, import_module(module).NODE_REPORTS) if module else NodeReports()


def open_decoder(
    name: str,
    files: Mapping[str, Path],
    options: Mapping[str, Json],
    threads: int | None = None,
    capacity: int | None = None,
) -> DecoderRunner:
    """Load a language model's variant.

    Args:
        name: Name of the target.
        files: File name -> path, as in the artifact.
        options: The artifact's options.
        threads: Threads for one step; None is the target's default.
        capacity: Tokens that the cache can hold. None means as many as the file has positions for.

    Raises:
        ProfileError: no such target, or it does not run language models.
        MissingDependency: the engine is not installed.
        UsageError: the file has no positions for so many tokens.
        EngineError: the engine refused the files.
    """
    module = engine(name).ENGINE.decoder
    if not module:
        raise ProfileError(f"{name} does not run language models")
    decoder = import_module(module).open_decoder(files, options, threads, capacity)
    return leave_to_parent(cast("DecoderRunner", decoder))


def decoder_compiler(name: str) -> DecoderCompiler:
    """Return the module that compiles language models for a target.

    Raises:
        ProfileError: no such target, or it does not run language models.
    """
    module = compiler(name).TARGET.decoder
    if not module:
        raise ProfileError(f"{name} does not run language models")
    return cast("DecoderCompiler", import_module(module))


def engine(name: str) -> Engine:
    """Return the engine of a target.

    Raises:
        ProfileError: no such target.
    """
    module = import_module(_OWN[name]) if name in _OWN else _by_its_name(name)
    return cast("Engine", module if module is not None else _find("edgekit.runners", name).load())


def accelerators_of(engine: Engine) -> Accelerators:
    """Return the module that runs an engine's variants on accelerators.

    Raises:
        EngineError: the engine has none.
    """
    module = engine.ENGINE.accelerators
    if not module:
        raise EngineError(f"{engine.engine_version()} runs on the CPU only")
    return cast("Accelerators", import_module(module))


def version_of(name: str, options: Mapping[str, Json]) -> str:
    """Return the version of a target's engine; with its accelerator and drivers if the options name one.

    Raises:
        ProfileError: no such target.
        MissingDependency: the engine is not installed.
        EngineError: the accelerator is missing.
    """
    target_engine = engine(name)
    version, device = target_engine.engine_version(), options.get(ACCELERATOR)
    if device is None:
        return version
    accelerator = accelerators_of(target_engine).find_accelerator(device)
    if accelerator is None:
        from edgekit.target.accelerators import absent  # here: most variants run on the CPU

        raise EngineError(absent(version, device))
    return f"{version}, {accelerator.name} {accelerator.version}"


@cache
def _by_its_name(name: str) -> ModuleType | None:
    """Return the module ``run`` of a target whose package is named after it. This avoids reading the entry
    points of all installed packages, 25 ms of a cold start."""
    if not name.isidentifier():  # a bundle from elsewhere may contain any name
        return None
    try:
        return import_module(f"edgekit_{name}.run")
    except ModuleNotFoundError as problem:
        if problem.name not in (f"edgekit_{name}", f"edgekit_{name}.run"):
            raise
        return None


def _find(group: str, name: str) -> EntryPoint:
    try:
        return _entry_points(group)[name]
    except KeyError:
        raise ProfileError(f"unknown target {name!r}; available: {', '.join(_entry_points(group))}") from None


def open_runner(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> Runner:
    """Call ``engine.open_runner``; open a model of several shapes at each or at all of a range, a speech
    model's encoder with its decoder, and an accelerated copy on its accelerator."""
    return leave_to_parent(_open_runner(engine, files, inputs, outputs, options, threads))


def _open_runner(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> Runner:
    if "encoder_decoder" in options:
        from edgekit.target import encoder_decoder  # here: most models have no decoder of tokens

        if ACCELERATOR in options:
            raise EngineError("speech models run on the CPU only")
        if "shapes" in options:
            from edgekit.target import shapes

            opener = partial(encoder_decoder.open_runner, engine)
            return shapes.open_runner(engine, files, inputs, outputs, options, threads, opener)
        return encoder_decoder.open_runner(engine, files, inputs, outputs, options, threads)
    if (device := options.get(ACCELERATOR)) is not None:
        return accelerators_of(engine).open_on(device, files, inputs, outputs, options, threads)
    if "range" in options:
        from edgekit.target import range_runner

        return range_runner.open_runner(engine, files, inputs, outputs, options, threads)
    if "shapes" not in options:
        return engine.open_runner(files, inputs, outputs, options, threads)
    from edgekit.target import shapes  # here: most models have one

    return shapes.open_runner(engine, files, inputs, outputs, options, threads)


def open_ready(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> Runner:
    """Open a runner like :func:`open_runner`, but wait if an engine must be built first."""
    return once_built(partial(open_runner, engine, files, inputs, outputs, options, threads))


def once_built(open_runner: Callable[[], Runner]) -> Runner:
    """Return the result of ``open_runner``; waits for each engine that must be built first."""
    waited: list[object] = []
    while True:
        try:
            return open_runner()
        except EngineNotReady as not_ready:
            if not_ready.build in waited:  # it was built, and is not ready even so
                raise
            waited.append(not_ready.build)
            not_ready.build.wait()
