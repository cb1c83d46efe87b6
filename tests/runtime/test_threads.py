"""One session for many threads: each gets the answer of its own request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from edgekit.runtime import Session
from edgekit.target import Runner
from edgekit.tensor_spec import Array, Json
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle

THREADS, RUNS = 8, 25


class OneRequestAtATime:
    """A real runner behind tensors of its own, as LiteRT's and OpenVINO's are: filled, run, read."""

    def __init__(self, runner: Runner) -> None:
        self.device, self.precision = runner.device, runner.precision
        self._runner = runner
        self._filled: Mapping[str, Array] = {}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self._filled = feeds
        time.sleep(0.0005)  # another thread's turn
        return self._runner.run(self._filled)

    def facts(self) -> dict[str, Json]:
        return self._runner.facts()

    def close(self) -> None:
        self._runner.close()


@pytest.fixture(params=[None, 10_000.0], ids=["plain", "deadline"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    bundle = ort_bundle(good=onnx_bytes(DOUBLES))
    with Session(bundle, threads=1, deadline_ms=request.param) as session:
        yield session


@pytest.mark.needs_ort
def test_threads_get_their_own_answers(session: Session) -> None:
    session._chain.runner = OneRequestAtATime(session.runner)
    wrong: list[float] = []
    begin = threading.Barrier(THREADS)

    def asks(first: int) -> None:
        begin.wait(20)
        for value in range(first, first + RUNS):
            x = np.full((1, 6), value, np.float32)
            if not (session.run({"x": x})["y"] == 2 * x).all():
                wrong.append(value)

    threads = [threading.Thread(target=asks, args=(1000 * place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert session.fallbacks == ()
