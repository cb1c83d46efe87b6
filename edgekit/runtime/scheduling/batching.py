"""Several requests in one run, where that pays on this device: measured, then remembered.

    with Session("model.edgekit") as one, Session("model-8.edgekit") as many:
        batching = Batching(one, many)          # some seconds, once a device
        requests = Requests(one, batching=batching)

A model has a batch dimension or it does not: what is batched is a bundle of the same model, built with
``--shape x=8x3x224x224``. That its rows do not depend on each other is checked with the golden vectors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import UsageError
from edgekit.runtime.loading import local_timings
from edgekit.runtime.loading.local_timings import median
from edgekit.runtime.streaming.replica import variant_of
from edgekit.system import timings
from edgekit.tensors import Array, TensorSpec

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol

ROUNDS, MEASURED_S = 15, 2.0
WORTH = 0.9
"""A batch is run where it takes at most so much of its requests' runs one by one: what it gains is less
among busy callers than alone (measured: of 1.18 x nothing was left)."""
LEAST_SNR_DB = 40.0
"""Of a row's answer against the same input's alone: what is below is another model, or rows that mix."""

Feeds = Mapping[str, Array]


class Batching:
    """Two sessions on one model, of one row and of several, and from how many requests on a batch pays.

    Args:
        one: Answers one request; all its inputs and outputs have a first dimension of 1.
        many: The same with a first dimension of N, on as many threads.

    Attributes:
        size: N.
        least: Requests from which on a batch is faster than as many runs of ``one``. More than ``size``:
            never.
        batch_s: What a batch takes: putting the rows together, a run of ``many``, taking them apart.
        ratio: How much faster a full batch is.

    Raises:
        UsageError: the two are not one model, or its rows depend on each other.
    """

    def __init__(self, one: SessionProtocol, many: SessionProtocol) -> None:
        self.size = _size(one, many)
        self._many = many
        key = timings.timing_key(
            timings.digest_of({"one": _artifact(one), "many": _artifact(many)}),
            f"{one.active.engine}, {many.active.engine}",
            one.threads,
            kind="batch",
        )
        known = timings.recall(key)
        one_ms = timings.milliseconds_of({"p50_ms": (known or {}).get("one_ms")})
        if known is not None and one_ms is not None:
            many_ms = float(known["p50_ms"])
        else:
            _refuse_mixing(one, many, self.size)
            one_ms, many_ms = compared(one, self)
            timings.record(key, {"p50_ms": many_ms, "one_ms": one_ms, "size": self.size})
        self.batch_s = many_ms / 1000
        self.ratio = self.size * one_ms / many_ms
        self.least = max(2, ceil(many_ms / (one_ms * WORTH)))

    @property
    def pays(self) -> bool:
        """Whether some number of requests is faster together."""
        return self.least <= self.size

    def run(self, requests: Sequence[Feeds]) -> list[dict[str, Array]]:
        """Answer up to ``size`` requests by one run; the arrays are the callers'.

        Raises: as ``Session.run``.
        """
        outputs = self._many.run(_stacked(requests, self._many.inputs))
        return [
            {name: array[place : place + 1].copy() for name, array in outputs.items()}
            for place in range(len(requests))
        ]

    def __repr__(self) -> str:
        told = f"from {self.least} requests on" if self.pays else "never"
        return f"<Batching: {self.size} in one run, {self.ratio:.2f} x as fast; {told}>"


def compared(one: SessionProtocol, batching: Batching) -> tuple[float, float]:
    """Milliseconds of a run of ``one`` and of a full batch; medians of rounds in turns."""
    feeds = {spec.name: spec.zeros() for spec in one.inputs}
    turns: list[tuple[Callable[[], object], list[float]]] = []
    for run in (partial(one.run, feeds), partial(batching.run, [feeds] * batching.size)):
        run()  # the first is slower than all others
        turns.append((run, []))
    end_s = time.perf_counter() + MEASURED_S
    while len(turns[0][1]) < ROUNDS and (len(turns[0][1]) < 3 or time.perf_counter() < end_s):
        for turn, took_ms in turns:
            began_s = time.perf_counter()
            turn()
            took_ms.append(1000 * (time.perf_counter() - began_s))
    return median(turns[0][1]), median(turns[1][1])


def _size(one: SessionProtocol, many: SessionProtocol) -> int:
    """Rows of a batch, of two sessions that fit."""
    if one.bundle.manifest["source"]["sha256"] != many.bundle.manifest["source"]["sha256"]:
        raise UsageError(f"{one.bundle.name} and {many.bundle.name} are not of the same model")
    if one.threads != many.threads:
        raise UsageError(f"both sessions must have as many threads, not {one.threads} and {many.threads}")
    single, several = (*one.inputs, *one.outputs), (*many.inputs, *many.outputs)
    sizes = {spec.shape[:1] for spec in several}
    if len(single) == len(several) and len(sizes) == 1 and (size := sizes.pop()) > (1,):
        rows = [(spec.name, spec.dtype, (1, *spec.shape[1:])) for spec in several]
        if [(spec.name, spec.dtype, spec.shape) for spec in single] == rows:
            return size[0]
    raise UsageError(
        f"{many.bundle.name} has no batches of {one.bundle.name}'s inputs and outputs: "
        f"{', '.join(map(str, several))}, for {', '.join(map(str, single))}; build it with --shape"
    )


def _artifact(session: SessionProtocol) -> str:
    return local_timings.artifact(session.bundle, variant_of(session, session.active.variant))


def _refuse_mixing(one: SessionProtocol, many: SessionProtocol, size: int) -> None:
    """Each row of a batch of different rows must have the answer that it has alone."""
    random = np.random.default_rng(0)
    golden = many.bundle.golden
    feeds = golden[0][0] if golden else {spec.name: spec.zeros() for spec in many.inputs}
    rows = [
        {name: np.ascontiguousarray(array[place : place + 1]) for name, array in feeds.items()}
        for place in random.permutation(size)
    ]
    together = many.run(_stacked(rows, many.inputs))
    for place, row in enumerate(rows):
        for name, alone in one.run(row).items():
            noise = together[name][place : place + 1].astype(np.float64) - alone
            power = float(np.square(alone, dtype=np.float64).sum())
            if float(np.square(noise).sum()) > power * 10 ** (-LEAST_SNR_DB / 10):
                raise UsageError(
                    f"{many.bundle.name}: output {name} of a row is another one than alone: rows that depend "
                    f"on each other, or {many.active.variant} and {one.active.variant} differ too much"
                )


def _stacked(requests: Sequence[Feeds], inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """The requests' inputs as rows; what is left of the batch is the last one again."""
    feeds = {}
    for spec in inputs:
        feeds[spec.name] = whole = np.empty(spec.shape, np.dtype(spec.dtype))
        for place, request in enumerate(requests):
            whole[place] = request[spec.name][0]
        whole[len(requests) :] = requests[-1][spec.name]
    return feeds
