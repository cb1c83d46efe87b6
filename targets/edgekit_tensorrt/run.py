"""Run a model on the TensorRT of the system. Device side: numpy, tensorrt and CUDA's runtime library.

An engine is built on the device that runs it, in a child process (device/build_engine.py); until it is built,
opening the variant raises EngineNotReady and another one serves. What an engine depends on is its
fingerprint: change any and it is another engine.

TensorRT is the system's, never pip's: JetPack has the one that fits its driver.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import EngineError, MissingDependency
from edgekit.runtime.device_builds.build import EngineLimits, ready_or_build
from edgekit.runtime.device_builds.engine_store import EngineStore, fingerprint
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import sha256_of
from edgekit.target.contract import EngineInfo, TritonForm
from edgekit.target.shape_range import OPTION as RANGE
from edgekit.tensor_spec import Json, TensorSpec, with_shapes
from edgekit_tensorrt.device.cuda import CAPABILITY_MAJOR, CAPABILITY_MINOR, Cuda
from edgekit_tensorrt.device.engine import Extents, TensorRtRunner, read_file
from edgekit_tensorrt.device.golden import golden_feeds, golden_file, golden_sha256, why_wrong
from edgekit_tensorrt.device.presence import tools

ENGINE = EngineInfo(
    prepared_on_device=True,
    tools=tools,
    node_reports="edgekit_tensorrt.node_reports",
    # An engine is built where it runs: ONNX Runtime's backend has TensorRT do it when the model is loaded.
    triton=TritonForm("onnxruntime", {"model.onnx": "model.onnx"}, accelerator="tensorrt"),
)
MODEL_FILE = "model.onnx"
SETTINGS_FILE = "trt.json"
SETTINGS_LIMIT_BYTES = 1 << 20
SETTINGS = {"floor": str, "workspace_mb": int, "golden_integers": str, "golden_sha256": str}
"""What the device needs of ``trt.json``; the rest of it is for people."""
FLOOR = (10, 3)
"""The oldest TensorRT that is supported: that of JetPack 6.1, the first JetPack with strongly typed networks.
https://developer.nvidia.com/embedded/jetpack-archive"""
INSTALL = "JetPack 6.1 or newer has it (python -m venv --system-site-packages lets an environment see it)"
"""An engine is built in a child process, and held to the golden vector there: nothing needs a probe."""
RELEASE_FILE = Path("/etc/nv_tegra_release")


def engine_version() -> str:
    """Name and version of the installed engine, e.g. ``TensorRT 10.3.0``.

    Raises:
        MissingDependency: it is not installed, or older than 10.3.
    """
    return f"TensorRT {tensorrt().__version__}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> TensorRtRunner:
    """Load the engine of a variant. ``threads`` means nothing to a GPU.

    Raises:
        MissingDependency: TensorRT is not installed, or older than the file wants.
        EngineNotReady: the engine is being built.
        EngineError: TensorRT failed with it; the second time it is switched off for this fingerprint.
    """
    floor, extents = read_settings(files)["floor"], extents_of(options)
    trt, cuda = tensorrt(max(FLOOR, _numbers(floor))), Cuda()
    store = EngineStore()
    name = fingerprint(_depends_on(trt, cuda, files) | ({"extents": extents} if extents else {}))

    def command() -> list[str]:
        request = store.root / f"{name}.request"
        paths = {file: str(path) for file, path in files.items()}
        content = {"files": paths, "precision": options["precision"], "extents": extents}
        content |= {"inputs": list(inputs), "outputs": list(outputs)}
        store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        request.write_bytes(strict_json.encode(content))
        return [sys.executable, "-m", "edgekit_tensorrt.device.build_engine", str(request)]

    path = ready_or_build(store, name, command, EngineLimits())
    with store.doing(name, "load"):
        try:
            plan, precision = path.read_bytes(), options["precision"]
            return load_engine(trt, cuda, plan, files, inputs, outputs, precision, extents)
        except (EngineError, OSError) as problem:
            store.set_aside(name)
            store.fail(name, str(problem))
            raise EngineError(f"{engine_version()} can't use the engine it built: {problem}") from None


def load_engine(
    trt: Any,
    cuda: Cuda,
    plan: bytes,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    precision: str,
    extents: Extents | None = None,
) -> TensorRtRunner:
    """Load an engine, hold it to the golden vector, and record its launches.

    Raises:
        EngineError: it does not load or run, or its outputs are others.
    """
    runner = TensorRtRunner(trt, cuda, plan, inputs, outputs, precision, extents)
    try:
        settings = read_settings(files)
        feeds = golden_feeds(at_largest(inputs, extents), settings["golden_integers"])
        stored = [read_file(files, golden_file(number)) for number in range(len(outputs))]
        if golden_sha256(feeds, stored) != settings["golden_sha256"]:
            raise EngineError(f"the golden vector is another one here than {SETTINGS_FILE} says")
        wrong, _ = why_wrong(files, outputs, runner.run(feeds), precision)
        if not wrong:
            runner.record()
            wrong, snr_db = why_wrong(files, outputs, runner.run(feeds), precision)
            runner.golden_db = snr_db
        if wrong:
            raise EngineError(wrong)
    except BaseException:
        runner.close()
        raise
    return runner


def extents_of(options: Mapping[str, Json]) -> dict[str, list[list[int]]] | None:
    """Return the shapes of inputs and outputs at the smallest, a middle and the largest size of a variant's
    range; None without a range. The option was checked before (edgekit/target/shape_range.py)."""
    if (table := options.get(RANGE)) is None:
        return None
    low, high = table["sizes"]
    return {
        name: [
            [d if isinstance(d, int) else d[0] * size + d[1] for d in dims]
            for size in (low, (low + high) // 2, high)
        ]
        for side in ("inputs", "outputs")
        for name, dims in table[side].items()
    }


def at_largest(specs: Sequence[TensorSpec], extents: Extents | None) -> tuple[TensorSpec, ...]:
    """Return inputs or outputs at the largest size of a range."""
    return with_shapes(specs, {name: shapes[-1] for name, shapes in (extents or {}).items()})


def read_settings(files: Mapping[str, Path]) -> dict[str, Json]:
    """``trt.json`` of a variant.

    Raises:
        EngineError: it cannot be read.
    """
    content = read_file(files, SETTINGS_FILE)
    try:
        settings: dict[str, Json] = strict_json.decode(content, SETTINGS_FILE, SETTINGS_LIMIT_BYTES)
    except JsonError as problem:
        raise EngineError(f"{SETTINGS_FILE}: {problem}") from None
    for name, kind in SETTINGS.items():
        if not isinstance(settings, dict) or not isinstance(settings.get(name), kind):
            raise EngineError(f"{SETTINGS_FILE} has no {name}")
    return settings


def _depends_on(trt: Any, cuda: Cuda, files: Mapping[str, Path]) -> dict[str, Json]:
    """Return all that an engine depends on. The engine runs on the GPU alone: DLA cores are not used."""
    try:
        release = RELEASE_FILE.read_text("utf-8", errors="replace").split("\n")[0]
    except OSError:
        release = ""
    return {
        "files": {name: sha256_of(path) for name, path in files.items()},
        "tensorrt": str(trt.__version__),
        "cuda": cuda.version(),
        "l4t": release,
        "gpu": cuda.gpu_name(),
        "capability": [cuda.attribute(CAPABILITY_MAJOR), cuda.attribute(CAPABILITY_MINOR)],
        "dla": None,
    }


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def tensorrt(floor: tuple[int, ...] = FLOOR) -> Any:
    """Import and return the module ``tensorrt`` of the system.

    Raises:
        MissingDependency: it is not installed, or older than ``floor``.
    """
    try:
        import tensorrt as trt
    except ImportError as problem:
        because = "" if problem.name == "tensorrt" else f" ({problem})"
        raise MissingDependency("tensorrt", f"running a TensorRT engine{because}", INSTALL) from None
    version = str(trt.__version__)
    if _numbers(version) < floor:
        needed = f"running a TensorRT engine (here is {version})"
        raise MissingDependency(f"tensorrt {'.'.join(map(str, floor))} or newer", needed, INSTALL)
    return trt
