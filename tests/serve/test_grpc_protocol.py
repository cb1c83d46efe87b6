"""What a connection of gRPC may cost, by frames that no client's library sends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("h2", reason="h2 is not installed (the extra serve)")
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from edgekit.serve import fair_turns, grpc_calls, grpc_protocol
from edgekit.serve.connections import ConnectionLimits, Connections
from edgekit.serve.grpc_call import Code
from edgekit.serve.grpc_messages import SERVICE
from edgekit.serve.grpc_protocol import GrpcProtocol
from tests.fixtures.http2_clients import M, in_loop, served, until


@pytest.mark.parametrize("resets", [False, True])
def test_calls_of_one_connection_begin_and_end_in_turns(
    resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with served() as (own, client):
            one, turn, begun, ended = await client(), [0], list[int](), list[int]()
            begin, forget = own.calls.begin, own.calls.over

            def with_turns(turns: list[int], function: Callable[..., None]) -> Callable[..., None]:
                def call(*arguments: Any) -> None:
                    turns.append(turn[0])
                    function(*arguments)

                return call

            monkeypatch.setattr(own.calls, "begin", with_turns(begun, begin))
            monkeypatch.setattr(own.calls, "over", with_turns(ended, forget))
            numbers = [one.open() for _ in range(60)]
            if resets:
                await one.send()
                await until(lambda: len(begun) == 60)
                for number in numbers:
                    one.http2.reset_stream(number)
            await one.send()
            noted = ended if resets else begun
            while len(noted) < 60:
                turn[0] += 1
                await asyncio.sleep(0)
            assert max(noted.count(number) for number in set(noted)) <= 2

    in_loop(test)


def test_calls_of_an_address_with_many_that_wait_begin_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(fair_turns, "SLOW_S", 0.1)
        async with served() as (own, client):
            one, two = await client(), await client()
            own.go.set()
            clock_s, begin_s = asyncio.get_running_loop().time, asyncio.get_running_loop().time()
            for number in range(20):
                (one, two)[number % 2].open()
            await one.send()
            await two.send()
            await until(lambda: len(own.calls._open) == grpc_calls.CROWD)
            known, network = [each.transport for each in own.calls.connections], own.table.network
            with pytest.MonkeyPatch.context() as patch:  # the next one has another address
                patch.setattr(
                    own.table, "network", lambda wire: network(wire) if wire in known else "192.0.2.1"
                )
                other = await client()
                number = other.open()
                other.message(number)
                await other.send()
                await until(lambda: other.code(number) == Code.OK)
            await until(lambda: len(own.calls._waiting) == 20)
            assert clock_s() - begin_s > 0.25
            for each in own.calls.connections:
                each.transport.abort()
            await until(lambda: not own.calls._open)
            assert (own.calls._crowds, own.table.turns._slow) == ({}, {})

    in_loop(test)


def test_a_frame_that_is_too_large_is_refused_by_its_head() -> None:
    async def test() -> None:
        async with served() as (_, client):
            one = await client()
            await one.send(b"\x00\x40\x01\x00\x00" + bytes(4))
            await until(lambda: one.closed)

    in_loop(test)


def test_metadata_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with served() as (_own, client):
            one = await client()
            part = b"\x00\x3f\xff"  # 16,383 bytes of a head and no end
            await one.send(part + b"\x01\x00" + struct.pack(">I", 1) + bytes(16_383))
            for _ in range(2):
                await one.send(part + b"\x09\x00" + struct.pack(">I", 1) + bytes(16_383))
            await until(lambda: one.closed)

    in_loop(test)


@pytest.mark.parametrize(("limit", "settings"), [("HANDSHAKE_SECONDS", False), ("IDLE_SECONDS", True)])
def test_a_connection_that_waits_for_its_client_ends(
    limit: str, settings: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        monkeypatch.setattr(grpc_protocol, limit, 0.2)
        async with served() as (_, client):
            one = await client(settings)  # type: ignore[call-arg]
            await until(lambda: one.closed)

    in_loop(test)


def test_a_client_that_does_not_read_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(grpc_protocol, "UNREAD_SECONDS", 0.3)
        async with served() as (own, client):
            one = await client()
            own.answer = bytes(1 << 20)
            own.go.set()
            number = one.open()
            one.message(number)
            await one.send()
            await until(lambda: any(isinstance(event, events.StreamReset) for event in one.events))
            assert own.service.memory.held_bytes == 0
            assert not one.closed

    in_loop(test)


def test_an_answer_waits_for_its_client_to_read() -> None:
    async def test() -> None:
        async with served() as (own, client):
            one = await client()
            own.answer = bytes(300_000)
            own.go.set()
            number = one.open()
            one.message(number)
            await one.send()
            content = b""
            while one.code(number) is None:
                await asyncio.sleep(0.005)
                while one.events and isinstance(one.events[0], events.DataReceived):
                    part = one.events.pop(0)
                    content += part.data
                    one.http2.acknowledge_received_data(part.flow_controlled_length, number)
                one.events = [
                    e for e in one.events if isinstance(e, events.DataReceived | events.TrailersReceived)
                ]
                await one.send()
            assert M["ModelInferResponse"].FromString(content[5:]).raw_output_contents == [own.answer]

    in_loop(test)


def test_a_connection_may_begin_in_parts() -> None:
    async def test() -> None:
        async with served() as (own, _):
            server = await asyncio.get_running_loop().create_server(
                lambda: GrpcProtocol(own.calls, own.table), "127.0.0.1", 0
            )
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            http2 = H2Connection(H2Configuration(client_side=True))
            http2.initiate_connection()
            for byte in http2.data_to_send():
                writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            received = b""
            while b"\0\0\0\4\1\0\0\0\0" not in received:  # the settings are acknowledged
                more = await reader.read(4096)
                assert more
                received += more
            writer.close()
            server.close()

    in_loop(test)


def test_a_message_that_is_larger_than_the_window() -> None:
    async def test() -> None:
        async with served() as (own, client):
            one = await client()
            own.go.set()
            number = one.open()
            request = M["ModelInferRequest"](raw_input_contents=[bytes(3 << 20)]).SerializeToString()
            content = struct.pack(">BI", 0, len(request)) + request
            while content:
                size = min(one.http2.local_flow_control_window(number), 1 << 14)
                if size:
                    one.http2.send_data(number, content[:size], end_stream=size >= len(content))
                    content = content[size:]
                await one.send()
                await asyncio.sleep(0)
            await until(lambda: one.code(number) == Code.OK)

    in_loop(test)


def test_messages_of_a_stream_wait_in_its_client() -> None:
    async def test() -> None:
        async with served() as (own, client):
            one = await client()
            number, content = one.open("ModelStreamInfer"), bytes(100_000)
            sent = 0
            for _ in range(200):
                room = one.http2.local_flow_control_window(number)
                if room < len(content) + 5:
                    await one.send()
                    await asyncio.sleep(0.01)
                    continue
                frames = struct.pack(">BI", 0, len(content)) + content
                for start in range(0, len(frames), 1 << 14):
                    one.http2.send_data(number, frames[start : start + (1 << 14)])
                await one.send()
                sent += 1
            assert 1 <= len(own.streamed) <= sent < 3 + grpc_protocol.WINDOW_BYTES // len(content)
            own.go.set()
            await until(lambda: len(own.streamed) == sent)
            one.http2.end_stream(number)
            await one.send()
            await until(lambda: one.code(number) == Code.OK)

    in_loop(test)


def test_a_server_that_ends_answers_its_calls_and_begins_none() -> None:
    async def test() -> None:
        async with served() as (own, client):
            one = await client()
            number = one.open()
            one.message(number)
            await one.send()
            await until(lambda: own.begun)
            two = one.open()
            one.message(two)
            late = one.http2.data_to_send()
            for connection in own.calls.connections:
                connection.leave()
            # h2's client begins no call after GOAWAY; one that was on its way has these bytes
            await one.send(late)
            await asyncio.sleep(0.1)
            assert len(own.calls._open) == 1
            assert own.begun == [f"/{SERVICE}/ModelInfer"]
            own.go.set()
            await until(lambda: one.closed)

    in_loop(test)


@pytest.mark.parametrize(
    ("text", "code"),
    [("50m", Code.DEADLINE_EXCEEDED), ("5", Code.INVALID_ARGUMENT), ("123456789S", Code.INVALID_ARGUMENT)],
)
def test_the_deadline_of_a_client(text: str, code: Code) -> None:
    async def test() -> None:
        async with served() as (_own, client):
            one = await client()
            number = one.open(grpc_timeout=text)
            one.message(number)
            await one.send()
            await until(lambda: one.code(number) == code)

    in_loop(test)


def test_what_has_ended_is_not_answered() -> None:
    async def test() -> None:
        async with served() as (own, client):
            one, other = await client(), await client()
            number, gone = one.open(), other.open()
            one.message(number)
            other.message(gone)
            await one.send()
            await other.send()
            await until(lambda: len(own.begun) == 2)
            tasks = [call.task for call in own.calls._open]
            one.http2.reset_stream(number)
            await one.send()
            await other.close()
            await until(lambda: all(task is not None and task.cancelled() for task in tasks))
            assert own.service.memory.held_bytes == 0

    in_loop(test)


def test_a_connection_whose_calls_are_answered_makes_no_room() -> None:
    async def test() -> None:
        async with served(Connections(ConnectionLimits(total=2, address=2))) as (own, client):
            busy, idle = await client(), await client()
            number = busy.open()
            busy.message(number)
            await busy.send()
            idle.open()  # without a message
            await idle.send()
            await until(lambda: own.begun and own.calls._waiting)
            await client()
            await until(lambda: idle.closed)
            assert not busy.closed
            own.go.set()
            await until(lambda: busy.code(number) == Code.OK)
            await client()
            await client()
            await until(lambda: busy.closed)

    in_loop(test)


def test_settings_have_the_limits() -> None:
    async def test() -> None:
        async with served() as (_, client):
            one = await client()
            await until(lambda: one.http2.remote_settings.max_concurrent_streams < 1000)
            assert (
                one.http2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS]
                == grpc_protocol.CONNECTION_CALLS
            )
            assert one.http2.remote_settings.initial_window_size == grpc_protocol.WINDOW_BYTES
            assert one.http2.remote_settings[SettingCodes.MAX_HEADER_LIST_SIZE] > grpc_calls.METADATA_BYTES

    in_loop(test)
