"""Write the canonical graph as model.onnx."""

from __future__ import annotations

from edgekit.compiler.model.onnx_file import save_model
from edgekit.diagnostics import Finding, as_lines
from edgekit.errors import UnsupportedError, UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit_numpyref.quant_rules import rules

PRECISIONS = ("fp32",)
TARGET = TargetInfo(PRECISIONS, quantization_rules=rules)


def check_model(model, profile):
    """Return what will not run (errors), and what leaves the fast path (warnings). Nothing is written."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        ReferenceEvaluator(onnx.load_from_string(save_model(model)))
    except NotImplementedError as problem:
        return [Finding("EK1001", "error", profile.name, "", "", str(problem))]
    return []


def compile_model(model, profile, precision):
    """Files, options for the runner, facts for the report."""
    if precision not in PRECISIONS:
        raise UsageError(f"numpyref compiles {', '.join(PRECISIONS)}, not {precision}")
    found = check_model(model, profile)
    if found:
        raise UnsupportedError("\n".join([f"{profile.name} can't run the model", *as_lines(found)]), found)
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    options = {"precision": "int8" if quantized else "fp32"}
    return Artifact({"model.onnx": save_model(model)}, options, {"nodes": len(model.graph)})
