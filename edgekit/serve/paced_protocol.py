"""Connection whose data is processed in fair turns with those of other addresses."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, cast

from edgekit.serve.connections import Connections
from edgekit.serve.fair_turns import HELD_BYTES


class PacedProtocol(asyncio.Protocol):
    """A connection whose data is processed in fair turns.

    Attributes:
        held_bytes: Size of the data that waits for its turn.
        held_since_s: When the oldest of it came, on the clock of ``time.monotonic``, also while it is
            processed; else infinite.
        reads_later: Whether reading is paused until the data that waits was processed.
        open_connections: Open connections of the process, with their turns.
    """

    held_bytes = 0
    held_since_s = math.inf
    reads_later = False
    open_connections: Connections
    _held: bytes | bytearray = b""
    _ended = _waits = False

    def data_received(self, data: bytes) -> None:
        """Process data now, or hold it."""
        transport, turns = cast("Any", self).transport, self.open_connections.turns
        if self.held_bytes or not turns.take(self.open_connections.network(transport), len(data)):
            self.hold(data)
            return
        self.process(data)
        if len(data) > HELD_BYTES and turns.shared() and not transport.is_closing():
            self._read_later()

    def hold(self, data: bytes, slowly: bool = False) -> None:
        """Process data in a later turn; ``slowly``: see ``FairTurns.wait_slowly``."""
        if not self.held_bytes:
            self._wait_for_turn(slowly)
            self._held, self.held_since_s = bytearray(), time.monotonic()
        self._held += data
        self.held_bytes = len(self._held)
        if self.held_bytes > HELD_BYTES:
            self._read_later()

    def _wait_for_turn(self, slowly: bool = False) -> None:
        if not self._waits:
            self._waits = True
            network, turns = (
                self.open_connections.network(cast("Any", self).transport),
                self.open_connections.turns,
            )
            (turns.wait_slowly if slowly else turns.wait)(network, self)

    def _read_later(self) -> None:
        """Read no more until a later turn: the system keeps what comes meanwhile, and slows its sender."""
        self.reads_later = True
        cast("Any", self).transport.pause_reading()
        self._wait_for_turn()

    def eof_received(self) -> Any:
        """Close the connection now, or in a later turn: also a thousand clients that leave are a flood."""
        this = cast("Any", self)
        network = self.open_connections.network(this.transport)
        if this.scheme in ("https", "wss") or (
            not self._held and self.open_connections.turns.take(network, 0)
        ):
            return None
        self._wait_for_turn()
        self._ended = True
        return True

    def process_held(self) -> None:
        """Process the data that was held, and the end of the connection."""
        data, size, since_s = bytes(self._held), self.held_bytes, self.held_since_s
        self._waits, reads_later, self.reads_later = False, self.reads_later, False
        self.drop_held()
        transport = cast("Any", self).transport
        if transport.is_closing():
            return
        if size:
            self.process(data)
        if self.held_bytes:  # the rest of it
            self.held_since_s = since_s
        else:
            self.held_since_s = math.inf
            if self._ended:
                transport.close()
                return
        if reads_later and not (self.reads_later or self.reading_is_paused() or transport.is_closing()):
            transport.resume_reading()

    def drop_held(self) -> None:
        """Forget the data that waits."""
        self._held, self.held_bytes = b"", 0

    def process(self, data: bytes) -> None:
        """Process received data; may hold a rest of it."""
        raise NotImplementedError

    def reading_is_paused(self) -> bool:
        """Return whether the protocol itself wants no more data."""
        raise NotImplementedError
