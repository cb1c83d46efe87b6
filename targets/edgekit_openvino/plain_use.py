"""Settings for use of the IR without EdgeKit: those that it was verified with.

OpenVINO's CPU plugin rounds floats to bfloat16 or float16 on processors that have them, unless
``INFERENCE_PRECISION_HINT`` says f32. It does not read that hint from a model: ``Config::applyRtInfo``
(src/plugins/intel_cpu/src/config.cpp) takes from ``runtime_options`` the precisions of the KV cache and the
group size of dynamic quantization, and no other (tried with 2026.4.1: ignored in the file and in memory). The
attribute ``precise`` of single layers it obeys, but OpenVINO drops it from layers that it replaces (MatMul,
MaxPool, Resize): YOLOX-nano had 50 dB with it, 25 without. A README states it.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.tensor_spec import Json
from edgekit_openvino.run import arithmetic


def plain_use(options: Mapping[str, Json], files: Mapping[str, str]) -> str:
    """Return the text of a README next to the exported files: name in the artifact -> exported name."""
    settings = arithmetic(options)
    config = ", ".join(f'"{name}": "{value}"' for name, value in settings.items())
    command = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"""\
These files were verified with the settings
    {command}
Without them OpenVINO chooses the arithmetic by the processor: bfloat16 or float16 where it has
them, and its outputs are others than those that were verified. On an AMD EPYC with bfloat16
YOLOX-nano's had an SNR of 25 dB in place of 105, EfficientNet-Lite0's 30 in place of 118
(OpenVINO 2026.4.1). That may be good enough and is faster there, but EdgeKit did not check it.
OpenVINO reads no such setting from a model file, so it is given to compile_model:

    import openvino
    compiled = openvino.Core().compile_model("{files["model.xml"]}", "CPU", {{{config}}})
"""
