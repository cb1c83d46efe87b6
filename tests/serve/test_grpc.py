"""The protocol over gRPC: a real server on loopback, in the process of the HTTP server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runtime import Session
from edgekit.serve.inference_requests import RequestError
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.grpc_servers import Grpc, M, X, asked, running
from tests.fixtures.servers import held
from tests.fixtures.threads import until

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
from edgekit.serve.grpc_messages import FIELDS, SERVICE  # noqa: E402
from edgekit.serve.grpc_service import _contents  # noqa: E402

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def client(bundle: Path) -> Iterator[Grpc]:
    with running({("net", "1"): bundle}) as found:
        yield found


def scores(answer: Any) -> np.ndarray[Any, Any]:
    (output,) = answer.outputs
    return np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(output.shape)


def stream(client: Grpc) -> Any:
    return client.channel.stream_stream(
        f"/{SERVICE}/ModelStreamInfer",
        lambda m: m.SerializeToString(),
        M["ModelStreamInferResponse"].FromString,
    )


def test_health_and_metadata(client: Grpc) -> None:
    assert client.call("ServerLive", M["ServerLiveRequest"]()).live
    assert client.call("ServerReady", M["ServerReadyRequest"]()).ready
    assert client.call("ModelReady", M["ModelReadyRequest"](name="net")).ready
    server = client.call("ServerMetadata", M["ServerMetadataRequest"]())
    assert (server.name, "binary_tensor_data" in server.extensions) == ("edgekit", True)
    model = client.call("ModelMetadata", M["ModelMetadataRequest"](name="net", version="1"))
    assert (model.name, list(model.versions), model.platform) == ("net", ["1"], "edgekit")
    assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [("x", "FP32", [1, 3, 1, 2])]
    assert [(t.name, t.datatype, list(t.shape)) for t in model.outputs] == [("scores", "FP32", [1, 6])]


@pytest.mark.parametrize("raw", [True, False])
def test_inference_is_that_of_a_session(client: Grpc, bundle: Path, raw: bool) -> None:
    with Session(bundle) as session:
        expected = session.run({"x": X})["scores"]
    answer = client.call("ModelInfer", asked(raw))
    assert (answer.id, answer.model_name, answer.model_version) == ("7", "net", "1")
    assert np.array_equal(scores(answer), expected)


def test_a_call_is_not_run_after_its_clients_deadline(client: Grpc, monkeypatch: pytest.MonkeyPatch) -> None:
    model = client.server.models.find("net", None)
    allowed_ms, run = [], model.run

    def noted(request: Any, *spent: Any) -> Any:
        allowed_ms.append(request.timeout_ms)
        return run(request, *spent)

    monkeypatch.setattr(model, "run", noted)
    sooner = asked()
    sooner.parameters["timeout"].int64_param = 9_000_000  # microseconds
    for request in (asked(), sooner):
        client.call("ModelInfer", request)  # with 30 s
    assert 0 < allowed_ms[0] < 60_000
    assert 0 < allowed_ms[1] <= 9_000


def test_a_stream_answers_in_order_and_goes_on_after_an_error(client: Grpc) -> None:
    requests = [asked(id=str(number)) for number in range(20)]
    requests[7].inputs[0].name = "q"
    answers = list(stream(client)(iter(requests), timeout=30))
    assert [answer.infer_response.id for answer in answers] == [str(number) for number in range(20)]
    assert [bool(answer.error_message) for answer in answers] == [number == 7 for number in range(20)]
    assert "the model takes x float32 1x3x1x2" in answers[7].error_message


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_that_is_cancelled_leaves_nothing_behind(
    bundle: Path, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running({("net", "1"): bundle}, deadline_ms=30_000) as own:
        model, runs = own.server.models.find("net", None), list[Any]()
        run = model.run

        def noted(*given: Any) -> Any:
            runs.append(run(*given))
            return runs[-1]

        monkeypatch.setattr(model, "run", noted)
        with held(own.server) as waiting:
            calls: list[Any] = []
            for _ in range(3):
                if streams:
                    requests = (asked(id=str(number)) for number in range(40))
                    calls.append(stream(own)(requests))
                else:
                    unary = own.channel.unary_unary(f"/{SERVICE}/ModelInfer", lambda m: m.SerializeToString())
                    calls.append(unary.future(asked(), timeout=30))
            waiting(2)  # one runs, the others are queued
            for call in calls:
                call.cancel()
            for _ in range(4000):
                if sum(each.cancelled() for each in runs) == 2:
                    break
                time.sleep(0.005)
            else:
                pytest.fail("the queued requests are still there")
        until(lambda: not own.server.app.memory.held_bytes)
        assert len(runs) == 3


def wrong(**changes: Any) -> Any:
    request = asked()
    for name, value in changes.items():
        setattr(request.inputs[0], name, value)
    return request


@pytest.mark.parametrize(
    ("request_", "code", "told"),
    [
        (asked(model_name="nothing"), "NOT_FOUND", "there is no model 'nothing'; this server has net"),
        (asked(model_version="9"), "NOT_FOUND", "net has no version '9'; it has 1"),
        (wrong(name="q"), "INVALID_ARGUMENT", "inputs are 'q'; the model takes x"),
        (wrong(datatype="INT8"), "INVALID_ARGUMENT", "input x is 'INT8' [1, 3, 1, 2]; the model takes FP32"),
        (M["ModelInferRequest"](model_name="net"), "INVALID_ARGUMENT", "inputs are none"),
    ],
)
def test_errors_are_codes(client: Grpc, request_: Any, code: str, told: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        client.call("ModelInfer", request_)
    assert error.value.code() == grpc.StatusCode[code]
    assert told in error.value.details()


def test_more_that_is_refused(client: Grpc) -> None:
    short, many, output, late, long = asked(), asked(), asked(), asked(), asked(id="i" * 257)
    short.raw_input_contents[0] = short.raw_input_contents[0][:-4]
    many.raw_input_contents.append(b"")
    output.outputs.add(name="q")
    late.parameters["timeout"].int64_param = -1
    values = asked(raw=False)
    del values.inputs[0].contents.fp32_contents[0]
    for request, told in (
        (short, "input x has 20 bytes; the model takes 24"),
        (many, "raw_input_contents has 2 entries for 1 inputs"),
        (output, "there is no output 'q'; the model has scores"),
        (late, "parameters.timeout is -1"),
        (long, "id must be a string of at most 256 characters"),
        (values, "fp32_contents of input x has 5 values; the model takes 6"),
    ):
        with pytest.raises(grpc.RpcError) as error:
            client.call("ModelInfer", request)
        assert told in error.value.details()
    large = asked()
    large.raw_input_contents[0] = bytes(4 << 20)
    with pytest.raises(grpc.RpcError) as error:
        client.call("ModelInfer", large)
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_call_that_ends_without_a_message(client: Grpc) -> None:
    call = client.channel.stream_unary(f"/{SERVICE}/ModelInfer", lambda m: m, lambda m: m)
    with pytest.raises(grpc.RpcError) as error:
        call(iter(()), timeout=30)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "the call has no message"


@pytest.mark.parametrize("value", [-129, 128])
def test_a_value_that_its_type_cannot_hold_is_not_wrapped(value: int) -> None:
    """Integers of all sizes travel in one field of 32 bits."""
    tensor = M["ModelInferRequest"]().inputs.add(name="x", datatype="INT8", shape=[1, 2])
    tensor.contents.int_contents.extend([1, value])
    with pytest.raises(RequestError, match="a value in int_contents of input x is out of the range of INT8"):
        _contents(tensor, TensorSpec("x", "int8", (1, 2)))


def test_a_full_queue_says_when_to_come_again(bundle: Path) -> None:
    with running({("net", "1"): bundle}, queue=1, deadline_ms=30_000) as client:
        call = client.channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            lambda m: m.SerializeToString(),
            M["ModelInferResponse"].FromString,
        )
        with held(client.server) as until:
            waiting = [call.future(asked(), timeout=30)]
            until(0)
            waiting.append(call.future(asked(), timeout=30))
            until(1)
            with pytest.raises(grpc.RpcError) as error:
                client.call("ModelInfer", asked())
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            assert int(dict(error.value.trailing_metadata())["retry-after"]) >= 1
        assert [answer.result().id for answer in waiting] == ["7", "7"]


def test_nvidias_client(client: Grpc) -> None:
    theirs = pytest.importorskip("tritonclient.grpc", reason="pip install 'tritonclient[grpc]'")
    from tests.serve.triton_check import check_grpc

    check_grpc(theirs, f"127.0.0.1:{client.port}", "net", X)


def test_messages_are_those_of_nvidias_client() -> None:
    theirs = pytest.importorskip(
        "tritonclient.grpc.service_pb2", reason="pip install 'tritonclient[grpc]' for the interoperability"
    )
    for name in FIELDS:
        message: Any = theirs
        for part in name.split("."):
            message = getattr(message, part)
        own = {field.name: field for field in M[name].DESCRIPTOR.fields}
        for field in own.values():
            other = message.DESCRIPTOR.fields_by_name[field.name]
            assert (other.number, other.type, other.is_repeated) == (
                field.number,
                field.type,
                field.is_repeated,
            )
