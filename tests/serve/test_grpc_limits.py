"""What a gRPC client may do before it has shown its token, and how long its calls may wait."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from edgekit.serve.inference_requests import RequestError
from edgekit.serve.service import Access
from tests.fixtures.threads import until

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
from edgekit.serve import grpc_server  # noqa: E402
from edgekit.serve.grpc_message_cost import FIELDS, limit_bytes, parsed_bytes  # noqa: E402
from edgekit.serve.grpc_messages import SERVICE, messages  # noqa: E402
from tests.fixtures.grpc_servers import M, X, asked, running  # noqa: E402

pytestmark = pytest.mark.needs_ort
GOOD = (("authorization", "Bearer " + "t" * 20),)


class HalfCalls:
    """Calls of a client that sends their metadata, and no message."""

    def __init__(self, channel: Any) -> None:
        self._channel, self._go = channel, threading.Event()

    def open(self, name: str = "ModelInfer", metadata: Any = ()) -> Any:
        def nothing() -> Iterator[bytes]:
            self._go.wait(60)
            return
            yield b""

        call = self._channel.stream_unary(f"/{SERVICE}/{name}", lambda m: m, lambda m: m)
        return call.future(nothing(), timeout=60, metadata=metadata)

    def end(self) -> None:
        self._go.set()


@pytest.fixture
def calls(bundle: Path) -> Iterator[tuple[Any, HalfCalls]]:
    with running({("net", "1"): bundle}, access=Access("t" * 20, loopback=False)) as client:
        client.call("ServerLive", M["ServerLiveRequest"]())  # it is connected
        half = HalfCalls(client.channel)
        yield client, half
        half.end()


@pytest.mark.parametrize("name", ["ModelInfer", "ModelStreamInfer", "RepositoryModelLoad", "ServerMetadata"])
def test_the_token_is_checked_before_a_message_is_there(calls: Any, name: str) -> None:
    _, half = calls
    assert half.open(name).code() is grpc.StatusCode.UNAUTHENTICATED  # waits for the end of the call


def test_health_waits_for_no_message(calls: Any) -> None:
    _, half = calls
    assert half.open("ServerLive").result(timeout=30) == b"\x08\x01"


def test_a_message_that_does_not_come(calls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client, half = calls
    memory = client.server.app.memory
    early = half.open(metadata=GOOD)
    for _ in range(4000):
        if memory.held_bytes == 2 << 20:  # the largest message, before it is read
            break
        time.sleep(0.005)
    else:
        pytest.fail("the memory of the message is not held")
    early.cancel()
    until(lambda: not memory.held_bytes)
    monkeypatch.setattr(grpc_server, "MESSAGE_SECONDS", 0.2)
    late = half.open(metadata=GOOD)
    assert late.code() is grpc.StatusCode.CANCELLED
    until(lambda: not client.server.app.memory.held_bytes)


def test_a_stream_whose_next_message_does_not_come(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "STREAM_SECONDS", 0.2)
    with running({("net", "1"): bundle}) as client:
        go = threading.Event()

        def requests() -> Iterator[Any]:
            yield asked()
            go.wait(60)

        call = stream(client)(requests(), timeout=60)
        assert next(call).infer_response.id == "7"
        assert call.code() is grpc.StatusCode.CANCELLED
        go.set()


def stream(client: Any) -> Any:
    return client.channel.stream_stream(
        f"/{SERVICE}/ModelStreamInfer",
        lambda m: m.SerializeToString(),
        M["ModelStreamInferResponse"].FromString,
    )


def test_an_idle_stream_goes_on(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a first message may take."""
    monkeypatch.setattr(grpc_server, "MESSAGE_SECONDS", 0.5)
    with running({("net", "1"): bundle}) as client:
        go = threading.Event()

        def requests() -> Iterator[Any]:
            yield asked()
            go.wait(60)
            yield asked(id="8")

        call = stream(client)(requests(), timeout=60)
        assert next(call).infer_response.id == "7"
        late = HalfCalls(client.channel).open()
        assert late.code() is grpc.StatusCode.CANCELLED  # the time has passed for one that begins
        go.set()
        assert [answer.infer_response.id for answer in call] == ["8"]


def test_an_address_leaves_places_to_others(bundle: Path) -> None:
    """Calls that were begun hold places; a refusal and a probe need none."""
    with running({("net", "1"): bundle}) as client:
        half = HalfCalls(client.channel)
        waiting = [half.open() for _ in range(30)]
        until(lambda: sum(call.done() for call in waiting) >= 14)
        refused = [call for call in waiting if call.done()]
        assert {call.details() for call in refused} == {"16 calls of this address are open; retry in 1 s"}
        assert {call.code() for call in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert client.call("ServerLive", M["ServerLiveRequest"]()).live
        for call in waiting:
            call.cancel()
        half.end()


def test_places_of_addresses() -> None:
    places = grpc_server.Places(0.5)
    with ExitStack() as stack:
        for host in ("192.0.2.1", "192.0.2.2", "2001:db8::1"):
            for number in range(16):
                stack.enter_context(places.taken(host if number else host.replace("::1", "::2")))
            with pytest.raises(RequestError, match=r"^(16 calls of this address|48 calls) are open"):
                stack.enter_context(places.taken(host))
        with pytest.raises(RequestError, match=r"^48 calls are open; retry in 1 s$"):
            stack.enter_context(places.taken("192.0.2.3"))
    behind_a_proxy = grpc_server.Places(1.0)
    with ExitStack() as stack:
        for _ in range(grpc_server.CALLS):
            stack.enter_context(behind_a_proxy.taken("192.0.2.1"))
    for each in (places, behind_a_proxy):
        assert (each._used, each._networks) == (0, {})


def test_a_refusal_needs_no_place(bundle: Path) -> None:
    """More calls than there are threads, of clients without a token that send no message."""
    with running({("net", "1"): bundle}, access=Access("t" * 20, loopback=False)) as client:
        own = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(f"127.0.0.1:{client.port}", own) for _ in range(8)]
        halves = [HalfCalls(channel) for channel in channels]
        waiting = [half.open() for half in halves for _ in range(grpc_server.CONNECTION_CALLS - 8)]
        assert len(waiting) > 2 * grpc_server.THREADS
        assert {call.code() for call in waiting} == {grpc.StatusCode.UNAUTHENTICATED}
        for half, channel in zip(halves, channels, strict=True):
            half.end()
            channel.close()


def test_compressed_messages_are_refused(bundle: Path) -> None:
    with running({("net", "1"): bundle}) as client:
        with pytest.raises(grpc.RpcError) as error:
            client.call("ModelInfer", asked(), compression=grpc.Compression.Gzip)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_memory_is_given_back(bundle: Path) -> None:
    with running({("net", "1"): bundle}) as client:
        memory = client.server.app.memory
        client.call("ModelInfer", asked())
        with pytest.raises(grpc.RpcError):
            client.call("ModelInfer", asked(model_name="nothing"))
        memory.limit_bytes = 1 << 20
        with pytest.raises(grpc.RpcError) as error:
            client.call("ModelInfer", asked())
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.value.details() == (
            "this request needs 2 MB of memory; the limit of one request is 1 MB. Send less in one "
            "request, or raise --request-memory-mb"
        )
        gc.collect()
        assert (memory.held_bytes, memory.peak_bytes > 0) == (0, True)


def test_what_is_no_message(bundle: Path) -> None:
    with running({("net", "1"): bundle}) as client:
        call = client.channel.unary_unary(f"/{SERVICE}/ModelInfer", lambda m: m, lambda m: m)
        for content in (b"\xff" * 30, b"\x0b", b"\x2a\x7f", b"\x0a\x02\xff\xff"):
            with pytest.raises(grpc.RpcError) as error:
                call(content, timeout=30)
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT, error.value
            assert error.value.details() == "the message is not one of the Open Inference Protocol"


def test_the_memory_of_a_message_is_known_before_it_is_parsed() -> None:
    raw, contents = asked().SerializeToString(), asked(raw=False).SerializeToString()
    assert len(raw) < parsed_bytes(raw) < 10_000
    assert len(contents) < parsed_bytes(contents) < 10_000
    large = asked()
    large.raw_input_contents[0] = bytes(32 << 20)
    assert parsed_bytes(large.SerializeToString()) < 130 << 20
    assert parsed_bytes(b"\x2a\x00" * 5_000) > 128 * 5_000
    with pytest.raises(RequestError) as error:
        parsed_bytes(b"\x2a\x00" * (FIELDS + 1))
    assert str(error.value) == "the message has more than 10000 fields"
    inner = b"\x22\x00" * FIELDS  # empty parameters of one tensor
    with pytest.raises(RequestError, match="more than 10000 fields"):
        parsed_bytes(b"\x2a\xa0\x9c\x01" + inner)


def test_a_message_ten_times_as_large_as_a_tensor_needs_fits(bundle: Path) -> None:
    from edgekit.tensor_spec import TensorSpec

    spec = TensorSpec("x", "float32", (1, 3, 640, 640))
    tensor = messages()["ModelInferRequest"]()
    tensor.inputs.add(name="x").contents.fp32_contents.extend([1.5] * (3 * 640 * 640))
    assert len(tensor.SerializeToString()) < limit_bytes([spec])
    whole = messages()["ModelInferRequest"]()
    whole.inputs.add(name="x").contents.int_contents.extend([-1] * 100_000)
    assert len(whole.SerializeToString()) < limit_bytes([TensorSpec("x", "int8", (1, 100_000))]) + 100
    assert X.nbytes < limit_bytes([])


def test_metadata_that_are_too_large(bundle: Path) -> None:
    """The limit is sharp: between a soft and a hard one gRPC refuses calls at random."""
    with running({("net", "1"): bundle}) as client:
        for size in (17 << 10, 2 * grpc_server.METADATA_BYTES):
            for _ in range(5):
                with pytest.raises(grpc.RpcError) as error:
                    client.call("ModelInfer", asked(), metadata=(("x", "a" * size),))
                assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for _ in range(5):
            assert client.call("ModelInfer", asked(), metadata=(("x", "a" * (15 << 10)),)).id == "7"
