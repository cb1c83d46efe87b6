"""TensorRT on NVIDIA Jetson: a strongly typed ONNX file, built into an engine on the device that runs it.

Chips: Jetson Orin (SM 8.7) and Thor (SM 11.0), with the TensorRT of the system: JetPack 6.1 or newer.
Versions: TensorRT 10.3 to 11.x by one code path. TensorRT 8 (JetPack 5 and 6.0) is not supported; there the
other variants of a bundle run.

An engine is tied to the TensorRT version, the GPU and the driver that built it, so none is ever in a bundle.
None of the device side has been run on a Jetson: docs/tensorrt.md says what was checked instead.

    https://docs.nvidia.com/deeplearning/tensorrt/latest/                          the library
    https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html
    https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md              operators by type and limit
    https://docs.nvidia.com/deeplearning/tensorrt-rtx/latest/inference-library/cpu-engines.html
"""
