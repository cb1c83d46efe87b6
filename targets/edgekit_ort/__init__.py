"""ONNX Runtime on the CPU: the plainest target and the universal fallback. Read it first.

Chips: x86-64 and arm64 on Linux, macOS and Windows; no armv7l wheel.
Versions: ONNX Runtime 1.23 or newer, the first that reads opset 23, the canonical one.
CPython 3.10 ends with 1.23.2; 3.11 to 3.14 have newer ones.

    https://onnxruntime.ai/docs/reference/compatibility.html       opsets by version
    https://onnxruntime.ai/docs/performance/tune-performance/      threads, spinning, graph optimizations
    https://github.com/microsoft/onnxruntime/blob/main/docs/OperatorKernels.md    kernels by op and type
"""
