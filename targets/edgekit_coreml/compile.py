"""Canonical model -> an .mlpackage: lower, apply coremltools' own checks, serialize.

Checking a model is lowering it, so that what is said to be supported and what is lowered cannot differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import onnx_ir as ir

from edgekit._version import __version__
from edgekit.errors import UnsupportedError, UsageError
from edgekit.findings import Finding, as_lines, errors
from edgekit.profile import Profile
from edgekit.target import Artifact, Json
from edgekit_coreml import (  # noqa: F401  (importing the ops fills the table)
    ops_activation,
    ops_conv,
    ops_index,
    ops_logic,
    ops_math,
    ops_matmul,
    ops_norm,
    ops_pool,
    ops_quant,
    ops_recurrent,
    ops_reduce,
    ops_resize,
    ops_shape,
)
from edgekit_coreml.package import package_files
from edgekit_coreml.program import Lowered, lower_model

PRECISIONS = ("fp32", "fp16")
OLDEST_IOS, NEWEST_IOS = 16, 18
QUANTIZED_IOS = 17
"""The first with quantize and dequantize."""
FORMAT_OF_IOS: Mapping[int, int] = {16: 7, 17: 8, 18: 9}
"""iOS version -> specification version of Core ML's format."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """What has no form in Core ML, and what keeps a node off the Neural Engine.

    Raises:
        MissingDependency: coremltools is not installed.
    """
    ios = _ios(model, profile)
    return [_for_profile(finding, profile) for finding in lower_model(model, "fp16", ios).findings]


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model.

    Args:
        model: Opset 23, static shapes on every value, constants as initializers.
        profile: Says which iOS to build for.
        precision: ``fp32``, or ``fp16``: weights and arithmetic in float16.

    Raises:
        UsageError: an unknown precision.
        UnsupportedError: some nodes have no form here; all are named.
        MissingDependency: coremltools is not installed.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"coreml compiles {', '.join(PRECISIONS)}, not {precision}")
    ios = _ios(model, profile)
    made = lower_model(model, precision, ios)
    wrong = [_for_profile(finding, profile) for finding in errors(made.findings)]
    if wrong:
        noun = "node has" if len(wrong) == 1 else "nodes have"
        lines = "\n".join(as_lines(wrong))
        raise UnsupportedError(f"{profile.name}: {len(wrong)} {noun} no form in Core ML\n{lines}", wrong)
    metadata = {"edgekit": __version__, "edgekit.names": json.dumps(made.names, sort_keys=True)}
    files = package_files(made.program, FORMAT_OF_IOS[ios], metadata)
    options = {"precision": precision, "inputs": made.inputs, "outputs": made.outputs}
    return Artifact(files, options, _facts(made, ios))


def _ios(model: ir.Model, profile: Profile) -> int:
    """The iOS version to build for: the profile's, or the first that has what the model needs."""
    fact = profile.facts.get("os")
    asked = int(str(fact.value).split()[-1].split(".")[0]) if fact else OLDEST_IOS
    ios = min(max(asked, OLDEST_IOS), NEWEST_IOS)
    quantized = any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph)
    return max(ios, QUANTIZED_IOS) if quantized else ios


def _for_profile(finding: Finding, profile: Profile) -> Finding:
    return Finding(**{**finding.as_json(), "target": profile.name})  # type: ignore[arg-type]


def _facts(made: Lowered, ios: int) -> dict[str, Json]:
    """What the report says about the compilation."""
    kinds = Counter(op.op_type for op in made.program.functions["main"].operations)
    del kinds["const"]
    return {"ops": dict(sorted(kinds.items())), "deployment_target": f"iOS {ios}"}
