"""OpenVINO on the CPU.

Chips: Intel and AMD x86-64 (AVX2 or newer for speed), arm64; Linux, macOS arm64, Windows x86-64.
Versions: OpenVINO 2025.1 or newer; its ONNX reader takes opset 23, the canonical one.

    https://docs.openvino.ai/2026/about-openvino/release-notes-openvino/system-requirements.html
    https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes/cpu-device.html
    https://docs.openvino.ai/2026/documentation/openvino-ir-format.html
    https://docs.openvino.ai/2026/openvino-workflow/running-inference/optimize-inference/precision-control.html
"""
