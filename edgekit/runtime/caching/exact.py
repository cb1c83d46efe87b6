"""Equal inputs have equal outputs: the engine runs once for them.

    cache = ExactCache(session)
    feeds, placed = session.prepare(frame)
    answer = session.decode(cache.run(feeds), placed)

Found by the hash of a sample of the input, then compared with it byte by byte: a hit is exact, whatever the
hash says. That is also cheaper than hashing it all: of YOLOX-nano's 2 MB, sha256 takes 1.6 ms, a sample and a
comparison 0.2 ms. The price is memory: an entry holds its inputs besides its outputs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import UsageError
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.runtime.metrics.metrics import Metrics
    from edgekit.runtime.predictor import Predictor

SIZE_BYTES = 64 << 20
SAMPLED = 2048
"""Values of an input that are hashed, spread over it."""
OUTCOME = "reused"
"""What an answer is counted as that took no run."""

Key = tuple[tuple[str, str, tuple[int, ...], bytes], ...]


@dataclass(frozen=True)
class _Entry:
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    size_bytes: int


class ExactCache:
    """A session, or a budget, that remembers what it answered. Safe between threads.

    Args:
        runs: What answers where nothing is remembered. When another variant serves it, all is forgotten: its
            outputs differ.
        size_bytes: Of all inputs and outputs kept; what was used longest ago goes first.
        metrics: Told of each hit, as the outcome ``reused``.

    Attributes:
        hits: Answers that took no run.
        misses: Answers that took one.

    Raises:
        UsageError: ``size_bytes`` is not positive.
    """

    def __init__(self, runs: Predictor, size_bytes: int = SIZE_BYTES, metrics: Metrics | None = None) -> None:
        if size_bytes < 1:
            raise UsageError(f"size_bytes must be positive, not {size_bytes}")
        self.hits = self.misses = 0
        self._runs, self._limit_bytes, self._metrics = runs, size_bytes, metrics
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._size_bytes = 0
        self._serving: object = runs.active

    @property
    def size_bytes(self) -> int:
        """Of what is kept."""
        return self._size_bytes

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """As ``Session.run``; the arrays are the caller's, remembered or not."""
        if not all(isinstance(array, np.ndarray) for array in feeds.values()):
            return self._runs.run(feeds)  # which says what is wrong
        inputs = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        key = tuple((name, array.dtype.str, array.shape, _sample(array)) for name, array in inputs.items())
        serving = self._runs.active
        with self._lock:
            if serving != self._serving:
                self._forget()
                self._serving = serving
            entry = self._entries.get(key)
        if entry is not None and all(_equal(inputs[name], entry.inputs[name]) for name in inputs):
            with self._lock:
                self.hits += 1
                if key in self._entries:
                    self._entries.move_to_end(key)
            if self._metrics is not None:
                self._metrics.answered(OUTCOME)
            return _copied(entry.outputs)
        outputs = self._runs.run(feeds)
        self._keep(key, inputs, outputs, serving)
        return outputs

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._forget()

    def _keep(
        self, key: Key, inputs: Mapping[str, Array], outputs: Mapping[str, Array], serving: object
    ) -> None:
        size_bytes = sum(array.nbytes for array in (*inputs.values(), *outputs.values()))
        fits = size_bytes <= self._limit_bytes
        entry = _Entry(_copied(inputs), _copied(outputs), size_bytes) if fits else None
        with self._lock:
            self.misses += 1
            # Another variant may have answered than the one that was asked.
            if entry is None or serving != self._serving or self._runs.active != serving:
                return
            before = self._entries.pop(key, None)
            self._size_bytes += size_bytes - (0 if before is None else before.size_bytes)
            self._entries[key] = entry
            while self._size_bytes > self._limit_bytes:
                _, oldest = self._entries.popitem(last=False)
                self._size_bytes -= oldest.size_bytes

    def _forget(self) -> None:
        self._entries.clear()
        self._size_bytes = 0


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


def _sample(array: Array) -> bytes:
    flat = array.reshape(-1)
    return flat[:: max(1, flat.size // SAMPLED)].tobytes()


def _equal(a: Array, b: Array) -> bool:
    """Bit by bit: NaN equals itself, and 0.0 is not -0.0."""
    return np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
