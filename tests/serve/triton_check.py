"""What NVIDIA's client asks of a server; by hand where the client has an environment of its own:

python tests/serve/triton_check.py 127.0.0.1:8080 MODEL
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
import pytest


def check(client: Any, address: str, model: str, x: Any = None) -> None:
    """Health, metadata, and inference in both forms: they must be equal.

    Args:
        client: The module ``tritonclient.http``.
        address: HOST:PORT.
        model: Its name there; float32, one input.
        x: The input; None: zeros.
    """
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


if __name__ == "__main__":
    check(import_module("tritonclient.http"), sys.argv[1], sys.argv[2])
    print("all equal")
