"""Make OpenVINO's IR (``model.xml`` and ``model.bin``) through OpenVINO's own ONNX reader."""

from __future__ import annotations

import hashlib
import re
import tempfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import onnx_ir as ir

from edgekit.compiler.lowering.fp16_weights import with_fp16_weights
from edgekit.compiler.lowering.shape_range import with_range
from edgekit.compiler.lowering.shared_transposes import with_shared_transposes
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.rewriting import PART_OF
from edgekit.compiler.passes.expand_functions import with_expansions
from edgekit.diagnostics import Finding, cannot_run
from edgekit.errors import UsageError
from edgekit.target import Artifact, TargetInfo
from edgekit.target.precisions import precision_of
from edgekit.target.profile import Profile
from edgekit.tensor_spec import Content, Json
from edgekit_openvino.fake_quantize import with_fake_quantize, with_fake_quantized_concats
from edgekit_openvino.quant_rules import rules
from edgekit_openvino.reader_workarounds import computed_wrongly, shapes_lost, with_reader_workarounds
from edgekit_openvino.run import (
    BF16,
    BIN_FILE,
    PACKED_FILE,
    RANGE_FILE,
    ROUNDED_INPUTS,
    XML_FILE,
    openvino,
    plain,
)

ALIGNMENT_BYTES = 64
"""Alignment of constants that are added, in bytes, so that a mapped file is read in place."""
_PLACE = re.compile(rb'( offset=")(\d+)("[^>]*? size=")(\d+)(")')
"""Offset and size of a Const's ``data``: https://docs.openvino.ai/2024/documentation/openvino-ir-format.html"""


def share_weights(whole: Artifact, further: Sequence[Artifact]) -> tuple[Artifact, list[Artifact]]:
    """Let artifacts of further shapes use the largest's ``model.bin``; add missing data, mostly shapes."""
    weights, described = bytearray(whole.files[BIN_FILE]), []
    places: dict[bytes, int] = {}
    for match in _PLACE.finditer(whole.files[XML_FILE]):
        places.setdefault(_digest(whole.files[BIN_FILE], match), int(match[2]))
    for artifact in further:
        binary = artifact.files[BIN_FILE]

        def relocated(match: re.Match[bytes], data: Content = binary) -> bytes:
            digest = _digest(data, match)
            if digest not in places:
                weights.extend(bytes(-len(weights) % ALIGNMENT_BYTES))
                places[digest] = len(weights)
                weights.extend(data[int(match[2]) : int(match[2]) + int(match[4])])
            return match[1] + str(places[digest]).encode() + match[3] + match[4] + match[5]

        described.append(_PLACE.sub(relocated, artifact.files[XML_FILE]))
    together = bytes(weights)
    shared = [
        artifact._replace(files={PACKED_FILE: zlib.compress(xml, 9), BIN_FILE: together})
        for artifact, xml in zip(further, described, strict=True)
    ]
    return whole._replace(files={**whole.files, BIN_FILE: together}), shared


def _digest(content: Content, match: re.Match[bytes]) -> bytes:
    start = int(match[2])
    return hashlib.sha256(memoryview(content)[start : start + int(match[4])]).digest()


PRECISIONS = ("fp32", "fp16", "bf16", "int8-weights", "int8-dynamic")
ROUNDED_TOGETHER = 128
"""Inputs of a product that int8-dynamic rounds by one scale. The encoder of Whisper tiny.en, one thread with
VNNI: 195 ms with floats; 141 ms with 32 and 41 dB, 128 ms with 128 and 37 dB, 133 ms with 384 and 35 dB."""
INSTRUCTION_SETS = {"bf16": BF16}
"""What computes in bf16: https://docs.openvino.ai/2024/openvino-workflow/running-inference/
inference-devices-and-modes/cpu-device.html (inference precision). hasHardwareSupport in
src/plugins/intel_cpu/src/utils/precision_support.cpp takes every AVX-512 processor, and emulates it on the
others. It takes AVX_NE_CONVERT too, which Linux does not list."""


def check_model(model: ir.Model, profile: Profile) -> list[Finding]:
    """Return a finding for each node that OpenVINO's ONNX reader cannot convert, by running the reader.

    Raises:
        MissingDependency: openvino is not installed.
    """
    return _read_written(model, profile)[1]


def compile_range(
    models: Sequence[ir.Model], sizes: Sequence[int], profile: Profile, precision: str
) -> Artifact:
    """Compile the model at some sizes of a range: the IR of the largest, which readers without ranges run,
    and one for all sizes with the same weights, whose open dimension has the largest size as its bound.

    Raises:
        EngineError: it has another form at another size.
        Others as :func:`compile_model`.
    """
    artifact = compile_model(models[-1], profile, precision)
    written = [_read_written(model, profile)[0][0] for model in models]
    if precision == "fp16":
        written = [with_fp16_weights(model) for model in written]
    read = _read(save_model(with_range(written, sizes)))
    bound = openvino().Dimension(1, sizes[-1])
    shapes = [(port, port.get_partial_shape()) for port in read.inputs]
    read.reshape(
        {port: openvino().PartialShape([bound if d.is_dynamic else d for d in dims]) for port, dims in shapes}
    )
    whole, (ranged,) = share_weights(artifact, [artifact._replace(files=_files(read))])
    return whole._replace(files={**whole.files, RANGE_FILE: ranged.files[PACKED_FILE]})


def compile_model(model: ir.Model, profile: Profile, precision: str) -> Artifact:
    """Compile the canonical model to IR. Weights in fp16 are widened at load, and int8 ones as they are
    multiplied; with int8-dynamic and VNNI, they are multiplied by inputs that are rounded to int8. bf16 is
    the IR of fp32, computed in bf16.

    Raises:
        UsageError: an unknown precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"openvino supports {', '.join(PRECISIONS)}, not {precision}")
    (written, read), findings = _read_written(model, profile)
    if findings:
        raise cannot_run(profile.name, findings)
    if precision == "fp16":
        read = _read(save_model(with_fp16_weights(written)))
    files = _files(read)
    names = {name for port in read.inputs for name in port.get_names()}
    unused = [value.name for value in model.graph.inputs if value.name not in names]
    row = precision_of(precision)
    options: dict[str, Json] = {ROUNDED_INPUTS: ROUNDED_TOGETHER} if row.rounds_inputs else {}
    if precision in INSTRUCTION_SETS:
        options = {"arithmetic": precision, "needs_isa": list(INSTRUCTION_SETS[precision])}
    return Artifact(files, options, {"layers": len(read.get_ops()), "unused_inputs": unused})


def _files(read: Any) -> dict[str, Content]:
    _name_nodes(read, "")
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        xml = Path(folder) / XML_FILE
        # OpenVINO's own compression also rounds weights where that costs accuracy
        # (compiler/lowering/fp16_weights.py).
        openvino().save_model(read, str(xml), compress_to_fp16=False)
        return {name: (Path(folder) / name).read_bytes() for name in (XML_FILE, BIN_FILE)}


def _read_written(model: ir.Model, profile: Profile) -> tuple[tuple[ir.Model, Any], list[Finding]]:
    """Return the model as written for OpenVINO, the reader's result for it, and a finding for each node
    without a conversion.

    A node that it refuses or computes wrongly is decomposed if possible, and read again.
    """

    def attempt(model: ir.Model) -> tuple[tuple[ir.Model, Any], list[Finding]]:
        written = with_fake_quantize(with_reader_workarounds(model))
        written = with_shared_transposes(with_fake_quantized_concats(written))
        wrong = computed_wrongly(model, profile.name)
        if wrong:
            return (written, None), wrong
        content = save_model(written)
        try:
            read = _read(content)
        except RuntimeError as problem:
            return (written, None), _refused_nodes(content, profile.name, plain(problem))
        return (written, read), shapes_lost(model, read, profile.name)

    return with_expansions(model, attempt)


def _read(content: bytes) -> Any:
    return openvino().Core().read_model(model=content)


def _name_nodes(model: Any, prefix: str) -> None:
    """Name the nodes that the reader inserted, so that the same model gives the same bytes.

    OpenVINO calls them by a counter of the process (``Constant_43114``). No name is given twice: OpenVINO
    2024.0 refuses such a file.
    """
    nodes = list(enumerate(model.get_ordered_ops()))
    inserted = {number for number, node in nodes if node.get_friendly_name() == node.get_name()}
    used: set[str] = set()
    for number, node in sorted(nodes, key=lambda entry: entry[0] in inserted):
        name = present = node.get_friendly_name()
        if number in inserted:
            name = f"{prefix}{node.get_type_name()}_{number}"
        while name in used:
            name += "_"
        used.add(name)
        if name != present:
            node.set_friendly_name(name)
        for body in _bodies(node):
            _name_nodes(body, f"{prefix}{number}.")


def _bodies(node: Any) -> list[Any]:
    if node.get_type_name() == "If":
        return [node.get_function(0), node.get_function(1)]
    if node.get_type_name() in ("Loop", "TensorIterator"):
        return [node.get_function()]
    return []


def _refused_nodes(content: bytes, target: str, message: str) -> list[Finding]:
    """Return a finding for each node that OpenVINO leaves unconverted in a partial conversion.

    ``message``: OpenVINO's error for the whole model; the finding if no node is the cause.
    """
    import onnx

    model = onnx.ModelProto.FromString(content)
    reader = openvino().frontend.FrontEndManager().load_by_framework("onnx")
    try:
        partial = reader.convert_partially(reader.load(BytesIO(content)))
    except RuntimeError:
        return [Finding("EK1002", "error", target, "", "", message)]
    left = {
        name
        for node in partial.get_ops()
        if node.get_type_name() in ("ONNXFrameworkNode", "NotSupportedONNXNode")
        for name in (node.get_friendly_name(), *(n for o in node.outputs() for n in o.get_names()))
    }
    findings = []
    for node in model.graph.node:
        if left.isdisjoint(node.output) and node.name not in left:
            continue
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        name = next((entry.value for entry in node.metadata_props if entry.key == PART_OF), node.name)
        findings.append(Finding("EK1001", "error", target, name, op, "OpenVINO does not support it"))
    return findings or [Finding("EK1002", "error", target, "", "", message)]


TARGET = TargetInfo(
    PRECISIONS,
    io_layouts=("nchw", "uint8"),
    quantization_rules=rules,
    instruction_sets=INSTRUCTION_SETS,
    decoder="edgekit_openvino.compile_decoder",
    share_weights=share_weights,
    compile_range=compile_range,
)
