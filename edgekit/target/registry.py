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
    from edgekit.target.node_reports import NodeReports


ACCELERATOR = "accelerator"
"""Option of a variant's accelerated copy, which only a session makes: its device, a kind or an
interface (target/accelerators.py)."""
_OWN = {"deferral": "edgekit.target.deferral"}
"""Targets that do not belong to one device: they run variants of others."""
FORMS = {
    "encoder_decoder": "edgekit.generate.device.encoder_decoder",
    "range": "edgekit.target.range_runner",
    "shapes": "edgekit.target.shapes",
}
"""Option of a variant that is not one network of one shape -> module whose ``open_runner`` opens it. A
variant with several of these options is opened by the first."""


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


def isolation_of(name: str, options: Mapping[str, Json]) -> str:
    """Return how a variant of a target must be used: the accelerator's ``isolation``, or "" on the CPU.

    Raises:
        MissingDependency: the engine is not installed.
        EngineError: the accelerator is missing.
    """
    device = options.get(ACCELERATOR)
    find = getattr(accelerators_of(engine(name)), "isolation", None) if device is not None else None
    return str(find(device)) if find is not None else ""


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
    form = next((option for option in FORMS if option in options), None)
    device = options.get(ACCELERATOR)
    if device is not None and form != "encoder_decoder":
        return accelerators_of(engine).open_on(device, files, inputs, outputs, options, threads)
    if form is None:
        return engine.open_runner(files, inputs, outputs, options, threads)
    opener = import_module(FORMS[form])  # here: most variants are one network of one shape
    return cast("Runner", opener.open_runner(engine, files, inputs, outputs, options, threads))


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
