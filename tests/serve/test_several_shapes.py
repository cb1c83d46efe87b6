"""A bundle of several shapes on a server: a request runs at the shape of its arrays, over every protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session
from edgekit.runtime.http_connection import Reply
from edgekit.runtime.remote import inference_protocol as client
from edgekit.runtime.remote.remote_session import RemoteSession
from edgekit.serve.inference_requests import (
    LENGTH,
    RequestError,
    RequestReader,
)
from edgekit.tensor_spec import Array, Signature, TensorSpec
from tests.fixtures.detector import detector
from tests.fixtures.encoder import WHOLE, encoder
from tests.fixtures.servers import Running, running
from tests.fixtures.threads import until

pytest.importorskip("starlette", reason="Starlette is not installed")
pytestmark = pytest.mark.needs_ort
SIZES = (64, 96)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    shapes = {"image": [(1, 3, size, size) for size in SIZES]}
    made = edgekit.build(detector(folder / "detector.onnx"), targets=["ort"], shapes=shapes, trusted=True)
    return made.save(folder / "two.edgekit")


@pytest.fixture(scope="module")
def server(two: Path) -> Iterator[Running]:
    with running({("two", "1"): two}, deadline_ms=30_000) as found:
        yield found


@pytest.fixture(scope="module")
def session(two: Path) -> Iterator[Session]:
    with Session(two) as found:
        yield found


def image(size: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((1, 3, size, size), np.float32)


def ask(server: Running, array: Array, binary: bool) -> dict[str, Array]:
    """Send an array, in JSON or in binary form, and decode what comes back."""
    inputs = (TensorSpec("image", "float32", array.shape),)
    names = [TensorSpec("boxes", "float32", ())]
    pieces, headers = client.request_of({"image": array}, inputs, names, binary)
    status, answered, body = server.ask("POST", "/v2/models/two/infer", b"".join(pieces), headers)
    assert status == 200, body
    head = body[: int(answered.get(LENGTH, len(body)))]
    outputs = tuple(
        TensorSpec(entry["name"], "float32", tuple(entry["shape"])) for entry in json.loads(head)["outputs"]
    )
    return client.answer_of(Reply(status, answered, body), outputs)


@pytest.mark.parametrize("binary", [True, False])
def test_arrays_run_at_their_shape(server: Running, session: Session, binary: bool) -> None:
    for turn in range(2):  # the second time from the caches of heads
        for size in SIZES:
            answer = ask(server, image(size, turn), binary)
            expected = session.run({"image": image(size, turn)})
            assert answer.keys() == expected.keys()
            for name, array in expected.items():
                assert np.array_equal(answer[name], array)
    assert server.models.find("two", None).session.runner.runs[((1, 3, 64, 64),)] >= 2  # type: ignore[attr-defined]


def test_shapes_that_wait_together(server: Running, session: Session) -> None:
    arrays = [image(SIZES[n % 2], n) for n in range(12)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda array: ask(server, array, True), arrays))
    for array, answer in zip(arrays, answers, strict=True):
        assert np.array_equal(answer["boxes"], session.run({"image": array})["boxes"])


def test_another_shape_is_refused_with_those_there_are(server: Running) -> None:
    tensor = {"name": "image", "shape": [1, 3, 32, 32], "datatype": "FP32", "data": [0.0] * 3072}
    status, _, body = server.ask("POST", "/v2/models/two/infer", json.dumps({"inputs": [tensor]}))
    assert (status, json.loads(body)["error"]) == (
        400,
        "input image is 'FP32' [1, 3, 32, 32]; the model takes FP32 [1, 3, 64, 64] or [1, 3, 96, 96]",
    )


def test_the_metadata_have_the_shapes(server: Running, session: Session) -> None:
    about = json.loads(server.ask("GET", "/v2/models/two")[2])
    assert about["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [1, 3, -1, -1]}]
    for entry, small, large in zip(
        about["outputs"], session.shapes[0].outputs, session.shapes[1].outputs, strict=True
    ):
        assert entry["shape"] == [a if a == b else -1 for a, b in zip(small.shape, large.shape, strict=True)]
    assert about["parameters"]["shapes"] == "image=1x3x64x64; image=1x3x96x96"


def test_over_grpc(two: Path, session: Session) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
    from tests.fixtures.grpc_servers import M
    from tests.fixtures.grpc_servers import running as running_grpc

    with running_grpc({("two", "1"): two}) as found:
        about = found.call("ModelMetadata", M["ModelMetadataRequest"](name="two"))
        assert list(about.inputs[0].shape) == [1, 3, -1, -1]
        for size in (96, 64, 96):
            request = M["ModelInferRequest"](model_name="two")
            request.inputs.add(name="image", datatype="FP32", shape=(1, 3, size, size))
            request.raw_input_contents.append(image(size).tobytes())
            answer = found.call("ModelInfer", request)
            expected = session.run({"image": image(size)})
            for output, content in zip(answer.outputs, answer.raw_output_contents, strict=True):
                array = np.frombuffer(content, np.float32).reshape(output.shape)
                assert np.array_equal(array, expected[output.name])
        request.inputs[0].shape[3] = 95
        with pytest.raises(Exception, match=r"takes FP32 \[1, 3, 64, 64\] or \[1, 3, 96, 96\]"):
            found.call("ModelInfer", request)


def test_a_device_sends_further_shapes_to_a_server_that_takes_them(
    server: Running, two: Path, tmp_path: Path
) -> None:
    model = detector(tmp_path / "detector.onnx")
    one = edgekit.build(model, targets=["ort"], shapes={"image": (1, 3, 96, 96)}, trusted=True)
    large = one.save(tmp_path / "two.edgekit")
    with Session(two) as own, running({("two", "1"): large}, deadline_ms=30_000) as other:
        for port, path, reason in (
            (server.port, "remote", "the server first"),
            (other.port, "local", "the server runs the largest of the bundle's shapes only"),
        ):
            with RemoteSession(
                own, f"http://127.0.0.1:{port}", "two", policy="remote-first", deadline_ms=20_000
            ) as both:
                both._local.add(0.001)
                until(lambda both=both: both.status()["server"] != "probing")  # type: ignore[misc]
                assert both.run({"image": image(96)}).path == "remote"
                result = both.run({"image": image(64)})
                assert (result.path, result.reason) == (path, reason)
                assert np.array_equal(result["boxes"], own.run({"image": image(64)})["boxes"])


def pair(rows: int) -> Signature:
    inputs = (TensorSpec("ids", "int64", (1, rows)), TensorSpec("mask", "int64", (1, rows)))
    return Signature(inputs, (TensorSpec("y", "float32", (rows, 2)), TensorSpec("z", "float32", (1,))))


def body(ids: int, mask: int) -> bytes:
    tensors = [
        {"name": name, "datatype": "INT64", "shape": [1, count], "data": [1] * count}
        for name, count in (("mask", mask), ("ids", ids))
    ]
    return json.dumps({"inputs": tensors}).encode()


def test_shapes_of_several_inputs_belong_together() -> None:
    shapes = [pair(2), pair(3)]
    read = RequestReader(shapes)

    for rows in (2, 3):
        assert {name: array.shape for name, array in read(body(rows, rows), None).feeds.items()} == {
            "mask": (1, rows),
            "ids": (1, rows),
        }
    with pytest.raises(RequestError) as caught:
        read(body(2, 3), None)
    assert str(caught.value) == (
        "the shapes of the inputs do not belong together; the model takes ids=1x2, mask=1x2; or ids=1x3, "
        "mask=1x3"
    )
    assert client.about_tensors(shapes)["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "z", "datatype": "FP32", "shape": [1]},
    ]


@pytest.fixture(scope="module")
def every_size(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("every-size")
    shapes = {"ids": (1, f"1..{WHOLE}")}
    made = edgekit.build(encoder(folder / "encoder.onnx"), targets=["ort"], shapes=shapes, trusted=True)
    return made.save(folder / "encoder.edgekit")


def at_size(size: int) -> Signature:
    inputs = tuple(TensorSpec(name, "int64", (1, size)) for name in ("ids", "mask"))
    return Signature(inputs, (TensorSpec("tokens", "float32", (1, size, 64)),))


def test_every_size_of_a_range_is_served(every_size: Path) -> None:
    with running({("encoder", "1"): every_size}, deadline_ms=30_000) as found, Session(every_size) as session:
        about = json.loads(found.ask("GET", "/v2/models/encoder")[2])
        assert [row["shape"] for row in about["inputs"]] == [[1, -1], [1, -1]]
        assert about["outputs"][0]["shape"] == [1, -1, 64]
        assert about["parameters"]["shapes"] == f"ids=1x1..{WHOLE}, mask=1x1..{WHOLE}"
        for size in (1, 3, 7, WHOLE):
            feeds = {"ids": np.arange(size)[None] % 7, "mask": np.ones((1, size), np.int64)}
            expected = session.run(feeds)["tokens"]
            inputs, outputs = at_size(size)
            body, headers = client.request_of(feeds, inputs, outputs, True)
            reply = Reply(*found.ask("POST", "/v2/models/encoder/infer", b"".join(body), headers))
            assert np.array_equal(client.answer_of(reply, outputs)["tokens"], expected)


def test_a_request_beyond_the_range_is_refused_with_the_range(every_size: Path) -> None:
    with Session(every_size) as session:
        read = RequestReader(session.shapes)

        assert read(body(5, 5), None).feeds["ids"].shape == (1, 5)
        for size in (0, WHOLE + 1):
            with pytest.raises(RequestError, match=rf"the model takes INT64 1x1\.\.{WHOLE}$"):
                read(body(size, size), None)
        with pytest.raises(RequestError, match=rf"not belong together; the model takes ids=1x1\.\.{WHOLE}"):
            read(body(3, 4), None)


def test_a_device_sends_every_size_of_a_range(every_size: Path) -> None:
    with (
        Session(every_size) as own,
        running({("encoder", "1"): every_size}, deadline_ms=30_000) as found,
        RemoteSession(
            own, f"http://127.0.0.1:{found.port}", "encoder", policy="remote-first", deadline_ms=20_000
        ) as both,
    ):
        both._local.add(0.001)
        until(lambda: both.status()["server"] != "probing")
        for size in (3, 11):
            feeds = {"ids": np.arange(size)[None] % 7, "mask": np.ones((1, size), np.int64)}
            result = both.run(feeds)
            assert result.path == "remote"
            assert np.array_equal(result["tokens"], own.run(feeds)["tokens"])
