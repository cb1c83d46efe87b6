"""What NVIDIA's client asks of a server; by hand where the client has an environment of its own:

python tests/serve/triton_check.py 127.0.0.1:8080 MODEL [127.0.0.1:8081, gRPC's]
"""

from __future__ import annotations

import queue
import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest


def check(client: Any, address: str, model: str, x: Any = None) -> None:
    """Health, metadata, and inference in both forms: they must be equal."""
    with client.InferenceServerClient(address) as server:
        assert server.is_server_live()
        assert server.is_server_ready()
        assert server.is_model_ready(model)
        assert "binary_tensor_data" in server.get_server_metadata()["extensions"]
        about = server.get_model_metadata(model)
        (given,) = about["inputs"]
        x = np.zeros(given["shape"], np.float32) if x is None else x
        answers = []
        for binary in (False, True):
            tensor = client.InferInput(given["name"], given["shape"], given["datatype"])
            tensor.set_data_from_numpy(x, binary_data=binary)
            wanted = [client.InferRequestedOutput(o["name"], binary_data=binary) for o in about["outputs"]]
            found = server.infer(model, [tensor], outputs=wanted, request_id="7", timeout=30_000_000)
            assert found.get_response()["id"] == "7"
            answers.append({o["name"]: found.as_numpy(o["name"]) for o in about["outputs"]})
        tensor = client.InferInput(given["name"], given["shape"], given["datatype"])
        tensor.set_data_from_numpy(x)
        answers.append(
            {o["name"]: server.infer(model, [tensor]).as_numpy(o["name"]) for o in about["outputs"]}
        )
        for name in answers[0]:
            assert all(np.array_equal(answers[0][name], each[name]) for each in answers[1:])
        with pytest.raises(client.InferenceServerException, match="there is no model"):
            server.infer("nothing", [tensor])
        config = server.get_model_config(model)
        assert config["max_batch_size"] == 0
        assert [(e["name"], e["data_type"], e["dims"]) for e in config["input"]] == [
            (given["name"], f"TYPE_{given['datatype']}", given["shape"])
        ]
        for statistics in (server.get_inference_statistics(model), server.get_inference_statistics()):
            (row,) = [each for each in statistics["model_stats"] if each["name"] == model]
            times = row["inference_stats"]
            assert times["success"]["count"] == row["inference_count"] >= 3
            assert row["inference_count"] == row["execution_count"]
            assert times["success"]["ns"] >= times["compute_infer"]["ns"] + times["queue"]["ns"] - 3 > 0


def check_grpc(client: Any, address: str, model: str, x: Any = None) -> None:
    """The same over gRPC, one by one and as a stream."""
    with client.InferenceServerClient(address) as server:
        assert server.is_server_live()
        assert server.is_server_ready()
        assert server.is_model_ready(model)
        assert "binary_tensor_data" in server.get_server_metadata().extensions
        assert model in [each.name for each in server.get_model_repository_index().models]
        about = server.get_model_metadata(model)
        (given,) = about.inputs
        x = np.zeros(given.shape, np.float32) if x is None else x
        tensor = client.InferInput(given.name, list(given.shape), given.datatype)
        tensor.set_data_from_numpy(x)
        wanted = [client.InferRequestedOutput(each.name) for each in about.outputs]
        found = server.infer(model, [tensor], outputs=wanted, request_id="7", timeout=30_000_000, priority=1)
        assert found.get_response().id == "7"
        streamed: queue.Queue[Any] = queue.Queue()
        server.start_stream(lambda result, error: streamed.put((result, error)))
        for number in range(5):
            server.async_stream_infer(model, [tensor], request_id=str(number))
        for number in range(5):
            result, error = streamed.get(timeout=30)
            assert error is None
            assert result.get_response().id == str(number)
            for each in about.outputs:
                assert np.array_equal(result.as_numpy(each.name), found.as_numpy(each.name))
        server.stop_stream()
        with pytest.raises(client.InferenceServerException, match="there is no model"):
            server.infer("nothing", [tensor])


if __name__ == "__main__":
    check(import_module("tritonclient.http"), sys.argv[1], sys.argv[2])
    if len(sys.argv) > 3:
        check_grpc(import_module("tritonclient.grpc"), sys.argv[3], sys.argv[2])
    print("all equal")
