"""Run a language model on OpenVINO's CPU plugin. Device side: numpy and openvino.

The cache is state of the infer request, which only grows: to cut it means to copy all of it. So tokens that
are dropped stay there and are hidden by the attention mask, until there are too many of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.target.decoder import DecoderShape, check_capacity, check_length, check_saved, check_step
from edgekit.tensors import Array, Json
from edgekit_openvino.run import BIN_FILE, XML_FILE, engine_version, openvino, plain

WINDOW = "sliding_window"
"""The artifact's option: tokens that a token sees in a sliding layer, its own included."""
CHUNK = 512
"""Tokens of one run: a longer text is appended in parts, as the memory of a run grows with their square."""
HIDDEN_LIMIT = 128
"""Dropped tokens in the state from which on it is copied without them."""
HIDDEN = -1
"""Position of a dropped token."""
SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    # Inputs of products with integer weights are rounded to int8, block by block; 0 would be exact, and twice
    # as slow on a processor with VNNI. Products with float zero points are computed exactly either way.
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "32",
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",
    "ENABLE_CPU_PINNING": "NO",  # see run.compiled_model
}


def state_names(layers: int) -> list[str]:
    """Names of the variables: keys, then values, of each layer."""
    return [f"{kind}{layer}" for layer in range(layers) for kind in ("key", "value")]


def open_decoder(
    files: Mapping[str, Path], options: Mapping[str, Json], threads: int | None, capacity: int | None
) -> OpenvinoDecoder:
    """Load ``model.xml`` with ``model.bin``; arguments as ``registry.open_decoder``.

    Raises:
        MissingDependency: openvino is not installed.
        UsageError: the file has no positions for so many tokens.
        EngineError: OpenVINO refused the model.
    """
    shape = DecoderShape.of(options)
    room, path, core = check_capacity(capacity, shape), files[XML_FILE], openvino().Core()
    settings = SETTINGS if threads is None else {**SETTINGS, "INFERENCE_NUM_THREADS": str(threads)}
    try:
        compiled = core.compile_model(core.read_model(str(path), str(files[BIN_FILE])), "CPU", settings)
        window = int(options.get(WINDOW, 0))
        return OpenvinoDecoder(compiled, shape, str(options["precision"]), room, window)
    except RuntimeError as problem:
        raise EngineError(f"{engine_version()} did not load {path}: {plain(problem)}") from None


class OpenvinoDecoder:
    """A compiled decoder: a ``DecoderRunner``."""

    device = "CPU"

    def __init__(
        self, compiled: Any, shape: DecoderShape, precision: str, capacity: int, window: int
    ) -> None:
        self.precision, self.capacity, self.length, self.row_consistent = precision, capacity, 0, False
        self._compiled, self._shape, self._window = compiled, shape, window
        self._request = compiled.create_infer_request()
        self._states = {state.name: state for state in self._request.query_state()}
        self._first = np.zeros(1, np.int32)
        self._places = np.zeros(0, np.int64)
        """Position of each token in the state, HIDDEN where it was dropped."""

    def forward(self, tokens: Sequence[int], rows: int = 1) -> Array:
        check_step(tokens, rows, self.length, self.capacity, self._shape.vocabulary)
        if len(self._places) - self.length > HIDDEN_LIMIT:
            self.restore(self.save())
        start, length = 0, self.length
        last = max(0, len(tokens) - max(CHUNK, rows))
        try:
            while start < last:
                part = tokens[start : min(start + CHUNK, last)]
                self._run(part, 1)
                start += len(part)
            return self._run(tokens[start:], rows)
        except RuntimeError as problem:
            self._after_failure(length)
            raise EngineError(f"{engine_version()} failed to run: {plain(problem)}") from None

    def _run(self, tokens: Sequence[int], rows: int) -> Array:
        padded = len(tokens) == 1 and self.row_consistent
        row = np.array([[*tokens, *tokens] if padded else tokens], np.int64)
        # The padding is hidden from the tokens that follow; it never sees itself as one of the text.
        own = np.arange(self.length, self.length + row.shape[1])
        positions = np.minimum(own, self._shape.context - 1)
        places = np.concatenate([self._places, own])
        distance = own[:, None] - places
        seen = (places != HIDDEN) & (distance >= 0)
        feeds = {
            "tokens": row,
            "from_row": np.array([-2 if padded else -rows], np.int64),
            "positions": positions,
            "beam_idx": self._first,
            "mask": _as_mask(seen),
        }
        if self._window:
            feeds["sliding_mask"] = _as_mask(seen & (distance < self._window))
        logits: Array = self._request.infer(feeds)["logits"][0].copy()
        if padded:
            places[-1], logits = HIDDEN, logits[:1]
        self._places = places
        self.length += len(tokens)
        return logits

    def _after_failure(self, length: int) -> None:
        """Back to ``length`` tokens: how many the engine has appended is seen in its state."""
        held = next(iter(self._states.values())).state.shape[2]
        self._places = np.concatenate([self._places, np.full(held, HIDDEN)])[:held]
        self.length = max(length, self.length)
        self.truncate(length)

    def truncate(self, length: int) -> None:
        check_length(length, self.length)
        self.length = length
        if length:
            self._places[self._places >= length] = HIDDEN
        else:
            self._request.reset_state()
            self._places = np.zeros(0, np.int64)

    def save(self) -> Array:
        shape, kept = self._shape, self._places != HIDDEN
        saved = np.empty((2 * shape.layers, shape.kv_heads, self.length, shape.head_dim), np.float32)
        if self.length:
            for index, name in enumerate(state_names(shape.layers)):
                saved[index] = self._states[name].state.data[0][:, kept]
        return saved

    def restore(self, saved: Array) -> None:
        tokens = check_saved(saved, self._shape, self.capacity)
        self._request.reset_state()
        if tokens:
            for index, name in enumerate(state_names(self._shape.layers)):
                self._states[name].state = openvino().Tensor(np.ascontiguousarray(saved[index : index + 1]))
        self.length, self._places = tokens, np.arange(tokens)

    def another(self) -> OpenvinoDecoder:
        return OpenvinoDecoder(self._compiled, self._shape, self.precision, self.capacity, self._window)

    def facts(self) -> dict[str, Json]:
        return {
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "hidden_tokens": len(self._places) - self.length,
        }

    def close(self) -> None:
        self._states = {}
        del self._request, self._compiled


def _as_mask(seen: Array) -> Array:
    """float32 [1, 1, tokens, total]: 0 where a token sees another, -inf where it does not."""
    mask: Array = np.where(seen, np.float32(0), np.float32(-np.inf))[None, None]
    return mask
