"""Run a network on ncnn's CPU kernels. Device side: numpy and ncnn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError, need_package
from edgekit.system.shared_libraries import check_libraries
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(packages=("ncnn",), plain_use="edgekit_ncnn.plain_use")
PARAM_FILE, BIN_FILE = "model.param", "model.bin"
MAGIC = "7767517"
"""First line of a .param file: https://github.com/Tencent/ncnn/wiki/param-and-model-file-structure"""
SETTINGS = {
    "use_fp16_packed": False,
    "use_fp16_storage": False,
    "use_fp16_arithmetic": False,
    "use_bf16_packed": False,
    "use_bf16_storage": False,
    "use_vulkan_compute": False,
}
"""Options of a network. By default ncnn rounds values to float16, and multiplies in it if the processor
can: what was verified on one processor would be something else on the next."""
HELD = ("float32", "uint8", "int8")
"""Element types of inputs and outputs; blobs hold all of them as float32."""


def engine_version() -> str:
    """Return name and version of the installed engine."""
    return f"ncnn {_ncnn().__version__}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> NcnnRunner:
    """Load ``model.param`` and ``model.bin``.

    Args:
        options: ``precision``; ``inputs``: name -> [blob, shape of the blob], for inputs that are read;
            ``outputs``: name -> blob.
        threads: Threads within one layer; None takes ncnn's default, one for each fast core.
    """
    version, param = engine_version(), files[PARAM_FILE]
    for spec in inputs:
        port = options["inputs"].get(spec.name)
        if port is not None and (math.prod(port[1]) != math.prod(spec.shape) or spec.dtype not in HELD):
            raise EngineError(f"{param} has {spec.name} as {port[1]}, but the model has it as {spec}")
    if set(options["outputs"]) != {spec.name for spec in outputs}:  # a manifest sorts names
        raise EngineError(f"{param} is not of this model: its outputs are {', '.join(options['outputs'])}")
    _check_layers(version, param)
    net = _ncnn().Net()
    for name, value in SETTINGS.items():
        setattr(net.opt, name, value)
    net.opt.openmp_blocktime = 0  # idle threads sleep
    if threads is not None:
        net.opt.num_threads = threads
    for load, name in ((net.load_param, PARAM_FILE), (net.load_model, BIN_FILE)):
        if load(str(files[name])) != 0:
            raise EngineError(f"{version} did not load {files[name]}")
    return NcnnRunner(net, version, inputs, outputs, options)


class NcnnRunner:
    """Loaded network.

    Attributes:
        precision: ``fp32``, or ``int8`` for a network whose convolutions compute on integers.
    """

    device = "CPU"

    def __init__(
        self,
        net: Any,
        version: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: Mapping[str, Json],
    ) -> None:
        self.precision = str(options["precision"])
        self._net, self._version, self._mat = net, version, _ncnn().Mat
        ports = options["inputs"]
        self._inputs = [(spec, *ports[spec.name]) for spec in inputs if spec.name in ports]
        self._outputs = [(spec, options["outputs"][spec.name]) for spec in outputs]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        with self._net.create_extractor() as extractor:
            for spec, blob, stored in self._inputs:
                array = feeds[spec.name]
                # ncnn computes with any shape, beyond the end of its buffers: the process would end.
                if array.shape != tuple(spec.shape) or array.dtype != spec.dtype:
                    raise EngineError(
                        f"{spec.name} is {array.dtype}{list(array.shape)}; {self._version} loaded a network"
                        f" for {spec.dtype}{list(spec.shape)}"
                    )
                floats = np.ascontiguousarray(array, np.float32).reshape(stored)
                # A copy: ncnn overwrites its inputs, and reads whole vectors beyond the end of the array.
                # A Mat does not keep the array alive that it was made of.
                mat = self._mat(floats).clone()
                if extractor.input(blob, mat) != 0:
                    raise EngineError(f"{self._version} refused the input {spec.name}")
            return {spec.name: self._output(extractor, spec, blob) for spec, blob in self._outputs}

    def _output(self, extractor: Any, spec: TensorSpec, blob: str) -> Array:
        result, mat = extractor.extract(blob)
        if result != 0:
            raise EngineError(f"{self._version} failed to compute {spec.name}: its code is {result}")
        array = np.array(mat.numpy(), spec.dtype, order="C")  # a copy: it is a view
        if array.size != math.prod(spec.shape):
            raise EngineError(f"{self._version} returned {spec.name} as {list(array.shape)}, not {spec}")
        return array.reshape(spec.shape)

    def facts(self) -> dict[str, Json]:
        return {"threads": self._net.opt.num_threads}

    def close(self) -> None:
        self._net.clear()


def _check_layers(version: str, param: Path) -> None:
    """Check what ncnn reports on stderr only, or by ending the process."""
    try:
        lines = param.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise EngineError(f"{version} did not load {param}: {problem}") from None
    if len(lines) < 3 or lines[0] != MAGIC:
        raise EngineError(f"{version} did not load {param}: it does not begin with {MAGIC}")
    index = _ncnn().layer_to_index
    unknown = sorted({line.split()[0] for line in lines[2:] if line.strip() and index(line.split()[0]) < 0})
    if unknown:
        raise EngineError(f"{version} has no layer {', '.join(unknown)}, which {param} needs")


def _ncnn() -> Any:
    check_libraries("ncnn")
    with need_package("ncnn", "running an ncnn network", extra="ncnn", module="ncnn"):
        import ncnn
    return ncnn
