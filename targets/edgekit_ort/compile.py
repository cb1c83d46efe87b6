"""Make ``model.onnx``: the canonical graph, serialized, with its weights in fp32 or fp16.

Not optimized offline by ONNX Runtime: that would tie the file to contrib operators of the version that built
it and, for int8, to a kind of chip. It was measured: load time, minima on one x86-64 core; latency is
the same, and outputs are equal bit for bit.

                            as it is    ENABLE_EXTENDED offline
    YOLOX-nano              20.3 ms     15.1 ms
    EfficientNet-Lite0      16.3 ms     15.6 ms
    PP-OCRv4 recognition    27.9 ms     20.3 ms
    ResNet-8 with Q/DQ      13.0 ms      7.0 ms

The 1 to 8 ms are saved once per process, and importing the engine takes 100 ms; a file that every version
and chip loads matters more. fp16 weights load in 1 to 4 ms more, are folded, and run at the speed of fp32.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from edgekit.compiler.lowering.byte_pairs import with_bytes_read
from edgekit.compiler.lowering.fp16_weights import with_fp16_weights
from edgekit.compiler.lowering.node_probes import probes
from edgekit.compiler.lowering.shape_range import with_range
from edgekit.compiler.lowering.shared_transposes import with_shared_transposes
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.rewriting import array_of, producer_of
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.diagnostics import Finding, cannot_run
from edgekit.errors import EngineError, UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Json
from edgekit_ort.fast_forms import (
    with_older_opset,
    with_padded_channels,
    with_prelu_written_out,
    with_quick_gelu,
)
from edgekit_ort.linear_layers import has_large_pairs, with_integer_gemms, with_integer_products
from edgekit_ort.quant_rules import rules
from edgekit_ort.run import MODEL_FILE, open_session
from edgekit_ort.shared_weights import share_weights

PRECISIONS = ("fp32", "fp16", "bf16", "int8-weights", "int8-dynamic")
INSTRUCTION_SETS = {"bf16": ("bf16",)}
"""ARM64's bf16 (BFMMLA): the session option of ``run.FAST_MATH``."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Find nodes without a kernel in the installed ONNX Runtime, by loading the written graph.

    Raises:
        MissingDependency: onnxruntime is not installed.
    """
    return _with_kernels(model, profile)[1]


def _with_kernels(model: ir.Model, profile: Profile) -> tuple[tuple[ir.Model, bytes], list[Finding]]:
    """Return the model with nodes that lack a kernel written out, its file, and the nodes that remain."""

    def attempt(model: ir.Model) -> tuple[tuple[ir.Model, bytes], list[Finding]]:
        content = save_model(_written(model))
        return (model, content), _check_written(content, profile)

    return with_expansions(model, attempt)


def _check_written(content: bytes, profile: Profile) -> list[Finding]:
    try:
        open_session(content, threads=1, optimize=False)
    except EngineError as problem:
        return failing_nodes(content, profile.name, str(problem))
    return []


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model to ``model.onnx``.

    Raises:
        UsageError: an unknown precision.
        ModelError: the model is over 2 GB.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"ort supports {', '.join(PRECISIONS)}, not {precision}")
    (model, content), findings = _with_kernels(model, profile)
    if findings:
        raise cannot_run(profile.name, findings)
    stored = with_fp16_weights(model) if precision == "fp16" else model
    if precision == "int8-dynamic":
        stored = with_integer_products(model)
    quantized = any(node.op_type in ("QuantizeLinear", "MatMulInteger") for node in stored.graph)
    options: dict[str, Json] = {"precision": "int8" if quantized else "fp32"}
    if precision in INSTRUCTION_SETS:
        options |= {"arithmetic": precision, "needs_isa": list(INSTRUCTION_SETS[precision])}
    if _only_weights_are_stored(stored):
        options["widened_weights"] = True
    if has_large_pairs(stored):
        options["wide_sums"] = True
    if _has_float_island(model):
        options["float_islands"] = True
    if stored is not model:
        content = save_model(_written(stored))
    return Artifact({MODEL_FILE: content}, options, {"nodes": len(model.graph)})


def compile_range(
    models: Sequence[ir.Model], sizes: Sequence[int], profile: Profile, precision: str
) -> Artifact:
    """Compile the model at some sizes of a range to one ``model.onnx`` with an open dimension.

    Raises:
        EngineError: it has another form at another size.
        Others as :func:`compile_model`.
    """
    artifacts = [compile_model(model, profile, precision) for model in models]
    graphs = [ir.from_proto(onnx.ModelProto.FromString(bytes(a.files[MODEL_FILE]))) for a in artifacts]
    return artifacts[-1]._replace(files={MODEL_FILE: save_model(with_range(graphs, sizes))})


def _only_weights_are_stored(model: ir.Model) -> bool:
    """Check whether all dequantized integers are constants, and there are some (``run.open_session``)."""
    pairs = [node for node in model.graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    constant = (node.op_type == "DequantizeLinear" and array_of(node.inputs[0]) is not None for node in pairs)
    return bool(pairs) and all(constant)


def _has_float_island(model: ir.Model) -> bool:
    """Check for a node with a dequantized input and float weights (see ``run.QUANTIZING_OPTIMIZER``)."""
    return any(
        node.op_type in ("Conv", "ConvTranspose", "Gemm")
        and producer_of(node.inputs[0], "DequantizeLinear") is not None
        and array_of(node.inputs[1]) is not None
        for node in model.graph
    )


def _written(model: ir.Model) -> ir.Model:
    fast = with_prelu_written_out(with_quick_gelu(with_integer_gemms(with_bytes_read(model))))
    fast = with_padded_channels(fast)
    return with_older_opset(with_shared_transposes(fast))


TARGET = TargetInfo(
    PRECISIONS,
    io_layouts=("nchw", "uint8"),
    quantization_rules=rules,
    instruction_sets=INSTRUCTION_SETS,
    decoder="edgekit_ort.compile_decoder",
    shared_range=True,
    share_weights=share_weights,
    compile_range=compile_range,
)


NO_KERNEL = ("NOT_IMPLEMENTED", "is not a registered function/op", "No Op registered")


def failing_nodes(content: bytes, target: str, message: str) -> list[Finding]:
    """Return a finding for each node that ONNX Runtime does not load alone; its own error names only the
    first one.

    Args:
        message: ONNX Runtime's error for the whole model; the finding when each node alone is accepted.
    """
    model = onnx.ModelProto.FromString(content)
    findings = []
    refusals: dict[bytes, str | None] = {}
    for node, probe in probes(model):
        key = probe.SerializeToString(deterministic=True)
        if key not in refusals:
            refusals[key] = _refusal(key)
        refusal = refusals[key]
        if refusal is None:
            continue
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        missing = any(words in refusal for words in NO_KERNEL)
        types = _types(probe)
        findings.append(
            Finding(
                "EK1001" if missing else "EK1002",
                "error",
                target,
                node.name,
                op,
                f"no CPU kernel for {types}" if missing else _plain(refusal),
                "export the model in float32" if missing and "double" in types else "",
            )
        )
    return findings or [Finding("EK1002", "error", target, "", "", _plain(message))]


def _refusal(model: bytes) -> str | None:
    try:
        open_session(model, threads=1, optimize=False)
    except EngineError as problem:
        return str(problem)
    return None


def _types(probe: onnx.ModelProto) -> str:
    from onnx import TensorProto

    kinds = {value.name: value.type.tensor_type.elem_type for value in probe.graph.input}
    kinds.update({tensor.name: tensor.data_type for tensor in probe.graph.initializer})
    names = [TensorProto.DataType.Name(kinds[n]).lower() for n in probe.graph.node[0].input if n in kinds]
    return ", ".join(names) or "no inputs"


def _plain(message: str) -> str:
    """Return ONNX Runtime's message on one line, without ``[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : ``."""
    line = " ".join(message.split())
    return line.rpartition("[ONNXRuntimeError] : ")[2].split(" : ", 2)[-1]
