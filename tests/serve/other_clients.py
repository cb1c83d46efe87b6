"""What KServe's and MLServer's clients ask of a server; by hand, where one of them is installed:

python tests/serve/other_clients.py kserve|mlserver http://127.0.0.1:8080 MODEL 127.0.0.1:8081
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from importlib import import_module
from typing import Any

import numpy as np


def check_kserve(url: str, model: str, grpc_address: str) -> None:
    """KServe's own clients, HTTP (JSON and binary) and gRPC: health, metadata, and the same outputs by all.

    Args:
        url: Of the server.
        model: Its name there; float32, one input.
        grpc_address: HOST:PORT.
    """
    kserve: Any = import_module("kserve")

    async def ask() -> None:
        client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", timeout=60))
        assert await client.is_server_live(url)
        assert await client.is_server_ready(url)
        assert await client.is_model_ready(url, model)
        remote = kserve.InferenceGRPCClient(grpc_address)
        assert await remote.is_server_live()
        assert await remote.is_model_ready(model)
        about = await _metadata(url, model)
        (given,) = about["inputs"]
        x = np.random.default_rng(0).normal(0, 1, given["shape"]).astype(np.float32)
        found = []
        for binary in (False, True):
            tensor = kserve.InferInput(given["name"], list(x.shape), given["datatype"])
            tensor.set_data_from_numpy(x, binary_data=binary)
            request = kserve.InferRequest(model, [tensor], request_id="7")
            found.append(await client.infer(url, request, model_name=model))
        tensor = kserve.InferInput(given["name"], list(x.shape), given["datatype"])
        tensor.set_data_from_numpy(x, binary_data=True)
        found.append(await remote.infer(kserve.InferRequest(model, [tensor], request_id="7")))
        for answer in found:
            assert answer.id == "7"
            for one, other in zip(answer.outputs, found[0].outputs, strict=True):
                assert np.array_equal(one.as_numpy(), other.as_numpy())
        await client.close()
        await remote.close()

    asyncio.run(ask())


async def _metadata(url: str, model: str) -> Any:
    import json

    return json.loads(await asyncio.to_thread(_get, f"{url}/v2/models/{model}"))


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as reply:
        return bytes(reply.read())


def check_mlserver(url: str, model: str, grpc_address: str) -> None:
    """MLServer's types and codecs over HTTP, and its stub over gRPC.

    Args: as :func:`check_kserve`.
    """
    types: Any = import_module("mlserver.types")
    codecs: Any = import_module("mlserver.codecs")
    grpc: Any = import_module("grpc")
    messages: Any = import_module("mlserver.grpc.dataplane_pb2")
    converters: Any = import_module("mlserver.grpc.converters")
    stubs: Any = import_module("mlserver.grpc.dataplane_pb2_grpc")
    about = types.MetadataModelResponse.model_validate_json(_get(f"{url}/v2/models/{model}"))
    (given,) = about.inputs
    x = np.random.default_rng(0).normal(0, 1, given.shape).astype(np.float32)
    request = types.InferenceRequest(id="7", inputs=[codecs.NumpyCodec.encode_input(given.name, x)])
    body = request.model_dump_json(exclude_none=True).encode()
    json = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}/v2/models/{model}/infer", body, json)
    with urllib.request.urlopen(asked, timeout=60) as reply:
        answer = types.InferenceResponse.model_validate_json(reply.read())
    assert (answer.id, answer.model_name) == ("7", model)
    with grpc.insecure_channel(grpc_address) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        assert stub.ServerLive(messages.ServerLiveRequest()).live
        sent = converters.ModelInferRequestConverter.from_types(request, model_name=model)
        other = converters.ModelInferResponseConverter.to_types(stub.ModelInfer(sent))
    for one, two in zip(answer.outputs, other.outputs, strict=True):
        assert np.array_equal(codecs.NumpyCodec.decode_output(one), codecs.NumpyCodec.decode_output(two))


if __name__ == "__main__":
    {"kserve": check_kserve, "mlserver": check_mlserver}[sys.argv[1]](*sys.argv[2:])
    print("all equal")
