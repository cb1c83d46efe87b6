"""Turns of the event loop: how much received data is processed in each, of one address and of all.

In one turn the loop would otherwise process what every connection has sent, however many there are, and
responses that are ready wait until it ends. Data beyond these limits waits for the next turns, in which the
addresses alternate, so that a flood from one address delays its own requests.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from typing import Protocol

ADDRESS_PIECES, TURN_PIECES = 2, 16
"""Pieces of received data that are processed in a turn, of one address and of all."""
SHARED_S = 0.2
"""While another address has sent data within this time, an address has one piece in a turn."""
PIECE_BYTES = 64 << 10
"""A larger piece counts as several."""
HELD_BYTES = 16 << 10
"""A connection with more data that waits is not read until it was processed. One that sent a larger piece is
not read until a later turn, while another address has sent data within SHARED_S."""
SLOW_S = 0.002
"""Time between two of an address that wait slowly, for those that name no other."""


class Waiting(Protocol):
    """Connection with data that waits (``paced_protocol.PacedProtocol``)."""

    held_bytes: int

    def process_held(self) -> None:
        """Process the data that was held."""


class FairTurns:
    """Turns of one process. Used in its event loop only."""

    def __init__(self) -> None:
        self._pieces: dict[str, int] = {}  # of this turn
        self._all_pieces = 0
        self._waiting: dict[str, deque[Waiting]] = {}  # by address; the first is next
        self._slow: dict[str, deque[tuple[Waiting, float]]] = {}
        self._begun = False
        self._last: tuple[str, float] = ("", -math.inf)  # the address that took a turn last, and when
        self._other_s = -math.inf  # when another one did

    def take(self, network: str, size_bytes: int) -> bool:
        """Count a piece of data in this turn; False: it must wait for a later one.

        Args:
            network: Address of its client, as ``network_of`` returns it.
            size_bytes: Size of the piece.
        """
        used = self._pieces.get(network, 0)
        if used >= self._limit(network) or self._all_pieces >= TURN_PIECES:
            return False
        pieces = 1 + size_bytes // PIECE_BYTES
        self._pieces[network] = used + pieces
        self._all_pieces += pieces
        self._begin()
        return True

    def _limit(self, network: str) -> int:
        """Return how many pieces an address may have in a turn."""
        now = time.monotonic()
        if network != self._last[0]:
            self._other_s = self._last[1]
        self._last = network, now
        return 1 if self.shared() else ADDRESS_PIECES

    def shared(self) -> bool:
        """Return whether another address than the last one has sent data within SHARED_S."""
        return self._last[1] - self._other_s < SHARED_S

    def wait(self, network: str, waiting: Waiting) -> None:
        """Process what a connection holds in a later turn."""
        self._waiting.setdefault(network, deque()).append(waiting)
        self._begin()

    def wait_slowly(self, network: str, waiting: Waiting, seconds: float | None = None) -> None:
        """Process what a connection holds in a later turn, of its address one at a time.

        Args:
            network: Address of its client.
            waiting: The connection.
            seconds: Time that lies between it and the one before it; None: SLOW_S.
        """
        entry = waiting, SLOW_S if seconds is None else seconds
        if network not in self._slow:
            self._slow[network] = deque()
            asyncio.get_running_loop().call_later(entry[1], self._next_slow, network)
        self._slow[network].append(entry)

    def _next_slow(self, network: str) -> None:
        self.wait(network, self._slow[network].popleft()[0])
        if self._slow[network]:
            asyncio.get_running_loop().call_later(self._slow[network][0][1], self._next_slow, network)
        else:
            del self._slow[network]

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._begun, self._all_pieces = False, 0
        self._pieces.clear()
        for network in [*self._waiting]:
            waiting = self._waiting.pop(network)
            while waiting and self.take(network, waiting[0].held_bytes):
                waiting.popleft().process_held()
            waiting.extend(self._waiting.pop(network, ()))  # those with a rest
            if waiting:  # at the end: the others come first in the next turn
                self._waiting[network] = waiting
        if self._waiting:
            self._begin()
