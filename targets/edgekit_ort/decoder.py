"""Run a language model on ONNX Runtime. Device side: numpy and onnxruntime.

One buffer for keys, or values, of a layer holds the caches of all texts. GroupQueryAttention extends them in
place, so nothing is copied from step to step, and a shorter cache is a smaller number.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.generate.device.adapter import NO_MATRICES, Matrices, adapter_inputs
from edgekit.generate.device.adapter import OPTION as ADAPTERS
from edgekit.generate.device.decoder import (
    DecoderShape,
    check_capacity,
    check_length,
    check_saved,
    check_step,
)
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array, Json
from edgekit_ort.run import MODEL_FILE, engine_version, open_session

DATA_FILE = "model.data"
CHUNK = 512
"""Tokens of one run: a longer text is appended in parts, as the memory of a run grows with their square."""
WINDOW = "sliding_window"
"""The artifact's option: tokens that a token sees in a sliding layer, its own included."""
SLIDES_SINCE = (1, 24)
"""GroupQueryAttention of 1.23.2 sees other tokens in a window than 1.24.4 and 1.32, which are right."""
SPARE = 1
"""Rows of a cache beyond its capacity, for the token that one row is padded with."""
BINDINGS_LIMIT = 32
"""Ranges of texts whose binding is kept; making one takes a millisecond."""


def open_decoder(
    files: Mapping[str, Path], options: Mapping[str, Json], threads: int | None, capacity: int | None
) -> OrtDecoder:
    """Load ``model.onnx`` with ``model.data`` next to it; arguments: see ``decoder_registry.open_decoder``.

    Raises:
        UsageError: ``capacity`` exceeds the positions of the file.
    """
    shape = DecoderShape.from_options(options)
    slots, path = check_capacity(capacity, shape), files[MODEL_FILE]
    version, window = engine_version(), int(options.get(WINDOW, 0))
    major, minor = version.rpartition(" ")[2].split(".")[:2]
    if 0 < window < slots and (int(major), int(minor)) < SLIDES_SINCE:
        raise EngineError(
            f"{version} computes a sliding window of {window} tokens wrongly, and the cache holds {slots}:"
            " install 1.24 or newer, or open it with a smaller capacity"
        )
    try:
        session = open_session(path, threads)
    except EngineError as problem:
        raise EngineError(f"{engine_version()} did not load {path}: {problem}") from None
    caches = _Caches(session, shape, slots, options.get(ADAPTERS, {}))
    return (OrtAdapterDecoder if caches.sites else OrtDecoder)(caches, str(options["precision"]))


class _Caches:
    """Caches of all texts of one session: keys, then values, of each layer.

    Attributes:
        lengths: Number of tokens of each text; None if a place is free.
        parts: Keys, then values, of each layer: [texts, kv_heads, capacity + SPARE, head_dim] each.
        sites: Products that adapters change, as in the artifact's options.
        adapters: Name of an adapter -> inputs of the graph, as ONNX Runtime's values.
    """

    def __init__(self, session: Any, shape: DecoderShape, capacity: int, sites: Mapping[str, Json]) -> None:
        self.session, self.shape, self.capacity, self.sites = session, shape, capacity, sites
        self.adapters: dict[str, dict[str, Any]] = {}
        self.lengths: list[int | None] = []
        self.parts: list[Array] = [self._zeros(0) for _ in range(2 * shape.layers)]
        self._bindings: dict[tuple[int, int, str], _Binding] = {}

    def _zeros(self, texts: int) -> Array:
        """Allocate zeros in fresh system pages, which use no memory until written and are released at once.
        numpy's zeros do so only if the allocator has no freed memory to reuse. A forked process has its own
        pages."""
        size = (texts, self.shape.kv_heads, self.capacity + SPARE, self.shape.head_dim)
        dtype = np.dtype(self.shape.cache)
        private = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}
        pages = mmap.mmap(-1, max(1, math.prod(size) * dtype.itemsize), **private)
        return np.frombuffer(pages, dtype, math.prod(size)).reshape(size)

    def take(self) -> int:
        if None not in self.lengths:
            self.grow()
        place = self.lengths.index(None)
        self.lengths[place] = 0
        return place

    def grow(self) -> None:
        """Add a place, whose caches lie next to the others so that one step can run all texts."""
        self._bindings.clear()
        for index, part in enumerate(self.parts):  # one by one: the memory of one of them is there twice
            self.parts[index] = wider = self._zeros(len(self.lengths) + 1)
            for place, length in enumerate(self.lengths):
                wider[place, :, :length] = part[place, :, :length]
        self.lengths.append(None)

    def load(self, name: str, matrices: Matrices) -> None:
        if name not in self.adapters:
            value = onnxruntime("running an ONNX model", "ort").OrtValue.ortvalue_from_numpy
            inputs = adapter_inputs(self.sites, matrices)
            self.adapters[name] = {site: value(array) for site, array in inputs.items()}

    def run(self, first: int, tokens: Array, rows: int, adapter: str) -> Array:
        """Run one step of texts in adjacent places.

        Args:
            tokens: int64 [texts, tokens].
            rows: Number of last tokens for which logits are computed.

        Returns:
            float32 [texts, rows, vocabulary].
        """
        texts, count = tokens.shape
        key = first, texts, adapter
        binding = self._bindings.get(key)
        if binding is None:
            if len(self._bindings) >= BINDINGS_LIMIT:
                self._bindings.clear()
            parts = [part[first : first + texts] for part in self.parts]
            matrices = self.adapters.get(adapter, {})
            binding = _Binding(self.session, parts, matrices, self.shape.vocabulary)
            self._bindings[key] = binding
        lengths = self.lengths[first : first + texts]
        return binding.run(tokens, [(length or 0) + count for length in lengths], rows)


class _Binding:
    """Caches of some texts, bound to ONNX Runtime once; tokens and logits while their shapes stay the same.
    A step of one token costs little more than the run.
    """

    def __init__(
        self, session: Any, parts: Sequence[Array], adapter: Mapping[str, Any], vocabulary: int
    ) -> None:
        self._session, self._vocabulary = session, vocabulary
        self._io = session.io_binding()
        self._value = onnxruntime("running an ONNX model", "ort").OrtValue.ortvalue_from_numpy
        for index, part in enumerate(parts):
            name = f"{'value' if index % 2 else 'key'}{index // 2}"
            shared = self._value(part)  # on the CPU it is the array's memory
            self._io.bind_ortvalue_input(name, shared)
            self._io.bind_ortvalue_output(f"{name}/out", shared)
        for name, matrix in adapter.items():
            self._io.bind_ortvalue_input(name, matrix)
        self._shape = (0, 0)

    def run(self, tokens: Array, ends: Sequence[int], rows: int) -> Array:
        """Run a step like ``_Caches.run``; ``ends`` are the lengths after the step."""
        if self._shape != (tokens.shape[1], rows):
            self._bind(tokens.shape, rows)
        self._tokens[:] = tokens
        self._last[:] = ends
        self._last -= 1
        self._total[()] = max(ends)
        self._session.run_with_iobinding(self._io)
        return self._logits.copy()

    def _bind(self, shape: tuple[int, ...], rows: int) -> None:
        texts, count = shape
        self._shape = (0, 0)
        self._tokens = np.empty(shape, np.int64)
        self._last = np.empty(texts, np.int32)
        self._total = np.empty((), np.int32)
        self._rows = np.array([-rows], np.int64)
        self._logits = np.empty((texts, rows, self._vocabulary), np.float32)
        feeds = {"tokens": self._tokens, "last_position": self._last, "total": self._total}
        for name, array in {**feeds, "from_row": self._rows}.items():
            self._io.bind_ortvalue_input(name, self._value(array))
        self._io.bind_ortvalue_output("logits", self._value(self._logits))
        self._shape = (count, rows)


class OrtDecoder:
    """Loaded decoder, a ``BatchRunner``. Runners of one ``another()`` share weights and lie side by side."""

    device = "CPU"
    adapter = ""

    def __init__(self, caches: _Caches, precision: str) -> None:
        self.precision, self.capacity, self.row_consistent = precision, caches.capacity, False
        self._caches, self._shape, self._place = caches, caches.shape, caches.take()

    @property
    def length(self) -> int:
        """Return the number of tokens in the cache."""
        return self._caches.lengths[self._place] or 0

    @length.setter
    def length(self, length: int) -> None:
        self._caches.lengths[self._place] = length

    def forward(self, tokens: Sequence[int], rows: int = 1) -> Array:
        check_step(tokens, rows, self.length, self.capacity, self._shape.vocabulary)
        start, length = 0, self.length
        last = max(0, len(tokens) - max(CHUNK, rows))
        try:
            while start < last:
                part = tokens[start : min(start + CHUNK, last)]
                self._run(part, 1)
                start += len(part)
            return self._run(tokens[start:], rows)
        except Exception as problem:  # onnxruntime raises a dozen classes that share no root but this one
            self.length = length
            raise EngineError(f"{engine_version()} failed to run: {problem}") from None

    def _run(self, tokens: Sequence[int], rows: int) -> Array:
        pad = len(tokens) % 2 if self.row_consistent else 0  # the last of odd rows has another kernel
        batch = np.array([[*tokens, *tokens[:pad]]], np.int64)
        logits: Array = self._caches.run(self._place, batch, rows + pad, self.adapter)[0]
        self.length += len(tokens)
        return logits[:rows]

    def forward_each(self, others: Sequence[OrtDecoder], tokens: Sequence[int]) -> Array:
        caches, runners = self._caches, [self, *others]
        for runner, token in zip(runners, tokens, strict=True):
            check_step([token], 1, runner.length, self.capacity, self._shape.vocabulary)
        places = [runner._place for runner in runners]
        if len(caches.lengths) % 2:
            caches.grow()
        first, last = min(places), max(places)
        if (last - first) % 2 == 0:  # the last of an odd number of rows would be multiplied by another kernel
            first, last = (first - 1, last) if first else (first, last + 1)
        # What lies between computes a token beyond its own, in the spare row at most, which nobody reads.
        batch = np.zeros((last - first + 1, 1), np.int64)
        batch[np.array(places) - first, 0] = tokens
        try:
            logits = caches.run(first, batch, 1, self.adapter)[:, 0]
        except Exception as problem:  # as in forward
            raise EngineError(f"{engine_version()} failed to run: {problem}") from None
        for runner in runners:
            runner.length += 1
        selected: Array = logits[np.array(places) - first]
        return selected

    def truncate(self, length: int) -> None:
        check_length(length, self.length)
        self.length = length

    def save(self) -> Array:
        return np.stack([part[self._place, :, : self.length] for part in self._caches.parts])

    def restore(self, saved: Array) -> None:
        tokens = check_saved(saved, self._shape, self.capacity)
        for part, saved_part in zip(self._caches.parts, saved, strict=True):
            part[self._place, :, :tokens] = saved_part
        self.length = tokens

    def another(self) -> OrtDecoder:
        return type(self)(self._caches, self.precision)

    def facts(self) -> dict[str, Json]:
        return {"providers": list(self._caches.session.get_providers())}

    def close(self) -> None:
        self._caches.lengths[self._place] = None
        del self._caches


class OrtAdapterDecoder(OrtDecoder):
    """Loaded decoder whose graph has inputs for adapters, an ``AdapterRunner``."""

    def __init__(self, caches: _Caches, precision: str) -> None:
        super().__init__(caches, precision)
        caches.load("", NO_MATRICES)

    def adapt(self, name: str, matrices: Matrices) -> None:
        self._caches.load(name, matrices)
        self.adapter, self.length = name, 0
