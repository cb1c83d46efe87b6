"""One connection of gRPC: HTTP/2 by h2, in fair turns with the connections over HTTP.

Source: gRPC over HTTP/2, github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md; frames and their types: RFC 9113,
sections 4.1 and 6. h2 checks what a client may send when; here is what it may cost.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import FrameTooLargeError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from edgekit.serve.fair_turns import PIECE_BYTES
from edgekit.serve.http_protocol import CLOSING_SECONDS, UNREAD_SECONDS
from edgekit.serve.paced_protocol import PacedProtocol

if TYPE_CHECKING:
    from edgekit.serve.connections import Connections
    from edgekit.serve.grpc_call import GrpcCall
    from edgekit.serve.grpc_calls import Calls

HANDSHAKE_SECONDS = 15.0
"""In which a new connection must have sent its settings."""
IDLE_SECONDS = 300.0
"""After which a connection without calls is closed."""
BLOCK_BYTES = 36 << 10
"""Size of the metadata that are read in order to refuse their call; larger ones end the connection."""
CONNECTION_CALLS = 128
"""Calls of one connection at once; its client keeps more until others have ended."""
WINDOW_BYTES = 1 << 20
"""Bytes of a call that its client may send before they are taken."""
PREFACE_BYTES, HEAD_BYTES = 24, 9
"""Sizes of what a connection begins with, and of the head of a frame."""
DATA, HEADERS, RST_STREAM, CONTINUATION = 0, 1, 3, 9
"""Types of frames."""
COSTS = {HEADERS: 5, RST_STREAM: 5, DATA: 2}
"""Cost of a frame; 1 for all others."""
PIECE_COST = 8
"""Cost of the frames that are processed as one piece: a call begins or ends once in it, or a little more."""


class GrpcProtocol(PacedProtocol):
    """One connection.

    Args:
        calls: Handles the calls.
        connections: Open connections of this process.
    """

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _partial = b""
    _answered_calls = _block_bytes = 0
    _has_begun = _writing_is_paused = _leaves = False
    _is_slow = False

    def __init__(self, calls: Calls, connections: Connections) -> None:
        self.open_connections = connections
        self._handler = calls
        self.calls: dict[int, GrpcCall] = {}
        self._writers: list[asyncio.Future[None]] = []
        self.http2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_inbound_headers=False,  # ``Calls`` reads those that it needs
                validate_outbound_headers=False,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        settings = {
            SettingCodes.MAX_CONCURRENT_STREAMS: CONNECTION_CALLS,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: BLOCK_BYTES,
        }
        self.http2.local_settings = Settings(client=False, initial_values=settings)
        self.http2.decoder.max_header_list_size = BLOCK_BYTES

    # --- the connection ----------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and begin to wait for its settings."""
        self.transport = transport
        self._loop = asyncio.get_running_loop()
        self.scheme = "http" if transport.get_extra_info("ssl_object") is None else "https"
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else ""
        if not self.open_connections.open(transport, self.host):
            transport.abort()
            return
        self._handler.connections.add(self)
        self.http2.initiate_connection()
        self.http2.increment_flow_control_window(CONNECTION_CALLS * WINDOW_BYTES)
        self.flush()
        self._wait(HANDSHAKE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        self._stop_waiting()
        self.resume_writing()
        self.drop_held()
        self._partial = b""
        for call in [*self.calls.values()]:
            call.cancel()
        self.http2.streams.clear()  # the connection's objects refer to each other until they are collected
        self.open_connections.closed(self.transport)
        self._handler.connections.discard(self)

    def leave(self) -> None:
        """Take no more calls, and close the connection after those that are open."""
        if not self._leaves and not self.transport.is_closing():
            self._leaves = True
            # h2's own would close the connection for its calls too
            self.transport.write(GoAwayFrame(0, self.http2.highest_inbound_stream_id).serialize())
            if not self.calls:
                self._close()

    def _close(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.close()
            self._timer = self._loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self._loop.call_later(seconds, self.leave)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- received data -----------------------------------------------------------------------------------

    def process(self, data: bytes) -> None:
        """Process the frames that one piece may have; the rest waits for a turn."""
        data = self._partial + data
        self._partial = b""
        try:
            end, is_more = self._piece(data)
            received = self.http2.receive_data(data[:end])
        except ProtocolError:
            self.flush()  # h2 has written why
            self._close()
            return
        for event in received:
            self._handle(event)
        self.flush()
        if is_more and not self.transport.is_closing():
            self.hold(data[end:], self._is_slow)
        else:
            self._partial = data[end:]

    def _piece(self, data: bytes) -> tuple[int, bool]:
        """Return the size of the frames that are processed now, and whether whole ones follow.

        Raises:
            ProtocolError: one is too large; h2 would wait until all of it is there.
        """
        end, cost = 0, 0
        if not self._has_begun:
            if len(data) < PREFACE_BYTES:
                return 0, False
            self._has_begun, end = True, PREFACE_BYTES
        while len(data) - end >= HEAD_BYTES:
            kind = data[end + 3]
            size = HEAD_BYTES + int.from_bytes(data[end : end + 3], "big")
            if size > HEAD_BYTES + self.http2.max_inbound_frame_size:
                raise FrameTooLargeError
            if len(data) - end < size:
                break
            network = self.open_connections.network(self.transport)
            if kind == HEADERS and not self._is_slow and self._handler.crowded(network):
                self._is_slow = True
                return end, True
            self._is_slow = self._is_slow and kind != HEADERS
            cost += COSTS.get(kind, 1)
            if cost > PIECE_COST or end + size > PIECE_BYTES:
                return end, True
            self._block_bytes = size + (self._block_bytes if kind == CONTINUATION else 0)
            if self._block_bytes > BLOCK_BYTES:
                raise FrameTooLargeError
            end += size
        return end, False

    def _handle(self, event: Any) -> None:
        if isinstance(event, events.RequestReceived):
            self._begin(event)
        elif isinstance(event, events.DataReceived):
            call = self.calls.get(event.stream_id)
            if call is None:
                self.taken(event.stream_id, event.flow_controlled_length)
            else:
                call.receive(event.data, event.flow_controlled_length)
        elif isinstance(event, events.StreamEnded | events.StreamReset):
            call = self.calls.get(event.stream_id)
            if call is not None and isinstance(event, events.StreamReset):
                call.cancel()
            elif call is not None:
                call.receive_end()
        elif isinstance(event, events.RemoteSettingsChanged):
            if not (self.calls or self.transport.is_closing()):
                self._wait(IDLE_SECONDS)
            self._wake_writers()
        elif isinstance(event, events.WindowUpdated):
            self._wake_writers()
        elif isinstance(event, events.ConnectionTerminated):
            self._close()

    def _begin(self, event: events.RequestReceived) -> None:
        if self._leaves:
            self.reset(event.stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self._stop_waiting()
        self._handler.begin(self, event.stream_id, event.headers)

    def taken(self, stream_id: int, size_bytes: int) -> None:
        """Let the client of a call send so many bytes more."""
        if size_bytes and not self.transport.is_closing():
            self.http2.acknowledge_received_data(size_bytes, stream_id)

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Read no more of a call."""
        with suppress(StreamClosedError):  # its client has ended it
            self.http2.reset_stream(stream_id, code)

    def reading_is_paused(self) -> bool:
        """Return whether the client has to read before more is read of it."""
        return self._writing_is_paused

    # --- calls -------------------------------------------------------------------------------------------

    def works(self) -> None:
        """Note that a call is being answered."""
        self._answered_calls += 1
        self.open_connections.works(self.transport)

    def ended(self, call: GrpcCall, was_answered: bool) -> None:
        """Forget a call."""
        self.calls.pop(call.stream_id, None)
        if was_answered:
            self._answered_calls -= 1
        if self.transport.is_closing():
            return
        if not self._answered_calls:
            self.open_connections.waits(self.transport)
        if not self.calls:
            if self._leaves:
                self._close()
            else:
                self._wait(IDLE_SECONDS)

    # --- sent data ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what h2 has to send."""
        data = self.http2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def room_bytes(self, stream_id: int) -> int:
        """Return the size of the frame that may be sent now; 0: the client must read first."""
        if self._writing_is_paused:
            return 0
        return min(self.http2.local_flow_control_window(stream_id), self.http2.max_outbound_frame_size)

    async def room(self) -> None:
        """Wait until the client has read.

        Raises:
            asyncio.TimeoutError: it does not within UNREAD_SECONDS.
        """
        writer = self._loop.create_future()
        self._writers.append(writer)
        await asyncio.wait_for(writer, UNREAD_SECONDS)

    def _wake_writers(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            if not writer.done():
                writer.set_result(None)

    def pause_writing(self) -> None:
        """Read no more, and give the client a time in which to read."""
        self._writing_is_paused = True
        self.transport.pause_reading()
        self._unread = self._loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if self._writing_is_paused:
            self._writing_is_paused = False
            if not self.reads_later and not self.transport.is_closing():
                self.transport.resume_reading()
        self._wake_writers()
