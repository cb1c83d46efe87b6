"""Run a language model on LiteRT. Device side: numpy and LiteRT.

The cache lies in the interpreter's own inputs, which it never overwrites; a run gives the keys and values of
its token, and they are written there. One token is one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.target.decoder import DecoderShape, check_capacity, check_length, check_saved, check_step
from edgekit.tensors import Array, Json
from edgekit_tflite.run import FILE, open_interpreter

WINDOW = "sliding_window"
"""The artifact's option: tokens that a token sees in a sliding layer, its own included."""
HIDDEN = np.float32(-1e9)
"""Added to the scores of what is not seen: less than any score, and its sums stay finite."""


def open_decoder(
    files: Mapping[str, Path], options: Mapping[str, Json], threads: int | None, capacity: int | None
) -> TfliteDecoder:
    """Load ``model.tflite``; arguments as ``registry.open_decoder``.

    Raises:
        MissingDependency: the engine is not installed.
        UsageError: the file has no positions for so many tokens.
        EngineError: the engine refused the file.
    """
    shape = DecoderShape.of(options)
    room = check_capacity(capacity, shape)
    return TfliteDecoder(_Loaded(files[FILE], options, shape, threads), room)


class _Loaded:
    """An interpreter and the indices of its tensors; several caches take turns in its inputs."""

    def __init__(
        self, path: Path, options: Mapping[str, Json], shape: DecoderShape, threads: int | None
    ) -> None:
        self.version, self.interpreter = open_interpreter(path, threads)
        signature = self.interpreter._get_full_signature_list()[options["signature"]]
        self.into, self.out_of = signature["inputs"], signature["outputs"]
        self.shape, self.precision = shape, str(options["precision"])
        self.window = int(options.get(WINDOW, 0))
        self.names = [f"{kind}{layer}" for layer in range(shape.layers) for kind in ("key", "value")]
        self.held: TfliteDecoder | None = None
        """Whose cache is in the inputs."""

    def view(self, name: str) -> Array:
        """The memory of an input. Nobody may keep it: the interpreter does not run meanwhile."""
        array: Array = self.interpreter.tensor(self.into[name])()
        return array

    def step(self, token: int, length: int) -> Array:
        """Run a token that follows ``length`` others, and put its keys and values into the cache."""
        interpreter, into, context = self.interpreter, self.into, self.shape.context
        interpreter.set_tensor(into["token"], np.array([[token]], np.int32))
        interpreter.set_tensor(into["position"], np.array([length], np.int32))
        places = np.arange(context)
        _write_mask(self.view("mask"), places < length)
        if self.window:
            _write_mask(self.view("sliding_mask"), (places < length) & (places > length - self.window))
        try:
            interpreter.invoke()
        except (RuntimeError, ValueError) as problem:
            raise EngineError(f"{self.version} failed to run: {' '.join(str(problem).split())}") from None
        for name in self.names:
            own = interpreter.tensor(self.out_of[f"{name}/own"])()
            self.view(name)[0, :, length] = own[0, :, 0]
        logits: Array = interpreter.get_tensor(self.out_of["logits"])[0]
        return logits


class TfliteDecoder:
    """A loaded decoder: a ``DecoderRunner``. Runners of one ``another()`` take turns in one interpreter: who
    comes back has its cache copied in."""

    device = "CPU"

    def __init__(self, loaded: _Loaded, capacity: int) -> None:
        self.precision, self.capacity, self.length, self.row_consistent = loaded.precision, capacity, 0, False
        self._loaded = loaded
        self._away: Array | None = None

    def forward(self, tokens: Sequence[int], rows: int = 1) -> Array:
        check_step(tokens, rows, self.length, self.capacity, self._loaded.shape.vocabulary)
        self._take_turn()
        found, before = [], self.length
        try:
            for index, token in enumerate(tokens):
                logits = self._loaded.step(token, self.length)
                self.length += 1
                if index >= len(tokens) - rows:
                    found.append(logits)
        except EngineError:
            self.length = before
            raise
        return np.concatenate(found)

    def truncate(self, length: int) -> None:
        check_length(length, self.length)
        self.length = length

    def save(self) -> Array:
        self._take_turn()
        parts = [self._loaded.view(name)[0, :, : self.length].copy() for name in self._loaded.names]
        return np.stack(parts)

    def restore(self, saved: Array) -> None:
        tokens = check_saved(saved, self._loaded.shape, self.capacity)
        self._take_turn()
        for part, name in zip(saved, self._loaded.names, strict=True):
            self._loaded.view(name)[0, :, :tokens] = part
        self.length = tokens

    def _take_turn(self) -> None:
        holder = self._loaded.held
        if holder is self:
            return
        if holder is not None:
            holder._away = holder.save()
        self._loaded.held = self
        for name in self._loaded.names if holder is None else ():
            self._loaded.view(name)[...] = 0  # what is hidden by the mask is multiplied all the same
        if self._away is not None:
            away, self._away = self._away, None
            self.restore(away)

    def another(self) -> TfliteDecoder:
        return TfliteDecoder(self._loaded, self.capacity)

    def facts(self) -> dict[str, Json]:
        operators: list[Any] = self._loaded.interpreter._get_ops_details()
        return {"delegate_partitions": sum(op["op_name"] == "DELEGATE" for op in operators)}

    def close(self) -> None:
        if self._loaded.held is self:
            self._loaded.held = None
        del self._loaded


def _write_mask(memory: Array, seen: Array) -> None:
    memory[0, 0, 0] = np.where(seen, np.float32(0), HIDDEN)
