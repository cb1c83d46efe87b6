"""Run a language model on ONNX Runtime. Device side: numpy and onnxruntime.

One buffer holds the cache of all layers. GroupQueryAttention extends it in place, so nothing is copied from
step to step, and a shorter cache is a smaller number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.target.decoder import DecoderShape, check_capacity, check_length, check_saved, check_step
from edgekit.tensors import Array, Json
from edgekit_ort.run import MODEL_FILE, engine_version, open_session

DATA_FILE = "model.data"
CHUNK = 512
"""Tokens of one run: a longer text is appended in parts, as the memory of a run grows with their square."""
WINDOW = "sliding_window"
"""The artifact's option: tokens that a token sees in a sliding layer, its own included."""
SLIDES_SINCE = (1, 24)
"""GroupQueryAttention of 1.23.2 sees other tokens in a window than 1.24.4 and 1.32, which are right."""
SPARE = 1
"""Rows of the buffer beyond its capacity, for the token that one row is padded with."""


def open_decoder(
    files: Mapping[str, Path], options: Mapping[str, Json], threads: int | None, capacity: int | None
) -> OrtDecoder:
    """Load ``model.onnx`` with ``model.data`` beside it; arguments as ``registry.open_decoder``.

    Raises:
        MissingDependency: onnxruntime is not installed.
        UsageError: the file has no positions for so many tokens.
        EngineError: ONNX Runtime refused the model.
    """
    shape = DecoderShape.of(options)
    room, path = check_capacity(capacity, shape), files[MODEL_FILE]
    version, window = engine_version(), int(options.get(WINDOW, 0))
    major, minor = version.rpartition(" ")[2].split(".")[:2]
    if 0 < window < room and (int(major), int(minor)) < SLIDES_SINCE:
        raise EngineError(
            f"{version} computes a sliding window of {window} tokens wrongly, and the cache holds {room}:"
            " install 1.24 or newer, or open it with a smaller capacity"
        )
    try:
        session = open_session(path, threads)
    except EngineError as problem:
        raise EngineError(f"{engine_version()} did not load {path}: {problem}") from None
    return OrtDecoder(session, shape, str(options["precision"]), room)


class OrtDecoder:
    """A loaded decoder: a ``DecoderRunner``."""

    device = "CPU"

    def __init__(self, session: Any, shape: DecoderShape, precision: str, capacity: int) -> None:
        self.precision, self.capacity, self.length, self.row_consistent = precision, capacity, 0, False
        self._session, self._shape = session, shape
        # Zeros, which take no memory until they are written.
        size = (2 * shape.layers, 1, shape.kv_heads, capacity + SPARE, shape.head_dim)
        self._cache = np.zeros(size, np.dtype(shape.cache))
        self._binding = session.io_binding()
        value = onnxruntime("running an ONNX model", "ort").OrtValue.ortvalue_from_numpy
        self._values = [value(part) for part in self._cache]  # on the CPU they share the array's memory
        for index, part in enumerate(self._values):
            name = f"{'value' if index % 2 else 'key'}{index // 2}"
            self._binding.bind_ortvalue_input(name, part)
            self._binding.bind_ortvalue_output(f"{name}/out", part)
        self._binding.bind_output("logits", "cpu")
        self._logits = 2 * shape.layers

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
        count = len(tokens)
        padded = count == 1 and self.row_consistent
        row = np.array([[*tokens, *tokens] if padded else tokens], np.int64)
        total = self.length + row.shape[1]
        binding = self._binding
        binding.bind_cpu_input("tokens", row)
        binding.bind_cpu_input("from_row", np.array([-2 if padded else -rows], np.int64))
        binding.bind_cpu_input("last_position", np.array([total - 1], np.int32))
        binding.bind_cpu_input("total", np.array(total, np.int32))
        binding.bind_output("logits", "cpu")  # anew: it would keep the shape of the last run
        self._session.run_with_iobinding(binding)
        logits: Array = binding.get_outputs()[self._logits].numpy()[0]
        self.length += count
        return logits[:1] if padded else logits

    def truncate(self, length: int) -> None:
        check_length(length, self.length)
        self.length = length

    def save(self) -> Array:
        copied: Array = self._cache[:, 0, :, : self.length].copy()
        return copied

    def restore(self, saved: Array) -> None:
        tokens = check_saved(saved, self._shape, self.capacity)
        self._cache[:, 0, :, :tokens] = saved
        self.length = tokens

    def another(self) -> OrtDecoder:
        return OrtDecoder(self._session, self._shape, self.precision, self.capacity)

    def facts(self) -> dict[str, Json]:
        return {"providers": list(self._session.get_providers())}

    def close(self) -> None:
        del self._binding, self._values, self._session, self._cache
