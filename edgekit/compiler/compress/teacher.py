"""The teacher of a distillation: a model on ONNX Runtime, whatever operators it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.reference import Reference
from edgekit.tensor_spec import Array

KEPT_BYTES = 512 * 2**20
"""Answers to samples that are not changed are kept up to this size."""


class Teacher:
    """Answers batches, one sample after the other.

    Args:
        values: Values besides the outputs.
        threads: Number of ONNX Runtime's threads.
    """

    def __init__(self, model: ir.Model, values: Sequence[str] = (), threads: int = 1) -> None:
        outputs = [str(value.name) for value in model.graph.outputs]
        inner = [name for name in dict.fromkeys(values) if name not in outputs]
        self._reference = Reference(model, threads=threads, intermediate=inner, optimize=True)
        self._cache: dict[int, Mapping[str, Array]] = {}
        self._free = KEPT_BYTES

    def answers(self, batch: Mapping[str, Array], keys: Sequence[int] | None = None) -> dict[str, Array]:
        """Compute outputs and other requested values ``[batch, *shape]`` by name.

        Args:
            batch: ``[batch, *shape]`` by input name.
            keys: A number of each sample whose answer may be kept: the same again for the same number.
        """
        count = len(next(iter(batch.values())))
        sample_outputs = []
        for index in range(count):
            key = None if keys is None else int(keys[index])
            answer = None if key is None else self._cache.get(key)
            if answer is None:
                answer = self._reference.run({name: array[index] for name, array in batch.items()})
                size = sum(array.nbytes for array in answer.values())
                if key is not None and size <= self._free:
                    self._cache[key] = answer
                    self._free -= size
            sample_outputs.append(answer)
        return {name: np.stack([answer[name] for answer in sample_outputs]) for name in sample_outputs[0]}
