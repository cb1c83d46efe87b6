"""Run a .rknn file on the NPU of a Rockchip board. Device side: numpy and rknn-toolkit-lite2.

Written from the documentation of rknn-toolkit-lite2 2.3 and not run: there was no board. What was run is the
same network on the compiler's simulator (simulator.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError, MissingDependency
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec

PACKAGE = "rknn-toolkit-lite2"
ENGINE = EngineInfo(packages=(PACKAGE,))
MODEL_FILE, SOURCE_FILE, LAYERS_FILE = "model.rknn", "model.onnx", "layers.json"
INSTALL = f"install {PACKAGE} on the board with pip; the driver and librknnrt.so are part of its system"


def engine_version() -> str:
    """Name and version of the installed engine, e.g. ``rknn-toolkit-lite2 2.3.2``."""
    try:
        return f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        raise MissingDependency(PACKAGE, "running a .rknn file on the NPU", INSTALL) from None


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> RknnRunner:
    """Load ``model.rknn``. ``threads`` means nothing to an NPU.

    Raises:
        EngineError: it refused the file, or the NPU's driver is missing or older than the file.
    """
    engine = engine_version()
    from rknnlite.api import RKNNLite

    lite = RKNNLite(verbose=False)
    try:
        for action, done in (
            ("load", partial(lite.load_rknn, str(files[MODEL_FILE]))),
            ("start", lite.init_runtime),
        ):
            code = done()
            if code != 0:
                raise EngineError(f"{engine} did not {action} {files[MODEL_FILE]}: code {code}")
    except EngineError:
        lite.release()
        raise
    except Exception as problem:  # an engine may raise anything at a damaged file
        lite.release()
        raise EngineError(f"{engine} did not load {files[MODEL_FILE]}: {problem}") from None
    return RknnRunner(lite, engine, options, outputs)


class RknnRunner:
    """A loaded model.rknn."""

    device = "NPU"

    def __init__(
        self, lite: Any, engine: str, options: Mapping[str, Json], outputs: Sequence[TensorSpec]
    ) -> None:
        self.precision = str(options["precision"])
        self._lite, self._engine, self._outputs = lite, engine, list(outputs)
        self._inputs = [str(name) for name in options["inputs"]]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        arrays = [feeds[name] for name in self._inputs]
        try:
            returned = self._lite.inference(inputs=arrays, data_format=layouts(arrays))
        except Exception as problem:
            raise EngineError(f"{self._engine} failed to run: {problem}") from None
        return named(returned, self._outputs, self._engine)

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self._lite.release()


def layouts(arrays: Sequence[Array]) -> list[str] | None:
    """``nchw`` for images, which the toolkit takes for channels last otherwise; it means: as the source. It
    is read of inputs of four axes only, and must be there for all inputs if it is for one."""
    return ["nchw"] * len(arrays) if any(array.ndim == 4 for array in arrays) else None


def named(returned: Sequence[Any] | None, outputs: Sequence[TensorSpec], engine: str) -> dict[str, Array]:
    """Return the toolkit's outputs by name, with the model's dtypes and shapes.

    Raises:
        EngineError: there are none, or others.
    """
    if returned is None or len(returned) != len(outputs):
        raise EngineError(f"{engine} gave {len(returned or ())} outputs; the model has {len(outputs)}")
    arrays = {}
    for spec, array in zip(outputs, returned, strict=True):
        if array.size != int(np.prod(spec.shape)):
            raise EngineError(f"{engine} gave {spec.name} as {list(array.shape)}, the model has {spec}")
        arrays[spec.name] = np.array(array, dtype=spec.dtype).reshape(spec.shape)
    return arrays
