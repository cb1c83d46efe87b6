"""Run a language model on LiteRT. Device side: numpy and LiteRT.

The cache lies in the interpreter's own inputs, which it never overwrites; a run returns the keys and values
of its tokens, which are written there. One token is one run; a file may have a second program, which reads
several tokens of a prompt and returns no logits. It has its own inputs, so its cache follows the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.generate.device.decoder import (
    DecoderShape,
    check_capacity,
    check_length,
    check_saved,
    check_step,
)
from edgekit.tensor_spec import Array, Json
from edgekit_tflite.run import FILE, open_interpreter

WINDOW = "sliding_window"
"""The artifact's option: tokens that a token sees in a sliding layer, its own included."""
PROMPT = "prompt"
"""Signature of the program for prompts, and the artifact's option: how many tokens it reads in a run."""
WORTH = 0.125
"""Share of these tokens from which on a run is faster than one for each token."""
HIDDEN = np.float32(-1e9)
"""Added to the scores of what is not seen: less than any score, and its sums stay finite."""


def open_decoder(
    files: Mapping[str, Path], options: Mapping[str, Json], threads: int | None, capacity: int | None
) -> TfliteDecoder:
    """Load ``model.tflite``; arguments: see ``decoder_registry.open_decoder``.

    Raises:
        UsageError: ``capacity`` exceeds the positions of the file.
    """
    shape = DecoderShape.from_options(options)
    slots = check_capacity(capacity, shape)
    return TfliteDecoder(_LoadedInterpreter(files[FILE], options, shape, threads), slots)


class _Program:
    """Program of an interpreter, with a cache in its inputs.

    Args:
        window: Number of tokens that a token sees in a sliding layer. 0 means that no layer slides.
    """

    def __init__(self, interpreter: Any, signature: str, shape: DecoderShape, window: int) -> None:
        self._interpreter, self._wrapped = interpreter, interpreter._interpreter
        tensors = interpreter._get_full_signature_list()[signature]
        self._input_tensors, self._out_of = tensors["inputs"], tensors["outputs"]
        self._subgraph = self._wrapped.GetSubgraphIndexFromSignature(signature)
        if self._subgraph:
            self._wrapped.AllocateTensors(self._subgraph)
        self._window, self._context = window, shape.context
        self.names = [f"{kind}{layer}" for layer in range(shape.layers) for kind in ("key", "value")]

    def view(self, name: str) -> Array:
        """Return the memory of an input. Do not keep the view: the interpreter cannot run while it exists."""
        return self._memory(self._input_tensors[name])

    def run(self, tokens: Sequence[int], length: int) -> None:
        """Run tokens that follow ``length`` others, and put their keys and values into the cache. The
        program may have room for more tokens; the padding after them is not kept."""
        count = len(tokens)
        token, position = self.view("token"), self.view("position")
        token[0, :count], token[0, count:] = tokens, 0
        # Those of tokens that are not there must be some that the file has.
        position[:] = np.minimum(length + np.arange(position.size), self._context - 1)
        places = np.arange(self._context)
        _write_mask(self.view("mask"), places < length)
        if self._window:
            since = position[:, None] - self._window
            _write_mask(self.view("sliding_mask"), (places < length) & (places > since))
        self._wrapped.Invoke(self._subgraph)
        for name in self.names:
            new_values = self._memory(self._out_of[f"{name}/own"])
            self.view(name)[0, :, length : length + count] = new_values[0, :, :count]

    def logits(self) -> Array:
        result: Array = self._memory(self._out_of["logits"])[0].copy()
        return result

    def clear(self) -> None:
        """Zero the cache: masked values are multiplied too, and must be finite."""
        for name in self.names:
            self.view(name)[...] = 0

    def follow(self, other: _Program, start: int, end: int) -> None:
        if start < end:
            for name in self.names:
                self.view(name)[0, :, start:end] = other.view(name)[0, :, start:end]

    def _memory(self, tensor: int) -> Array:
        array: Array = self._wrapped.tensor(self._interpreter, tensor, self._subgraph)
        return array


class _LoadedInterpreter:
    """Interpreter whose inputs hold one of several caches at a time."""

    def __init__(
        self, path: Path, options: Mapping[str, Json], shape: DecoderShape, threads: int | None
    ) -> None:
        self.version, self.interpreter = open_interpreter(path, threads)
        self.shape, self.precision = shape, str(options["precision"])
        self._window, self._prompt_tokens = int(options.get(WINDOW, 0)), int(options.get(PROMPT, 0))
        self.main = _Program(self.interpreter, options["signature"], shape, self._window)
        self._prompt: _Program | None = None
        self.in_prompt = 0
        """Tokens of the cache that the program for prompts has too."""
        self.active: TfliteDecoder | None = None
        """Whose cache is in the inputs."""

    def read(self, tokens: Sequence[int], length: int) -> int:
        """Read leading tokens of a prompt that follows ``length`` others, without logits.

        Returns the number of tokens read: 0 if one run per token is faster.
        """
        count = min(len(tokens), self._prompt_tokens)
        if not count or count < WORTH * self._prompt_tokens:
            return 0
        with self._failures():
            if self._prompt is None:  # its weights take memory, and who is not asked to read needs none
                self._prompt = _Program(self.interpreter, PROMPT, self.shape, self._window)
                self._prompt.clear()
            self._prompt.follow(self.main, self.in_prompt, length)
            self._prompt.run(tokens[:count], length)
            self.main.follow(self._prompt, length, length + count)
        self.in_prompt = length + count
        return count

    def step(self, token: int, length: int) -> Array:
        with self._failures():
            self.main.run([token], length)
            return self.main.logits()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as problem:
            raise EngineError(f"{self.version} failed to run: {' '.join(str(problem).split())}") from None


class TfliteDecoder:
    """Loaded ``DecoderRunner``. Those of one ``another()`` share an interpreter: a switch copies a cache."""

    device = "CPU"

    def __init__(self, loaded: _LoadedInterpreter, capacity: int) -> None:
        self.precision, self.capacity, self.length, self.row_consistent = loaded.precision, capacity, 0, False
        self._loaded = loaded
        self._away: Array | None = None

    def forward(self, tokens: Sequence[int], rows: int = 1) -> Array:
        check_step(tokens, rows, self.length, self.capacity, self._loaded.shape.vocabulary)
        self._take_turn()
        parts, before, start = [], self.length, 0
        try:
            while start < len(tokens):
                count = self._loaded.read(tokens[start : len(tokens) - rows], self.length)
                if not count:
                    logits = self._loaded.step(tokens[start], self.length)
                    if start >= len(tokens) - rows:
                        parts.append(logits)
                    count = 1
                start += count
                self.length += count
        except EngineError:
            self._shorten(before)
            raise
        return np.concatenate(parts)

    def truncate(self, length: int) -> None:
        check_length(length, self.length)
        self._shorten(length)

    def _shorten(self, length: int) -> None:
        self.length = length
        if self._loaded.active is self:
            self._loaded.in_prompt = min(self._loaded.in_prompt, length)

    def save(self) -> Array:
        self._take_turn()
        main = self._loaded.main
        return np.stack([main.view(name)[0, :, : self.length] for name in main.names])

    def restore(self, saved: Array) -> None:
        tokens = check_saved(saved, self._loaded.shape, self.capacity)
        self._take_turn()
        main = self._loaded.main
        for part, name in zip(saved, main.names, strict=True):
            main.view(name)[0, :, :tokens] = part
        self.length, self._loaded.in_prompt = tokens, 0

    def _take_turn(self) -> None:
        holder = self._loaded.active
        if holder is self:
            return
        if holder is not None:
            holder._away = holder.save()
        self._loaded.active, self._loaded.in_prompt = self, 0
        if holder is None:
            self._loaded.main.clear()
        if self._away is not None:
            away, self._away = self._away, None
            self.restore(away[:, :, : self.length])  # it may have been cut meanwhile

    def another(self) -> TfliteDecoder:
        return TfliteDecoder(self._loaded, self.capacity)

    def facts(self) -> dict[str, Json]:
        operators: list[Any] = self._loaded.interpreter._get_ops_details()
        return {"delegate_partitions": sum(op["op_name"] == "DELEGATE" for op in operators)}

    def close(self) -> None:
        if self._loaded.active is self:
            self._loaded.active = None
        del self._loaded


def _write_mask(memory: Array, visible: Array) -> None:
    """Write a mask; ``visible``: [context], or [tokens, context], repeated for each head that shares keys."""
    added = np.atleast_2d(np.where(visible, np.float32(0), HIDDEN))
    memory[0, 0] = np.tile(added, (memory.shape[2] // len(added), 1))
