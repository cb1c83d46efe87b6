"""Run a language model on OpenVINO's CPU plugin. Device side: numpy and openvino.

The cache is state of the infer request, which only grows: cutting it means copying all of it. So dropped
tokens stay in the state and the attention mask hides them, until there are too many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.generate.device.adapter import NO_MATRICES, UNKNOWN, Matrices, adapter_inputs
from edgekit.generate.device.adapter import OPTION as ADAPTERS
from edgekit.generate.device.decoder import (
    DecoderShape,
    check_capacity,
    check_length,
    check_saved,
    check_step,
)
from edgekit.system.cpu import instruction_sets
from edgekit.system.interrupts import kept_signal_stack
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Array, Json
from edgekit_openvino.run import BF16, BIN_FILE, PRECISION_NAMES, XML_FILE, engine_version, openvino, plain

WINDOW = "sliding_window"
"""The artifact's option: tokens that a token sees in a sliding layer, its own included."""
CHUNK = 512
"""Tokens of one run: a longer text is appended in parts, as the memory of a run grows with their square."""
HIDDEN_LIMIT = 128
"""Dropped tokens in the state from which on it is copied without them."""
HIDDEN = -1
"""Position of a dropped token."""
SETTINGS = {
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",
    "ENABLE_CPU_PINNING": "NO",  # see run.compiled_model
}

ROUNDING = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
"""Setting: so many inputs of a product with integer weights are rounded to int8 by one scale. 0 means none.
32 takes half the time of 0 with VNNI. But the last bits of attention, which differ with the number of rows,
then decide how inputs are rounded: logits of SmolLM2-135M in int8 differed by up to .9."""
ARITHMETIC = ("INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION")
"""Settings: what floats are computed in, and the cache is kept in. Where inputs of products are rounded and
the processor computes in bf16, attention does so too: prompts of 512 tokens take 0.6 of the time."""


def state_names(layers: int) -> list[str]:
    """Return the names of the variables: keys, then values, of each layer."""
    return [f"{kind}{layer}" for layer in range(layers) for kind in ("key", "value")]


def open_decoder(
    files: Mapping[str, Path], options: Mapping[str, Json], threads: int | None, capacity: int | None
) -> OpenvinoDecoder:
    """Load ``model.xml`` with ``model.bin``; arguments: see ``decoder_registry.open_decoder``.

    Raises:
        UsageError: ``capacity`` exceeds the positions of the file.
    """
    shape = DecoderShape.from_options(options)
    slots = check_capacity(capacity, shape)
    loaded = _CompiledModels(files, options, shape, threads)
    return (OpenvinoAdapterDecoder if loaded.sites else OpenvinoDecoder)(loaded, slots)


class _CompiledModels:
    """Files and the models compiled from them: one that rounds inputs of products, one that does not."""

    def __init__(
        self, files: Mapping[str, Path], options: Mapping[str, Json], shape: DecoderShape, threads: int | None
    ) -> None:
        self.files, self.shape, self.threads = files, shape, threads
        self.precision, self.window = str(options["precision"]), int(options.get(WINDOW, 0))
        self.rounds = not precision_of(self.precision).is_float
        self.sites: Mapping[str, Json] = options.get(ADAPTERS, {})
        self.adapters: dict[str, dict[str, Any]] = {}
        self._compiled: dict[bool, Any] = {}

    def load(self, name: str, matrices: Matrices) -> None:
        if name not in self.adapters:
            inputs = adapter_inputs(self.sites, matrices)
            tensor = openvino().Tensor
            self.adapters[name] = {site: tensor(array, shared_memory=True) for site, array in inputs.items()}

    def compiled(self, exact: bool) -> Any:
        """Return the compiled model; with ``exact``, inputs of products are not rounded."""
        if exact not in self._compiled:
            rounds = self.rounds and not exact
            floats = "bf16" if rounds and set(instruction_sets()) & set(BF16) else "f32"
            settings = {**SETTINGS, **dict.fromkeys(ARITHMETIC, floats), ROUNDING: "32" if rounds else "0"}
            if self.threads is not None:
                settings["INFERENCE_NUM_THREADS"] = str(self.threads)
            path, core = self.files[XML_FILE], openvino().Core()
            try:
                read = core.read_model(str(path), str(self.files[BIN_FILE]))
                with kept_signal_stack():
                    self._compiled[exact] = core.compile_model(read, "CPU", settings)
            except RuntimeError as problem:
                raise EngineError(f"{engine_version()} did not load {path}: {plain(problem)}") from None
        return self._compiled[exact]


class OpenvinoDecoder:
    """A compiled decoder: a ``DecoderRunner``."""

    device = "CPU"

    def __init__(self, loaded: _CompiledModels, capacity: int) -> None:
        self.precision, self.capacity, self.length = loaded.precision, capacity, 0
        self._loaded, self._shape, self._window = loaded, loaded.shape, loaded.window
        self._row_consistent = False
        self._first = np.zeros(1, np.int32)
        self._open(exact=False)
        self._places = np.zeros(0, np.int64)
        """Position of each token in the state, HIDDEN if it was dropped."""

    @property
    def row_consistent(self) -> bool:
        """Return whether logits are independent of a call's length; setting it may compile a model."""
        return self._row_consistent

    @row_consistent.setter
    def row_consistent(self, enabled: bool) -> None:
        if enabled != self._row_consistent and self._loaded.rounds:
            saved = self.save()
            self._open(exact=enabled)
            self.restore(saved)
        self._row_consistent = enabled

    def _open(self, *, exact: bool) -> None:
        self._compiled = self._loaded.compiled(exact)
        self._request = self._compiled.create_infer_request()
        self._states = {state.name: state for state in self._request.query_state()}

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
        positions = np.arange(self.length, self.length + len(tokens))
        places = np.concatenate([self._places, positions])
        distance = positions[:, None] - places
        visible = (places != HIDDEN) & (distance >= 0)
        feeds = {
            "tokens": np.array([tokens], np.int64),
            "from_row": np.array([-rows], np.int64),
            "positions": positions,
            "beam_idx": self._first,
            "mask": _as_mask(visible),
        }
        if self._window:
            feeds["sliding_mask"] = _as_mask(visible & (distance < self._window))
        logits: Array = self._request.infer(feeds)["logits"][0].copy()
        self._places = places
        self.length += len(tokens)
        return logits

    def _after_failure(self, length: int) -> None:
        """Go back to ``length`` tokens; the engine's state shows how many it has appended."""
        count = next(iter(self._states.values())).state.shape[2]
        self._places = np.concatenate([self._places, np.full(count, HIDDEN)])[:count]
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
        shape, visible = self._shape, self._places != HIDDEN
        saved = np.empty((2 * shape.layers, shape.kv_heads, self.length, shape.head_dim), np.float32)
        if self.length:
            for index, name in enumerate(state_names(shape.layers)):
                saved[index] = self._states[name].state.data[0][:, visible]
        return saved

    def restore(self, saved: Array) -> None:
        tokens = check_saved(saved, self._shape, self.capacity)
        self._request.reset_state()
        if tokens:
            for index, name in enumerate(state_names(self._shape.layers)):
                self._states[name].state = openvino().Tensor(np.ascontiguousarray(saved[index : index + 1]))
        self.length, self._places = tokens, np.arange(tokens)

    def another(self) -> OpenvinoDecoder:
        other = type(self)(self._loaded, self.capacity)
        other.row_consistent = self._row_consistent
        return other

    def facts(self) -> dict[str, Json]:
        hint = self._compiled.get_property(ARITHMETIC[0]).get_type_name()
        return {
            "threads": int(self._compiled.get_property("INFERENCE_NUM_THREADS")),
            "arithmetic": PRECISION_NAMES.get(hint, hint),
            "hidden_tokens": len(self._places) - self.length,
        }

    def close(self) -> None:
        self._states = {}
        del self._request, self._compiled, self._loaded


class OpenvinoAdapterDecoder(OpenvinoDecoder):
    """A compiled decoder whose model has inputs for adapters, an ``AdapterRunner``."""

    adapter = ""

    def _open(self, *, exact: bool) -> None:
        super()._open(exact=exact)
        self._loaded.load("", NO_MATRICES)
        self._set_inputs(self.adapter)

    def _set_inputs(self, adapter: str) -> None:
        for name, tensor in self._loaded.adapters.get(adapter, {}).items():
            self._request.set_tensor(name, tensor)

    def adapt(self, name: str, matrices: Matrices) -> None:
        self._loaded.load(name, matrices)
        self.truncate(0)
        self.adapter = UNKNOWN
        self._set_inputs(name)
        self.adapter = name


def _as_mask(visible: Array) -> Array:
    """Return a mask, float32 [1, 1, tokens, total]: 0 where a token sees another, -inf elsewhere."""
    mask: Array = np.where(visible, np.float32(0), np.float32(-np.inf))[None, None]
    return mask
