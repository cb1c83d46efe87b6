"""Messages of gRPC under mutation: what a server makes of one, without the server."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edgekit.serve.grpc_messages import messages
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import RequestMemory
from edgekit.tensor_spec import Signature, TensorSpec
from tests.fixtures.bundle_mutations import bytes_changed
from tests.fixtures.classifiers import vectors
from tests.fuzz.target import READ, Target, refused

M = messages()
X = vectors(1)[0]["x"]
MEMORY_BYTES = 64 << 20


def changed_message(draw: random.Random) -> bytes:
    """Return a ModelInferRequest with some changes."""
    request = M["ModelInferRequest"](model_name="net", id="7")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=X.shape)
    if draw.random() < 0.5:
        request.raw_input_contents.append(X.tobytes())
    else:
        tensor.contents.fp32_contents.extend(X.ravel().tolist())
    if draw.random() < 0.5:
        request.parameters["timeout"].int64_param = draw.choice((20_000_000, 0, -1, 1 << 62))
        request.parameters["priority"].string_param = draw.choice(("3", "", "x" * 300))
        request.outputs.add(name=draw.choice(("scores", "", "y" * 99)))
    for _ in range(draw.choice((0, 1, 1, 2))):
        what = draw.randrange(6)
        if what == 0:
            tensor.shape[draw.randrange(4)] = draw.choice((-1, 0, 7, 1 << 62, -(1 << 63)))
        elif what == 1:
            tensor.datatype = draw.choice(("FP16", "FP64", "BYTES", "", "\u0663", "BOOL"))
        elif what == 2:
            tensor.contents.int64_contents.extend([draw.randrange(-9, 9)] * draw.choice((1, 6, 99)))
        elif what == 3:
            request.raw_input_contents.append(draw.randbytes(draw.choice((0, 1, 24, 999))))
        elif what == 4:
            request.inputs.add().CopyFrom(tensor)
        else:
            request.model_name = draw.choice(("", "..", "net\x00", "x" * 9000))
    sent = bytes(request.SerializeToString())
    return bytes_changed(draw, sent) if draw.random() < 0.5 else sent


def grpc_messages(folder: Path) -> dict[str, Target]:
    """Parse a message within the memory for requests, and make the arrays of its request."""
    if find_spec("grpc") is None:
        return {}
    from edgekit.serve.grpc_server import parsed
    from edgekit.serve.grpc_service import request_of

    inputs = (TensorSpec("x", "float32", (1, 3, 1, 2)),)
    outputs = (TensorSpec("scores", "float32", (1, 6)),)
    model: Any = SimpleNamespace(
        shapes=[Signature(inputs, outputs)], session=SimpleNamespace(outputs=outputs)
    )
    memory, kind = RequestMemory(MEMORY_BYTES, 1.0), M["ModelInferRequest"]

    def make(draw: random.Random) -> bytes:
        content = changed_message(draw)
        if draw.random() < 0.1:  # many small fields, of the message or of a tensor
            part = draw.choice((b"\x2a\x00", b"\x3a\x00", b"\x22\x00", b"\x2a\x02\x22\x00"))
            content += part * draw.choice((10, 5_000, 200_000))
        return content

    def read(content: bytes) -> str:
        with memory.lease("192.0.2.1") as lease:
            try:
                request = request_of(parsed(kind, content, lease), model)
            except RequestError as problem:
                return refused(problem)
            assert request.feeds["x"].shape == (1, 3, 1, 2)
        assert memory.held_bytes == 0
        return READ

    return {"messages of gRPC": Target(10, make, read)}
