"""A cache for equal inputs: equal inputs have equal outputs, so the engine runs once.

    cache = ExactCache(session)
    feeds, placed = session.prepare(frame)
    answer = session.decode(cache.run(feeds), placed)

An entry is found by the hash of a sample of the input, then compared byte by byte, so a hit is exact. That is
also faster than hashing everything: for YOLOX-nano's 2 MB sha256 takes 1.6 ms, a sample and a comparison 0.2
ms. It costs memory: an entry holds its inputs and its outputs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgekit.errors import UsageError
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.predictor import Predictor
from edgekit.tensor_spec import Array

SIZE_BYTES = 64 << 20
SAMPLED = 2048
"""Values of an input that are hashed, evenly spaced."""
OUTCOME = "reused"
"""The outcome of a cache hit in the metrics."""

Key = tuple[tuple[str, str, tuple[int, ...], bytes], ...]


@dataclass(frozen=True)
class _CachedOutputs:
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    size_bytes: int


class ExactCache:
    """A caching wrapper of a session or a budget. Thread-safe.

    Args:
        runs: Runs on a cache miss. When its active variant changes, the cache is cleared, because outputs
            differ.
        size_bytes: Limit of all inputs and outputs; the least recently used entries are removed first.
        metrics: Counts each hit, as the outcome ``reused``.

    Raises:
        UsageError: ``size_bytes`` is not positive.
    """

    def __init__(self, runs: Predictor, size_bytes: int = SIZE_BYTES, metrics: Metrics | None = None) -> None:
        if size_bytes < 1:
            raise UsageError(f"size_bytes must be positive, not {size_bytes}")
        self.hits = self.misses = 0
        self._runs, self._limit_bytes, self._metrics = runs, size_bytes, metrics
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, _CachedOutputs] = OrderedDict()
        self._size_bytes = 0
        self._active: object = runs.active

    @property
    def size_bytes(self) -> int:
        """Size of the entries."""
        return self._size_bytes

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run like ``Session.run``, reusing cached outputs. The caller owns the returned arrays."""
        if not all(isinstance(array, np.ndarray) for array in feeds.values()):
            return self._runs.run(feeds)  # which raises the error
        inputs = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
        key = tuple((name, array.dtype.str, array.shape, _sample(array)) for name, array in inputs.items())
        active = self._runs.active
        with self._lock:
            if active != self._active:
                self._clear()
                self._active = active
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
        self._keep(key, inputs, outputs, active)
        return outputs

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._clear()

    def _keep(
        self, key: Key, inputs: Mapping[str, Array], outputs: Mapping[str, Array], active: object
    ) -> None:
        size_bytes = sum(array.nbytes for array in (*inputs.values(), *outputs.values()))
        fits = size_bytes <= self._limit_bytes
        entry = _CachedOutputs(_copied(inputs), _copied(outputs), size_bytes) if fits else None
        with self._lock:
            self.misses += 1
            # The active variant may have changed during the run.
            if entry is None or active != self._active or self._runs.active != active:
                return
            before = self._entries.pop(key, None)
            self._size_bytes += size_bytes - (0 if before is None else before.size_bytes)
            self._entries[key] = entry
            while self._size_bytes > self._limit_bytes:
                _, oldest = self._entries.popitem(last=False)
                self._size_bytes -= oldest.size_bytes

    def _clear(self) -> None:
        self._entries.clear()
        self._size_bytes = 0


def _copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


def _sample(array: Array) -> bytes:
    flat = array.reshape(-1)
    return flat[:: max(1, flat.size // SAMPLED)].tobytes()


def _equal(a: Array, b: Array) -> bool:
    """Compare two arrays bit by bit: NaN equals itself, and 0.0 is not -0.0."""
    return np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
