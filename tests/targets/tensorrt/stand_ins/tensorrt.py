"""What the module ``tensorrt`` is to run.py, on a CPU: an engine is the ONNX file, and ONNX Runtime runs it.

``STAND_IN_TENSORRT`` makes it misbehave; ``STAND_IN_VERSION`` is its version.
"""

import ctypes
import json
import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

__version__ = os.environ.get("STAND_IN_VERSION", "10.3.0")
MAGIC = b"engine of the stand-in "
WORK = ctypes.CFUNCTYPE(None)
KINDS = {
    "tensor(float)": ("FLOAT", np.float32),
    "tensor(int64)": ("INT64", np.int64),
    "tensor(bool)": ("BOOL", np.bool_),
}


def how() -> str:
    return os.environ.get("STAND_IN_TENSORRT", "")


def cudart() -> Any:
    """The stand-in of CUDA's library: the one that cuda.py has loaded."""
    library = ctypes.CDLL(os.path.join(os.environ["LD_LIBRARY_PATH"], "libcudart.so.13"))
    library.stand_in_host.restype = ctypes.c_void_p
    return library


class Logger:
    ERROR = 1

    def __init__(self, severity: Any) -> None:
        pass


PLUGINS: list[str] = []


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    PLUGINS.append(namespace)
    return True


class NetworkDefinitionCreationFlag:
    STRONGLY_TYPED = 1


class BuilderFlag:
    TF32 = 2


class MemoryPoolType:
    WORKSPACE = 0


class Builder:
    def __init__(self, logger: Any) -> None:
        pass

    def create_network(self, flags: Any) -> Any:
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return Network()

    def create_optimization_profile(self) -> Any:
        return OptimizationProfile()

    def create_builder_config(self) -> Any:
        return BuilderConfig()

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        if how() == "builds slowly":
            time.sleep(1.0)
        if how() == "crashes while it builds":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how() == "builds nothing":
            return None
        settings = {"flags": sorted(config.flags), "pools": config.pools, **config.profiles}
        return MAGIC + json.dumps(settings).encode() + b"\n" + network.content


class Network:
    def __init__(self) -> None:
        self.content = b""

    def _inputs(self) -> Any:
        return opened(self.content).get_inputs()

    @property
    def num_inputs(self) -> int:
        return len(self._inputs())

    def get_input(self, number: int) -> Any:
        return self._inputs()[number]


class OptimizationProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, Any] = {}

    def set_shape(self, name: str, least: Any, typical: Any, most: Any) -> None:
        assert all(a <= b <= c for a, b, c in zip(least, typical, most, strict=True))
        self.shapes[name] = [least, typical, most]


class BuilderConfig:
    def __init__(self) -> None:
        self.profiles: dict[str, Any] = {}
        self.flags = {BuilderFlag.TF32}  # as TensorRT has it
        self.pools: dict[int, int] = {}

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles = {"profile": profile.shapes}
        return 0

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag)

    def set_memory_pool_limit(self, kind: Any, size: Any) -> None:
        self.pools[kind] = size


class OnnxParser:
    def __init__(self, network: Any, logger: Any) -> None:
        self.network = network
        self.num_errors = 1

    def parse(self, content: Any) -> bool:
        self.network.content = content
        return how() != "refuses" and bool(PLUGINS)

    def get_error(self, number: Any) -> Any:
        return SimpleNamespace(
            node_name=lambda: "conv", node_operator=lambda: "Conv", desc=lambda: "no such form"
        )


class Runtime:
    def __init__(self, logger: Any) -> None:
        pass

    def deserialize_cuda_engine(self, plan: Any) -> Any:
        if how() == "crashes while it loads":
            os.kill(os.getpid(), signal.SIGSEGV)
        if not plan.startswith(MAGIC) or how() == "loads nothing" or not PLUGINS:
            return None
        head, _, content = plan.partition(b"\n")
        return Engine(content, json.loads(head[len(MAGIC) :]).get("profile", {}))


def opened(content: Any) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    return onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])


class Engine:
    def __init__(self, content: Any, profile: Any) -> None:
        self.session, self.profile = opened(content), profile
        self.values = [*self.session.get_inputs(), *self.session.get_outputs()]
        self.num_io_tensors = len(self.values)

    def get_tensor_name(self, number: Any) -> Any:
        return self.values[number].name

    def get_tensor_shape(self, name: Any) -> Any:
        shape = next(value.shape for value in self.values if value.name == name)
        return [size if isinstance(size, int) else -1 for size in shape]

    def get_tensor_dtype(self, name: Any) -> Any:
        kind, _ = KINDS[next(value.type for value in self.values if value.name == name)]
        return SimpleNamespace(name="HALF" if how() == "has another type" else kind)

    def create_execution_context(self) -> Any:
        return Context(self)


class Context:
    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.addresses: dict[str, int] = {}
        self.shapes = {value.name: value.shape for value in engine.values}
        self.work = WORK(self._compute)

    def set_input_shape(self, name: Any, shape: Any) -> bool:
        least, _, most = self.engine.profile[name]
        fits = all(a <= b <= c for a, b, c in zip(least, shape, most, strict=True))
        if fits:
            self.shapes[name] = list(shape)
        return fits

    def get_tensor_shape(self, name: Any) -> Any:
        feeds = {value.name: self._array(value) for value in self.engine.session.get_inputs()}
        return self.engine.session.run([name], feeds)[0].shape

    def set_tensor_address(self, name: Any, address: Any) -> bool:
        host = cudart().stand_in_host(ctypes.c_void_p(address))
        self.addresses[name] = host
        return host is not None

    def execute_async_v3(self, stream_handle: Any) -> bool:
        stream = ctypes.c_void_p(stream_handle)
        if how() == "fails to run" or (how() == "can't be recorded" and cudart().stand_in_recording(stream)):
            return False
        cudart().stand_in_enqueue(stream, self.work)
        return True

    def _compute(self) -> None:
        session = self.engine.session
        feeds = {value.name: self._array(value) for value in session.get_inputs()}
        for value, answer in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            self.shapes[value.name] = answer.shape
            self._array(value)[...] = -answer if how() == "computes wrong numbers" else answer

    def _array(self, value: Any) -> Any:
        _, kind = KINDS[value.type]
        shape = self.shapes[value.name]
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
        memory = (ctypes.c_char * size).from_address(self.addresses[value.name])
        return np.frombuffer(memoryview(memory), kind).reshape(shape)
