"""The execution providers of ONNX Runtime by which EdgeKit reaches an accelerator. Device side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from edgekit.errors import install_line
from edgekit.target.accelerators import Interface

OPENVINO = "OpenVINOExecutionProvider"
DOCUMENTATION = "https://onnxruntime.ai/docs/execution-providers/"
LINUX, WINDOWS, MAC = "linux", "win32", "darwin"
APPLE = "the macOS wheels of onnxruntime have it"


class Recording(NamedTuple):
    """A provider's option that records a run, and ONNX Runtime's name of the memory that it takes."""

    option: str
    memory: str


@dataclass(frozen=True)
class Provider(Interface):
    """An execution provider of ONNX Runtime.

    Attributes:
        plugin: Package that brings it. "" means that it is part of a build of onnxruntime.
        libraries: Libraries of the system that the device needs, by system.
        cuda: Whether it needs CUDA's libraries, which are the system's or pip's.
        libraries_package: Package of pip whose import loads ``libraries``, which it keeps on no search path.
        recording: Option and memory for recording a run. None means that it can't record one.
        threads: Option that takes the number of threads of a provider that computes on the CPU.
    """

    provider: str = ""
    plugin: str = ""
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cuda: bool = False
    libraries_package: str = ""
    recording: Recording | None = None
    threads: str = ""


NVIDIA = {LINUX: ("libcuda.so.1",), WINDOWS: ("nvcuda.dll",)}
"""NVIDIA's driver."""
TENSORRT = {LINUX: ("libcuda.so.1", "libnvinfer.so.10"), WINDOWS: ("nvcuda.dll", "nvinfer_10.dll")}

INTERFACES = (
    Provider(
        "cuda", "gpu", "CUDA", (LINUX, WINDOWS), "pip install 'onnxruntime-gpu[cuda,cudnn]'",
        "float32; use_tf32=0, because TF32, the default, keeps 10 bits of a mantissa",
        DOCUMENTATION + "CUDA-ExecutionProvider.html", "an NVIDIA H200",
        options={"use_tf32": "0"}, provider="CUDAExecutionProvider", libraries=NVIDIA, cuda=True,
        recording=Recording("enable_cuda_graph", "cuda"),
    ),
    Provider(
        "tensorrt", "gpu", "TensorRT", (LINUX, WINDOWS),
        "pip install 'onnxruntime-gpu[cuda,cudnn]' 'tensorrt-cu13<11'",
        "float32; TensorRT may round to TF32, for which the provider has no option",
        DOCUMENTATION + "TensorRT-ExecutionProvider.html",
        options={"trt_fp16_enable": "0"}, provider="TensorrtExecutionProvider", libraries=TENSORRT, cuda=True,
        libraries_package="tensorrt_libs",
    ),
    Provider(
        "directml", "gpu", "DirectML", (WINDOWS,), "pip install onnxruntime-directml",
        "float32, its default",
        DOCUMENTATION + "DirectML-ExecutionProvider.html",
        provider="DmlExecutionProvider", libraries={WINDOWS: ("d3d12.dll",)},
    ),
    Provider(
        "openvino-gpu", "gpu", "OpenVINO", (LINUX, WINDOWS), "pip install onnxruntime-openvino",
        "float32; precision=FP32, because a GPU's default is float16",
        DOCUMENTATION + "OpenVINO-ExecutionProvider.html",
        options={"device_type": "GPU", "precision": "FP32"}, provider=OPENVINO,
    ),
    Provider(
        "coreml-gpu", "gpu", "Core ML", (MAC,), APPLE,
        "chosen by Core ML",
        DOCUMENTATION + "CoreML-ExecutionProvider.html",
        options={"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"},
        provider="CoreMLExecutionProvider",
    ),
    Provider(
        "webgpu", "gpu", "WebGPU", (LINUX, WINDOWS, MAC), install_line("webgpu"),
        "float32, its default",
        "https://onnxruntime.ai/docs/execution-providers/WebGPU-ExecutionProvider.html",
        "an NVIDIA H200, a software GPU", provider="WebGpuExecutionProvider", plugin="onnxruntime_ep_webgpu",
        recording=Recording("enableGraphCapture", "webgpu"),
    ),
    Provider(
        "coreml-npu", "npu", "Core ML", (MAC,), APPLE,
        "float16: the Neural Engine has no float32",
        DOCUMENTATION + "CoreML-ExecutionProvider.html",
        options={"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndNeuralEngine"},
        provider="CoreMLExecutionProvider",
    ),
    Provider(
        "openvino-npu", "npu", "OpenVINO", (LINUX, WINDOWS), "pip install onnxruntime-openvino",
        "float16: the NPU has no float32",
        DOCUMENTATION + "OpenVINO-ExecutionProvider.html",
        options={"device_type": "NPU"}, provider=OPENVINO,
    ),
    Provider(
        "openvino-cpu", "cpu", "OpenVINO", (LINUX, WINDOWS), "pip install onnxruntime-openvino",
        "float32; precision=FP32",
        DOCUMENTATION + "OpenVINO-ExecutionProvider.html",
        "an x86-64 processor", options={"device_type": "CPU", "precision": "FP32"}, provider=OPENVINO,
        threads="num_of_threads",
    ),
    Provider(
        "xnnpack", "cpu", "XNNPACK", (LINUX, WINDOWS, MAC),
        "a build of onnxruntime with --use_xnnpack; no wheel has it",
        "float32, its default",
        DOCUMENTATION + "Xnnpack-ExecutionProvider.html",
        provider="XnnpackExecutionProvider", threads="intra_op_num_threads",
    ),
)  # fmt: skip
"""In the order of preference within a kind. TensorRT builds an engine at each load, so CUDA is first."""
