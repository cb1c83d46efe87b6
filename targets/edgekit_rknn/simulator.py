"""The compiler's simulator, which computes what was built if there is no NPU.

It runs what it has built, not a .rknn file: ``model.onnx``, which is next to it, is built again. Floats are
those of float16 storage, and 8-bit integers are the NPU's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.toolchains.child import ToolchainChild
from edgekit.errors import EngineError
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_rknn.run import SOURCE_FILE, named
from edgekit_rknn.toolchain import VERSION, environment

ENGINE = EngineInfo()
CHILD = Path(__file__).with_name("npu_child.py")
BUILD_SECONDS, RUN_SECONDS = 1800.0, 600.0
"""YOLOX-nano: 10 s and 1.5 s on two cores."""


def engine_version() -> str:
    """Name and version of the simulator."""
    environment("simulating a Rockchip NPU")
    return f"the simulator of {VERSION}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> SimulatedNetwork:
    """Build ``model.onnx`` again, for the simulator."""
    child = ToolchainChild(environment("simulating a Rockchip NPU"), CHILD)
    try:
        (child.folder / SOURCE_FILE).write_bytes(files[SOURCE_FILE].read_bytes())
        child.ask({"do": "build", "platform": options["platform"], "simulate": True}, BUILD_SECONDS)
    except BaseException:
        child.close()
        raise
    return SimulatedNetwork(child, options, outputs)


class SimulatedNetwork:
    """A network on the simulator."""

    device = "simulator"
    stands_in_for = "a Rockchip NPU"

    def __init__(
        self, child: ToolchainChild, options: Mapping[str, Json], outputs: Sequence[TensorSpec]
    ) -> None:
        self.precision = str(options["precision"])
        self._child, self._outputs = child, list(outputs)
        self._inputs = [str(name) for name in options["inputs"]]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        np.savez(self._child.folder / "in.npz", **{name: feeds[name] for name in self._inputs})  # type: ignore[arg-type]
        self._child.ask({"do": "run", "inputs": list(self._inputs)}, RUN_SECONDS)
        try:
            with np.load(self._child.folder / "out.npz", allow_pickle=False) as arrays:
                returned = [arrays[name] for name in arrays.files]
        except (OSError, ValueError) as problem:
            raise EngineError(f"the simulator sent an invalid response: {problem}") from None
        return named(returned, self._outputs, "the simulator")

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        self._child.close()
