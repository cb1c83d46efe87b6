"""Several requests in one run, if that is faster on this device: measured once, then cached.

    with Session("model.edgekit") as one, Session("model-8.edgekit") as many:
        batching = Batching(one, many)          # some seconds, once per device
        requests = Requests(one, batching=batching)

The batch size is fixed when a model is built, so batches run on a second bundle of the same model, built with
``--shape x=8x3x224x224``. If the bundle has several shapes, the second one needs the same; a batch has
requests of one shape. The golden vectors are used to check that its rows are independent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np

from edgekit.errors import UsageError
from edgekit.runtime import local_timings
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.local_timings import median
from edgekit.runtime.predictor import SessionProtocol
from edgekit.runtime.session_state import Active
from edgekit.runtime.streaming.replica import variant_of
from edgekit.system import timings
from edgekit.tensor_spec import Array, TensorSpec, cut_to

ROUNDS, MEASURED_S = 15, 2.0
WORTH = 0.9
"""A batch is run if it takes at most this share of its requests' single runs: under load the gain is smaller
than in the measurement (a measured 1.18 x vanished)."""
LEAST_SNR_DB = 40.0
"""SNR of a row in a batch against the same input alone; below it the models differ, or rows are mixed."""

Feeds = Mapping[str, Array]


Sizes = tuple[tuple[int, ...], ...]
"""Shape of each input of a request, in the model's order."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Measured speed of batches at one shape.

    Attributes:
        batch_s: Time of a full batch, in seconds: stacking the rows, a run, splitting the outputs.
        ratio: Speedup of a full batch over single runs.
        min_requests: Number of requests from which a batch is faster than single runs; more than the batch
            size if never.
    """

    batch_s: float
    ratio: float
    min_requests: int


class Batching:
    """Two sessions on one model, with batch sizes 1 and N, and what batches gain at each shape.

    Args:
        one: Batch size 1: the first dimension of all inputs and outputs is 1.
        many: Batch size N, with as many threads, and the same shapes.

    Raises:
        UsageError: the models or their shapes differ, or rows depend on each other.
    """

    def __init__(self, one: SessionProtocol, many: SessionProtocol) -> None:
        self.size = _size(one, many)
        self._many = many
        self.batches = {
            tuple(spec.shape for spec in inputs): self._measured(one, inputs) for inputs, _ in one.shapes
        }
        self._names = [spec.name for spec in one.inputs]

    def _measured(self, one: SessionProtocol, inputs: Sequence[TensorSpec]) -> Batch:
        many = self._many
        key = timings.timing_key(
            timings.digest_of({"one": _artifact(one), "many": _artifact(many)}),
            f"{one.active.engine}, {many.active.engine}",
            one.threads,
            kind=f"batch of {'; '.join(map(str, inputs))}",
        )
        stored = timings.recall(key, {"one_ms": float})
        if stored is not None:
            one_ms, many_ms = float(stored["one_ms"]), float(stored["p50_ms"])
        else:
            _refuse_mixing(one, many, inputs, self.size)
            one_ms, many_ms = compared(one, self, inputs)
            timings.record(key, {"p50_ms": many_ms, "one_ms": one_ms, "size": self.size})
        ratio = self.size * one_ms / many_ms
        return Batch(many_ms / 1000, ratio, max(2, ceil(many_ms / (one_ms * WORTH))))

    @property
    def active(self) -> Active:
        """Return the active variant of ``many``."""
        return self._many.active

    @property
    def history(self) -> tuple[Fallback, ...]:
        """Return the last changes of the active variant of ``many``."""
        return self._many.history

    @property
    def pays(self) -> bool:
        """Return whether any number of requests of one shape is faster in a batch."""
        return any(batch.min_requests <= self.size for batch in self.batches.values())

    def batch_of(self, request: Feeds) -> Batch | None:
        """Return the speed of batches at a request's shape; None if they are never faster, or if the shape,
        of a range, was not measured."""
        batch = self.batches.get(tuple(request[name].shape for name in self._names))
        return None if batch is None or batch.min_requests > self.size else batch

    def run(self, requests: Sequence[Feeds]) -> list[dict[str, Array]]:
        """Run up to ``size`` requests of one shape in one batch; the arrays are the callers'.

        Raises: as ``Session.run``.
        """
        outputs = self._many.run(_stacked(requests, self.size))
        return [
            {name: array[index : index + 1].copy() for name, array in outputs.items()}
            for index in range(len(requests))
        ]

    def __repr__(self) -> str:
        texts = []
        for sizes, batch in self.batches.items():
            shape = f" at {', '.join('x'.join(map(str, size)) for size in sizes)}" * (len(self.batches) > 1)
            usage = f"from {batch.min_requests} requests on" if batch.min_requests <= self.size else "never"
            texts.append(f"{batch.ratio:.2f} x as fast{shape}; {usage}")
        return f"<Batching: {self.size} in one run, {', '.join(texts)}>"


def compared(one: SessionProtocol, batching: Batching, inputs: Sequence[TensorSpec]) -> tuple[float, float]:
    """Measure a run of ``one`` with these inputs and of a full batch, in milliseconds. Return the medians of
    interleaved rounds."""
    feeds = {spec.name: spec.zeros() for spec in inputs}
    turns: list[tuple[Callable[[], object], list[float]]] = []
    for run in (partial(one.run, feeds), partial(batching.run, [feeds] * batching.size)):
        run()  # warm-up
        turns.append((run, []))
    end_s = time.perf_counter() + MEASURED_S
    while len(turns[0][1]) < ROUNDS and (len(turns[0][1]) < 3 or time.perf_counter() < end_s):
        for turn, took_ms in turns:
            began_s = time.perf_counter()
            turn()
            took_ms.append(1000 * (time.perf_counter() - began_s))
    return median(turns[0][1]), median(turns[1][1])


def _size(one: SessionProtocol, many: SessionProtocol) -> int:
    if one.bundle.manifest["source"]["sha256"] != many.bundle.manifest["source"]["sha256"]:
        raise UsageError(f"{one.bundle.name} and {many.bundle.name} are not from the same model")
    if one.threads != many.threads:
        raise UsageError(f"both sessions must have the same threads, not {one.threads} and {many.threads}")
    single, several = ([(*inputs, *outputs) for inputs, outputs in s.shapes] for s in (one, many))
    sizes = {spec.shape[:1] for specs in several for spec in specs}
    if len(sizes) == 1 and (size := sizes.pop()) > (1,):
        rows = [tuple(spec._replace(shape=(1, *spec.shape[1:])) for spec in specs) for specs in several]
        if single == rows:
            return size[0]
    raise UsageError(
        f"{many.bundle.name} has no batches of {one.bundle.name}'s inputs and outputs: "
        f"{_texts(several)}, for {_texts(single)}; build it for these shapes"
    )


def _texts(shapes: Sequence[Sequence[TensorSpec]]) -> str:
    return " or ".join(", ".join(map(str, specs)) for specs in shapes)


def _artifact(session: SessionProtocol) -> str:
    return local_timings.artifact(session.bundle, variant_of(session, session.active.variant))


def _refuse_mixing(
    one: SessionProtocol, many: SessionProtocol, inputs: Sequence[TensorSpec], size: int
) -> None:
    """Check that each row of a mixed batch has the same outputs as in a run without the others."""
    random = np.random.default_rng(0)
    golden = many.bundle.golden
    whole = golden[0][0] if golden else {spec.name: spec.zeros() for spec in many.inputs}
    feeds = {spec.name: cut_to(whole[spec.name], (size, *spec.shape[1:])) for spec in inputs}
    rows = [
        {name: np.ascontiguousarray(array[index : index + 1]) for name, array in feeds.items()}
        for index in random.permutation(size)
    ]
    together = many.run(_stacked(rows, size))
    for index, row in enumerate(rows):
        for name, expected in one.run(row).items():
            noise = together[name][index : index + 1].astype(np.float64) - expected
            power = float(np.square(expected, dtype=np.float64).sum())
            if float(np.square(noise).sum()) > power * 10 ** (-LEAST_SNR_DB / 10):
                raise UsageError(
                    f"{many.bundle.name}: output {name} of a row in a batch differs from the same row alone: "
                    "rows depend on each other, "
                    f"or {many.active.variant} and {one.active.variant} differ too much"
                )


def _stacked(requests: Sequence[Feeds], size: int) -> dict[str, Array]:
    """Return the requests' inputs as rows; unused rows repeat the last one."""
    feeds = {}
    for name, row in requests[-1].items():
        feeds[name] = whole = np.empty((size, *row.shape[1:]), row.dtype)
        for index, request in enumerate(requests):
            whole[index] = request[name][0]
        whole[len(requests) :] = row
    return feeds
