"""Opens and saves a model: an ``.onnx`` file in, an ``onnx_ir.Model`` with static shapes out.

The opened model has the nodes and names of the source. Only artifacts of old exporters are repaired
(weights listed as inputs, stale shapes, unused weights, unnamed nodes), and functions are expanded. It has
the opset of the source too, or from opset 27 on an older one that defines its ops alike, for which engines
have kernels. The passes (edgekit/compiler/passes) bring it to the canonical form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import onnx
import onnx.defs
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from edgekit.compiler.model.foreign_formats import SUFFIXES, describe_format
from edgekit.compiler.model.input_shapes import (
    check_sizes,
    fix_open,
    fix_shapes,
    open_dimensions,
    recorded_picture_size,
)
from edgekit.compiler.model.ml_shapes import ML_DOMAIN, drop_dictionaries, output_advice, restate_normalizers
from edgekit.compiler.model.model_bytes import digest_of, file_stamp, read_bytes
from edgekit.compiler.model.newer_opsets import NEWEST_OPSET, newest_known, read_as_known, restate
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.origins import SCOPES, recorded_scopes
from edgekit.compiler.model.private_ops import is_private, way_out
from edgekit.compiler.model.rewriting import int_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.model.shape_trials import Attempt, try_shapes
from edgekit.compiler.model.suggested_shapes import DynamicShapesError, suggest_shapes
from edgekit.compiler.model.untrusted import MAX_BYTES, check_model, external_files
from edgekit.compiler.model.work_budget import one_budget
from edgekit.errors import ModelError, printable
from edgekit.tensor_spec import TensorSpec

OPSETS = range(7, NEWEST_OPSET + 1)
"""Known opsets. 7 introduced numpy's broadcasting, which all later versions of the ops assume. Models of
newer opsets are read too if they contain only ops of these (edgekit/compiler/model/newer_opsets.py)."""

SOURCE_DIGEST = "edgekit.source_sha256"
"""Key in the ``meta`` of an opened model; not saved to files."""

ASSUMED = "edgekit.assumed_shapes"
"""The same, for what was assumed of the inputs' shapes."""


def open_model(path: Path | str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> ir.Model:
    """Open an ONNX file, check it and fix all its shapes.

    Args:
        path: The file. External data is read only from plain files in its folder.
        shapes: Input name -> shape, for inputs with dynamic dimensions. It may also replace a static shape;
            all shapes are inferred again. The name "" is the only input's, or the only one's of four
            dimensions. Dimensions of the same name get the same size; a batch that is left open is 1
            (:func:`assumed_shapes`).

    Raises:
        ModelError: not a model that can be opened, or dimensions are left open.
        UsageError: ``shapes`` names no input of the model, or has another number of dimensions.
    """
    path = Path(path)
    return open_bytes(read_bytes(path), path.name, shapes, path.parent)


def open_bytes(
    data: bytes,
    name: str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    folder: Path | None = None,
) -> ir.Model:
    """Open a model like :func:`open_model`, from a file's content.

    Args:
        folder: Folder of its external data. None means that external data is not allowed.
    """
    proto = _parsed(name, data)
    try:
        with one_budget():
            external = external_files(proto)
            if folder is None and external:
                raise ModelError(
                    f"its weights are in another file, {external[0]}: pass the path of the model, with "
                    "that file beside it"
                )
            folder = folder or Path()
            stamps = {file: file_stamp(folder, file) for file in external}
            picture_size = recorded_picture_size({entry.key: entry.value for entry in proto.metadata_props})
            scopes = recorded_scopes(proto)
            check_model(proto, folder)
            digest = digest_of(data, folder, stamps)
            read_as = _check_opset(proto)
            drop_dictionaries(proto)
            model = _deserialize(proto)
            _repair(model)
            assumed = _fix_inputs(model, shapes or {}, proto, picture_size)
            _infer(model, assumed)
            restate(model)
    except DynamicShapesError as problem:
        raise DynamicShapesError(problem.suggested, name) from None
    except ModelError as problem:
        raise ModelError(f"{name}: {problem}") from problem.__cause__
    assumed = "\n".join(filter(None, [assumed, read_as]))
    model.meta[SOURCE_DIGEST] = digest
    model.meta[ASSUMED] = assumed
    model.meta[SCOPES] = scopes
    return model


def opened_digest(model: ir.Model) -> str:
    """Return the sha256 (hexadecimal) of what :func:`open_model` read: the file, then its external data files
    in order of their names."""
    return str(model.meta[SOURCE_DIGEST])


def assumed_shapes(model: ir.Model) -> str:
    """Return the shapes that :func:`open_model` assumed for inputs, as text; "" if the file and the user
    specify all."""
    return str(model.meta.get(ASSUMED, ""))


def save_model(model: ir.Model) -> bytes:
    """Serialize the model as one ONNX file with embedded weights. The same model gives the same bytes."""
    total = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    if total > MAX_BYTES:
        raise ModelError(
            f"the model has {total / 2**30:.1f} GB of weights; an ONNX file can have at most 2 GB"
        )
    data: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return data


def signature(model: ir.Model) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    return tuple(map(_spec, model.graph.inputs)), tuple(map(_spec, model.graph.outputs))


def _parsed(name: str, data: bytes) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{name}: is empty")
    suffix = Path(name).suffix.lower()
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError:
        raise ModelError(f"{name}: is not an ONNX model: {describe_format(data, suffix)}") from None
    if suffix in SUFFIXES and not proto.HasField("graph"):  # other protobuf is read as unknown fields
        raise ModelError(f"{name}: is not an ONNX model: it is {SUFFIXES[suffix]}")
    return proto


def _check_opset(proto: onnx.ModelProto) -> str:
    """Check the opset of the default domain. Return what is assumed of a newer one, or ""."""
    versions = {entry.domain or "": entry.version for entry in proto.opset_import}
    version = versions.get("", versions.get("ai.onnx"))
    if version is None and versions.keys() <= {ML_DOMAIN}:
        return ""
    if version is None:
        raise ModelError("it does not import an ONNX opset, only " + ", ".join(sorted(versions)))
    if version > newest_known():
        return read_as_known(proto, version)
    if version < OPSETS[0] and not _is_as_later(proto, version):
        raise ModelError(
            f"it uses opset {version}, older than the supported opsets ({OPSETS[0]} to {OPSETS[-1]}); export "
            "it again with one of those"
        )
    return ""


def _is_as_later(proto: onnx.ModelProto, version: int) -> bool:
    """Return whether all of the model's ops are the same in its opset as in the oldest supported one."""
    if version > OPSETS[0]:
        return False
    try:
        forms = [
            [
                onnx.defs.get_schema(node.op_type, opset, node.domain).since_version
                for opset in (version, OPSETS[0])
            ]
            for node in proto.graph.node
        ]
    except onnx.defs.SchemaError:
        return False
    return all(old == new for old, new in forms)


def _deserialize(proto: onnx.ModelProto) -> ir.Model:
    try:
        model = ir.from_proto(proto)
        if model.functions:
            from onnx_ir.passes.common import InlinePass

            InlinePass()(model)
        model.graph.sort()
    except Exception as problem:  # onnx-ir raises anything for a malformed model
        story = str(problem.__cause__ or problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ModelError(f"it is malformed: {story}") from problem
    return model


def _repair(model: ir.Model) -> None:
    graph = model.graph
    weights = set(graph.initializers)
    graph.inputs[:] = [value for value in graph.inputs if value.name not in weights]
    for name, value in list(graph.initializers.items()):
        if not value.uses() and not value.is_graph_output():
            del graph.initializers[name]
    for inner in model.graphs():
        own_inputs = set(inner.inputs) | (set(graph.outputs) if inner is graph else set())
        for node in inner:
            for value in node.outputs:
                # Declared shapes of intermediate values are often stale; for custom ops there are no others.
                if value not in own_inputs and not node.domain:
                    value.shape = None
    for value in graph.inputs:
        _check_name("input", value)
        if not isinstance(value.type, ir.TensorType) or value.type.dtype.name not in _IO_TYPES:
            raise ModelError(
                f"input {value.name} is {_type_name(value)}; supported types: {', '.join(_IO_TYPES).lower()}"
            )
    names = {node.name for node in graph.all_nodes() if node.name}
    for index, node in enumerate(graph.all_nodes()):
        if not node.name:
            name = f"{node.op_type}_{index}"
            node.name = name if name not in names else f"{name}_{node.outputs[0].name}"
            names.add(node.name)
        if node.op_type in ("LSTM", "GRU", "RNN") and not node.domain and int_of(node, "layout", 0):
            raise ModelError(
                f"{node.name} ({node.op_type}) has layout 1 (batches first), which the reference, ONNX"
                " Runtime, does not run; export it with layout 0 and a Transpose before and after it"
            )
    model.graph.opset_imports.setdefault("", OPSETS[0])
    # Since IR 4 weights need not be inputs; older engines support versions up to about 10.
    model.ir_version = max(model.ir_version, 4)


_IO_TYPES = (
    "FLOAT", "FLOAT16", "DOUBLE", "BOOL",
    "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64",
)  # fmt: skip


def _check_name(kind: str, value: ir.Value) -> None:
    """Reject names with control characters or text direction overrides. Bundles escape them, so names there
    would differ from those in the targets' files.

    Raises:
        ModelError: the name holds such a character.
    """
    name = value.name or ""
    odd = next((character for character in name if printable(character) != character), None)
    if odd is not None:
        raise ModelError(
            f"{kind} {ascii(name)[:60]}: its name contains U+{ord(odd):04X}, a control or text-direction "
            "character; rename it in the model"
        )


def _type_name(value: ir.Value) -> str:
    if value.type is None:
        return "of no declared type"
    if not isinstance(value.type, ir.TensorType):
        return "not a tensor"
    return value.type.dtype.name.lower()


def _fix_inputs(
    model: ir.Model,
    shapes: Mapping[str, Sequence[int]],
    proto: onnx.ModelProto,
    picture_size: tuple[int, int] | None,
) -> str:
    """Make the shapes of the inputs static. Return the assumed sizes as text, or ""."""
    inputs = model.graph.inputs
    unfixed = fix_shapes(inputs, shapes)
    # Another batch that was given stands for all inputs, and which that is nothing says.
    batched = any(value.shape and value.shape[0] != 1 for value in inputs if value not in unfixed)
    assumed = "" if batched else fix_open(unfixed, picture_size)
    if open_dimensions(unfixed) or any(value.shape is None for value in unfixed):
        trial = partial(_tried_shapes, proto, inputs)
        raise DynamicShapesError(suggest_shapes(unfixed, model.graph.outputs, list(model.graph), trial))
    check_sizes(inputs)
    return assumed


def _infer(model: ir.Model, assumed: str) -> None:
    try:
        infer_shapes(model)
        restate_normalizers(model)
        _check_outputs(model)
    except ModelError as problem:
        if not assumed:
            raise
        raise ModelError(f"{problem}\n  {assumed}") from problem.__cause__


def _tried_shapes(
    proto: onnx.ModelProto, inputs: Sequence[ir.Value], shapes: Mapping[str, tuple[int, ...]]
) -> Attempt:
    model = _deserialize(proto)
    _repair(model)
    for value, fixed in zip(model.graph.inputs, inputs, strict=True):
        value.shape = ir.Shape(shapes[value.name or ""]) if value.name in shapes else fixed.shape
    try:
        check_sizes(model.graph.inputs)
    except ModelError:
        return Attempt(None, 1)
    return try_shapes(model)


def _check_outputs(model: ir.Model) -> None:
    for value in model.graph.outputs:
        _check_name("output", value)
        if not isinstance(value.type, ir.TensorType) or value.type.dtype.name not in _IO_TYPES:
            advice = output_advice(value) or f"supported types: {', '.join(_IO_TYPES).lower()}"
            raise ModelError(f"output {value.name} is {_type_name(value)}; {advice}")
        if _dims(value) is None:
            node = _first_open_node(value)
            reason, advice = "unknown", "cut the model before that node"
            if node is not None and is_private(node):
                owner, advice = way_out(node, {})
                reason = f"node {node.name} ({node.op_type}) {owner}"
            elif node is not None and node.op_type in _AS_MANY_AS_FOUND:
                reason = f"node {node.name} ({node.op_type}) has a data-dependent number of outputs"
            elif node is not None and (sizes := _varying_sizes(node)):
                reason = f"the shape of node {node.name} ({node.op_type}) depends on the values of {sizes}"
                advice = "make it a constant of the model"
            elif node is not None:
                reason = f"the output shape of node {node.name} ({node.op_type}) cannot be inferred"
            raise ModelError(f"output {value.name} has no fixed shape: {reason}; {advice}")


def _dims(value: ir.Value) -> tuple[int, ...] | None:
    """Return an output's shape, with -1 for one data-dependent dimension; None if more are unknown."""
    if value.shape is None:
        return None
    dims = tuple(d if isinstance(d, int) else -1 for d in value.shape.dims)
    return dims if dims.count(-1) < 2 else None


_AS_MANY_AS_FOUND = ("Compress", "NonMaxSuppression", "NonZero", "Unique")

_SIZES = {
    "Expand": {1: "shape"}, "OneHot": {1: "depth"}, "Pad": {1: "pads"}, "Reshape": {1: "shape"},
    "Resize": {2: "scales", 3: "sizes"}, "Slice": {1: "starts", 2: "ends"}, "Tile": {1: "repeats"},
    "TopK": {1: "K"}, "Upsample": {1: "scales"},
}  # fmt: skip
"""Inputs that give the output shape, by operator and position."""


def _varying_sizes(node: ir.Node) -> str:
    """Return the input of a node that gives its output shape and is an input of the model, or ""."""
    for place, name in _SIZES.get(node.op_type, {}).items():
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is not None and value.is_graph_input() and value.const_value is None:
            return f"its {name}, which is the input {value.name} of the model"
    return ""


def _first_open_node(value: ir.Value) -> ir.Node | None:
    node = value.producer()
    while node is not None:
        unknown_input = next(
            (v for v in node.inputs if v is not None and static_dims(v) is None and v.producer()), None
        )
        if unknown_input is None:
            return node
        node = unknown_input.producer()
    return None


def _spec(value: ir.Value) -> TensorSpec:
    dims = _dims(value)
    if value.dtype is None or dims is None:
        raise ModelError(f"{value.name} has no known shape; call infer_shapes first")
    return TensorSpec(value.name or "", value.dtype.numpy().name, dims)
