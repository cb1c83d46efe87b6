"""The messages of the Open Inference Protocol v2 over gRPC, made from a table when they are first needed.

Source of names, types and numbers: github.com/kserve/open-inference-protocol,
specification/protocol/open_inference_grpc.proto; of the repository's messages and of the stream
triton-inference-server/common, protobuf/grpc_service.proto. They are in a pool of their own: a client of the
same protocol in this process registers the same names in the common one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
PARAMETERS = "parameters:{InferParameter"
TENSOR = ("name:string", "datatype:string", "shape:*int64")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("live:bool",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("ready:bool",),
    "ModelReadyRequest": ("name:string", "version:string"),
    "ModelReadyResponse": ("ready:bool",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("name:string", "version:string", "extensions:*string"),
    "ModelMetadataRequest": ("name:string", "version:string"),
    "ModelMetadataResponse": (
        "name:string", "versions:*string", "platform:string", "inputs:*ModelMetadataResponse.TensorMetadata",
        "outputs:*ModelMetadataResponse.TensorMetadata",
    ),
    "ModelMetadataResponse.TensorMetadata": TENSOR,
    "ModelInferRequest": (
        "model_name:string", "model_version:string", "id:string", PARAMETERS,
        "inputs:*ModelInferRequest.InferInputTensor",
        "outputs:*ModelInferRequest.InferRequestedOutputTensor", "raw_input_contents:*bytes",
    ),
    "ModelInferRequest.InferInputTensor": (*TENSOR, PARAMETERS, "contents:InferTensorContents"),
    "ModelInferRequest.InferRequestedOutputTensor": ("name:string", PARAMETERS),
    "ModelInferResponse": (
        "model_name:string", "model_version:string", "id:string", PARAMETERS,
        "outputs:*ModelInferResponse.InferOutputTensor", "raw_output_contents:*bytes",
    ),
    "ModelInferResponse.InferOutputTensor": (*TENSOR, PARAMETERS, "contents:InferTensorContents"),
    "InferParameter": (
        "bool_param:|bool", "int64_param:|int64", "string_param:|string", "double_param:|double",
        "uint64_param:|uint64",
    ),
    "InferTensorContents": (
        "bool_contents:*bool", "int_contents:*int32", "int64_contents:*int64", "uint_contents:*uint32",
        "uint64_contents:*uint64", "fp32_contents:*float", "fp64_contents:*double", "bytes_contents:*bytes",
    ),
    "RepositoryIndexRequest": ("repository_name:string", "ready:bool"),
    "RepositoryIndexResponse": ("models:*RepositoryIndexResponse.ModelIndex",),
    "RepositoryIndexResponse.ModelIndex": ("name:string", "version:string", "state:string", "reason:string"),
    "ModelRepositoryParameter": (
        "bool_param:|bool", "int64_param:|int64", "string_param:|string", "bytes_param:|bytes",
    ),
    "RepositoryModelLoadRequest": (
        "repository_name:string", "model_name:string", "parameters:{ModelRepositoryParameter",
    ),
    "RepositoryModelLoadResponse": (),
    "RepositoryModelUnloadRequest": (
        "repository_name:string", "model_name:string", "parameters:{ModelRepositoryParameter",
    ),
    "RepositoryModelUnloadResponse": (),
    "ModelStreamInferResponse": ("error_message:string", "infer_response:ModelInferResponse"),
}  # fmt: skip
"""Message -> its fields, numbered from 1: ``name:type``; ``*`` repeated, ``{`` a map from texts, ``|`` one of
several."""
KINDS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12,
    "uint32": 13, "sint32": 17, "sint64": 18,
}  # fmt: skip
"""Of FieldDescriptorProto.Type."""
MESSAGE, OPTIONAL, REPEATED = 11, 1, 3


@cache
def messages() -> dict[str, Any]:
    """Return the protobuf message classes by name, e.g. ``ModelInferRequest``."""
    return message_classes("open_inference_grpc.proto", PACKAGE, FIELDS)


def message_classes(file_name: str, package: str, tables: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the protobuf message classes of a table like ``FIELDS``, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

    file = descriptor_pb2.FileDescriptorProto(name=file_name, package=package, syntax="proto3")
    types: dict[str, Any] = {}
    for name, fields in tables.items():
        parent, _, short = name.rpartition(".")
        types[name] = message = (types[parent].nested_type if parent else file.message_type).add(name=short)
        for number, text in enumerate(fields, 1):
            _add(message, f".{package}.", name, number, *text.split(":"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call, unused-ignore]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in tables
    }


def _add(message: Any, package: str, full_name: str, number: int, name: str, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=REPEATED if kind[0] in "*{" else OPTIONAL)
    if kind[0] == "|":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if kind[0] == "{":  # protobuf's form of a map: a message of key and value for each entry
        entry = message.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=OPTIONAL, type=KINDS["string"])
        entry.field.add(
            name="value", number=2, label=OPTIONAL, type=MESSAGE, type_name=f"{package}{kind[1:]}"
        )
        kind = f"{full_name}.{entry.name}"
    kind = kind.lstrip("*|")
    if kind in KINDS:
        field.type = KINDS[kind]
    else:
        field.type, field.type_name = MESSAGE, f"{package}{kind}"
