"""Qualcomm's Hexagon NPU (HTP) by ONNX Runtime's QNN execution provider.

Chips: Snapdragon with a Hexagon NPU of v68 or newer. The emulator computes float16 for all of them, v68 too:
whether a device has it, it does not tell.
Versions: onnxruntime-qnn 2.7, a plug-in for ONNX Runtime 1.24 or newer; CPython 3.11 or newer.

The wheel for x86-64 compiles for every version of the NPU and emulates them: integers as the NPU rounds them,
float16 with sums that may be wider than the NPU's. The emulator's time says nothing of a device. None of
this has been run on a Hexagon NPU.

Qualcomm's libraries in the wheel are under its AI Stack licence: they may be used, copied, and distributed
in object code within an application of one's own. EdgeKit contains nothing of them.

    https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html        options, operators
    https://docs.qualcomm.com/bundle/publicresource/topics/80-63442-50/HtpOpDefSupplement.html    types
    https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html            the context binary
    https://docs.qualcomm.com/doc/80-N3040-23/topic/libnative-ug-architecture-versions.html    the emulator
"""
