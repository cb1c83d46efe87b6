"""Run an .aimodel on Apple's Core AI runtime. Device side: numpy and coreai-core.

On Linux the package brings the runtime along and computes on the CPU, so it stands in for Apple's hardware:
its outputs verify the file, its times are not Apple hardware's. On macOS 27 it is the system's own runtime,
which has not been run.

The runtime is asynchronous: each runner has a thread with an event loop.
"""

from __future__ import annotations

import platform
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError, need_package
from edgekit.system.redirection import without_lines
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(
    packages=("coreai-core", "coreai-onnx"),
    stands_in_for=lambda: "" if _on_a_mac() else HARDWARE,
)
HARDWARE = "Apple hardware"
PACKAGE = "model.aimodel"
PROGRAM = f"{PACKAGE}/main.mlirb"
LOG = b"ODIE"
"""First word of the lines that the runtime writes to stderr."""
MLIR = b"ML\xefR"
"""First bytes of MLIR bytecode."""
STORED = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
"""Element types that Core AI stores in 32 bits."""


def engine_version() -> str:
    """Return name and version, e.g. ``Apple's Core AI runtime on Linux, coreai-core 1.0.0b3``."""
    _coreai()
    from importlib.metadata import version  # here: it costs a cold start 15 ms

    system = f"macOS {platform.mac_ver()[0]}" if _on_a_mac() else platform.system()
    return f"Apple's Core AI runtime on {system}, coreai-core {version('coreai-core')}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> CoreAiRunner:
    """Load ``model.aimodel``.

    Args:
        options: ``precision``; ``inputs`` and ``outputs``: the names in the package, in the model's order.
        threads: Not used: the runtime has no setting for it.
    """
    version, package = engine_version(), files[PROGRAM].parent
    for specs, key in ((inputs, "inputs"), (outputs, "outputs")):
        if list(options[key]) != [spec.name for spec in specs]:
            raise EngineError(f"{package} is not of this model: its {key} are {', '.join(options[key])}")
    _check_program(package)
    loop = _Loop()
    try:
        with without_lines(LOG):
            model, function = loop.run(_load(package))
    except Exception as problem:  # the compiler and the runtime raise many classes
        loop.close()
        raise EngineError(f"{version} did not load {package}: {_plain(problem)}") from None
    return CoreAiRunner(loop, model, function, version, inputs, outputs, str(options["precision"]))


def _check_program(package: Path) -> None:
    """Compare the program with the hash next to it: on a damaged one the runtime ends the process."""
    import hashlib

    try:
        program, expected = (package / "main.mlirb").read_bytes(), (package / "main.hash").read_bytes()
    except OSError as problem:
        raise EngineError(f"{package} can't be read: {problem.strerror}") from None
    if hashlib.sha256(program).digest() != expected or not program.startswith(MLIR):
        raise EngineError(
            f"{package} is damaged: main.mlirb does not match main.hash; unpack or build it again"
        )


async def _load(package: Path) -> tuple[Any, Any]:
    """Return the context that keeps the model loaded, and its function."""
    asset = _coreai().AIModelAsset.load(package)
    context = asset.executable()
    model = await context.__aenter__()
    return context, model.load_function(model.function_names[0])


class CoreAiRunner:
    """Loaded ``model.aimodel``.

    Attributes:
        device: ``CPU`` on Linux; ``Core AI`` on a Mac, which chooses between CPU, GPU and Neural Engine.
        stands_in_for: ``Apple hardware`` on Linux, else empty.
        stands_in_by: ``Apple's Core AI runtime on Linux``.
    """

    def __init__(
        self,
        loop: _Loop,
        model: Any,
        function: Any,
        version: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        precision: str,
    ) -> None:
        self.device = "Core AI" if _on_a_mac() else "CPU"
        self.precision = precision
        self.stands_in_for = "" if _on_a_mac() else HARDWARE
        self.stands_in_by = version
        self._loop, self._model, self._function = loop, model, function
        self._inputs, self._outputs = list(inputs), list(outputs)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        array_type = _coreai().NDArray
        arguments = {spec.name: array_type(_narrowed(feeds[spec.name], spec)) for spec in self._inputs}
        try:
            results = self._loop.run(self._function(arguments))
        except Exception as problem:  # see open_runner
            raise EngineError(f"{self.stands_in_by} failed to run: {_plain(problem)}") from None
        arrays = {}
        for spec in self._outputs:
            array = np.asarray(results[spec.name].numpy())
            if array.shape != tuple(spec.shape):
                raise EngineError(
                    f"the package gives {spec.name} as {list(array.shape)}, the model as {spec}"
                )
            arrays[spec.name] = np.array(array, spec.dtype, order="C")  # a copy: the caller's
        return arrays

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self._loop.run(self._model.__aexit__(None, None, None))
        self._loop.close()
        del self._function, self._model


class _Loop:
    """An event loop in a thread of its own: the caller may be inside one already."""

    def __init__(self) -> None:
        import asyncio  # here: a session of another target does not pay for it
        from threading import Thread

        self._loop = asyncio.new_event_loop()
        self._submit = asyncio.run_coroutine_threadsafe
        self._thread = Thread(target=self._loop.run_forever, name="edgekit-coreai", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._submit(coroutine, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _narrowed(array: Array, spec: TensorSpec) -> Array:
    """Convert an array to the package's dtype: Core AI has no 64-bit values."""
    stored = STORED.get(spec.dtype)
    if stored is None:
        return np.array(array, order="C")
    if array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(stored)
        if array.min() < limits.min or array.max() > limits.max:
            raise EngineError(
                f"{spec.name} contains {array.min()} to {array.max()}, but the package stores it as {stored}"
            )
    return np.array(array, stored, order="C")


def _plain(problem: BaseException) -> str:
    return " ".join(str(problem).split()) or type(problem).__name__


def _on_a_mac() -> bool:
    return platform.system() == "Darwin"


def _coreai() -> Any:
    with need_package("coreai-core", "running an .aimodel", extra="coreai", module="coreai"):
        from coreai.authoring import asset
        from coreai.runtime import NDArray
    from types import SimpleNamespace

    return SimpleNamespace(AIModelAsset=asset.AIModelAsset, NDArray=NDArray)
