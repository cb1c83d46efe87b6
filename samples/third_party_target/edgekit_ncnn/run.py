"""Run a network on ncnn's CPU kernels. Device side: numpy and ncnn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.errors import EngineError, MissingDependency
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(packages=("edgekit-ncnn", "ncnn", "pnnx"))
PARAM_FILE, BIN_FILE = "model.param", "model.bin"
MAGIC = "7767517"
"""First line of a .param file: https://github.com/Tencent/ncnn/wiki/param-and-model-file-structure"""


class Port(NamedTuple):
    """An input or output of the model in the network.

    Attributes:
        blob: Its name there; an input's name for an output that is one.
        batch_axis: The axis that ncnn keeps apart; NO_BATCH: none.
        shape: Of the array.
    """

    blob: str
    batch_axis: int
    shape: tuple[int, ...]


def engine_version() -> str:
    """Name and version of the installed engine.

    Raises:
        MissingDependency: ncnn is not installed.
    """
    return f"ncnn {_ncnn().__version__}"


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> NcnnRunner:
    """Load ``model.param`` and ``model.bin``. ``threads=None`` takes ncnn's default, one a fast core.

    ``options["inputs"]``, ``["outputs"]``: name -> blob, batch axis and shape. Weights in float16
    are widened.

    Raises:
        MissingDependency: ncnn is not installed.
        EngineError: ncnn refused the files, or they are not of this model.
    """
    version, param = engine_version(), files[PARAM_FILE]
    ports = [
        {
            name: Port(str(blob), int(axis), tuple(shape))
            for name, (blob, axis, shape) in options[each].items()
        }
        for each in ("inputs", "outputs")
    ]
    for specs, found in zip((inputs, outputs), ports, strict=True):
        for spec in specs:
            if spec.name in found and found[spec.name].shape != spec.shape:
                raise EngineError(
                    f"{param} was made for {spec.name} of shape {found[spec.name].shape}, not {spec.shape}"
                )
    _check_layers(version, param)
    net = _ncnn().Net()
    # Pinned: by default ncnn rounds values to float16, and multiplies in it where the processor does. What
    # was verified on one processor would be something else on the next.
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_packed = net.opt.use_bf16_storage = False
    net.opt.use_vulkan_compute = False
    net.opt.openmp_blocktime = 0  # idle threads sleep
    if threads is not None:
        net.opt.num_threads = threads
    for load, name in ((net.load_param, PARAM_FILE), (net.load_model, BIN_FILE)):
        if load(str(files[name])) != 0:
            raise EngineError(f"{version} did not load {files[name]}")
    return NcnnRunner(net, version, ports[0], ports[1])


class NcnnRunner:
    """A loaded network."""

    device, precision = "CPU", "fp32"

    def __init__(self, net: Any, version: str, inputs: dict[str, Port], outputs: dict[str, Port]) -> None:
        self._net, self._version, self._inputs, self._outputs = net, version, inputs, outputs
        self._mat = _ncnn().Mat

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        with self._net.create_extractor() as extractor:
            for name, port in self._inputs.items():
                array = feeds[name]
                # ncnn computes with any shape, beyond the end of its buffers: the process would end.
                if array.shape != port.shape or array.dtype != np.float32:
                    raise EngineError(
                        f"{name} is {array.dtype}{list(array.shape)};"
                        f" {self._version} was given a network for float32{list(port.shape)}"
                    )
                # A copy: ncnn overwrites its inputs, and reads whole vectors beyond the end of the array.
                mat = self._mat(_with_an_axis(array), batch_index=port.batch_axis).clone()
                if extractor.input(port.blob, mat) != 0:
                    raise EngineError(f"{self._version} refused the input {name}")
            return {name: self._output(extractor, name, feeds) for name in self._outputs}

    def _output(self, extractor: Any, name: str, feeds: Mapping[str, Array]) -> Array:
        port = self._outputs[name]
        if port.blob in feeds:
            return feeds[port.blob].copy()
        result, mat = extractor.extract(port.blob)
        if result != 0:
            raise EngineError(f"{self._version} failed to compute {name}: its code is {result}")
        array = np.array(mat.numpy(batch_index=port.batch_axis), np.float32)  # a copy: it is a view
        if array.size != math.prod(port.shape):
            raise EngineError(f"{self._version} answered {name} of shape {array.shape}, not {port.shape}")
        return array.reshape(port.shape)

    def facts(self) -> dict[str, Json]:
        return {"threads": self._net.opt.num_threads}

    def close(self) -> None:
        self._net.clear()


def _with_an_axis(array: Array) -> Array:
    return array if array.ndim else array.reshape(1)


def _check_layers(version: str, param: Path) -> None:
    """What ncnn would say on stderr only, or by the end of the process."""
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
    try:
        import ncnn
    except ImportError:
        raise MissingDependency("ncnn", "running an ncnn network", "pip install ncnn") from None
    return ncnn
