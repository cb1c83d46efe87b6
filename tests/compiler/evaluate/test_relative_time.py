"""How many rounds of timing a candidate takes, by the times that the rounds give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from edgekit.compiler.evaluate import relative_time
from edgekit.compiler.evaluate.relative_time import RelativeTimer, ratio_to_parent
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.timing import Timed
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.target import Artifact
from edgekit.target.contract import Runner
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.fake_engines import FakeEngine, FakeRunner, throws

NEVER_RUN = FakeRunner(FakeEngine("ort"), throws)
"""The rounds are given."""


class Rounds:
    """Stands for ``turns``: the runs of the parent and of the candidate in each round, of which the second
    pair is slowed down by other programs."""

    def __init__(self, *rounds: tuple[float, float]) -> None:
        self.left = list(rounds)

    def __call__(self, *_: object) -> list[list[float]]:
        parent, own = self.left.pop(0)
        return [[parent, parent * 1.3, parent], [own, own * 1.3, own]]


@pytest.mark.parametrize(
    ("rounds", "ratio", "left"),
    [
        # a second round that tells nothing new is the last
        ([(1.0, 0.5), (1.0, 0.5), (1.0, 9.0)], 0.5, 1),
        # both are slowed down alike, however much
        ([(1.4, 0.7), (1.2, 0.6), (1.0, 9.0)], 0.5, 1),
        # one that does is followed by another, but for no more than four rounds
        ([(1.0, 1.05), (1.0, 1.0), (1.0, 0.95), (1.0, 0.95), (1.0, 0.1)], 0.975, 1),
        ([(1.0, 0.9), (1.0, 0.8), (1.0, 0.8), (1.0, 0.1)], 0.8, 0),
    ],
)
def test_rounds_are_counted_and_no_clock_ends_them(
    rounds: Sequence[tuple[float, float]], ratio: float, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = Rounds((1.0, 0.5), (1.0, 0.5), *rounds)
    monkeypatch.setattr(relative_time, "turns", given)
    monkeypatch.delattr("time.perf_counter")
    timed = RelativeTimer(NEVER_RUN, {"x": np.zeros(1, np.float32)})
    assert timed.ratio(NEVER_RUN) == 0.5
    assert len(given.left) == len(rounds)
    assert timed.ratio(NEVER_RUN) == ratio
    assert len(given.left) == left


def test_of_short_runs_an_interrupted_one_is_no_pair_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = [0.0005, 0.0009, 0.0005, 0.0009]  # of each four runs, two take longer
    monkeypatch.setattr(relative_time, "turns", lambda *_: [[0.001] * 16, interrupted * 4])
    timed = RelativeTimer(NEVER_RUN, {"x": np.zeros(1, np.float32)})
    assert timed.ratio(NEVER_RUN) == 0.5


class Clocked:
    """Runner whose runs take given seconds of a clock that only they move."""

    def __init__(self, clock: list[float], seconds: Sequence[float]) -> None:
        self.clock, self.left = clock, list(seconds)
        self.samples: list[float] = []

    def run(self, feeds: Sample) -> Sample:
        self.samples.append(float(feeds["x"][0]))
        self.clock[0] += self.left.pop(0)
        return {"y": feeds["x"]}


@pytest.mark.parametrize(
    ("parent_s", "candidate_s", "ratio", "further"),
    [
        # two rounds of runs on the samples, which say the same, suffice: nothing is run for its time alone
        ([0.01] * 16, [0.006] * 20, 0.6, 0),
        # the rounds differ
        ([0.01] * 16, [0.009] * 8 + [0.007] * 12, 0.7, 2),
        # the other samples' runs count for neither
        ([0.01] * 16, [0.006] * 16 + [0.001] * 4, 0.6, 0),
        # short runs vary too much: eight of them are no round
        ([0.001] * 16, [0.0006] * 20, 0.5, 2),
        # three slow ones are a round, as in all timings, so the parent of a large network runs six times
        ([0.5] * 6, [0.4] * 20, 0.8, 0),
    ],
)
def test_the_runs_for_the_outputs_are_those_that_are_timed(
    parent_s: Sequence[float],
    candidate_s: Sequence[float],
    ratio: float,
    further: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(relative_time, "OWN_TIME", lambda: clock[0])
    rounds = Rounds(*[(min(parent_s), ratio * min(parent_s))] * further)
    monkeypatch.setattr(relative_time, "turns", rounds)
    parent, candidate = Clocked(clock, parent_s), Clocked(clock, candidate_s)
    samples = [{"x": np.array([float(index)])} for index in range(20)]
    timer = RelativeTimer(cast(Runner, parent), samples[0])
    outputs, measured = timer.run(cast(Runner, candidate), samples)
    assert measured == pytest.approx(ratio)
    assert not rounds.left
    assert [float(output["y"][0]) for output in outputs] == candidate.samples == [*map(float, range(20))]
    assert parent.samples == candidate.samples[: len(parent_s)]  # data may decide the time: both get the same


def test_what_was_not_searched_for_is_timed_alone_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine("ort")
    given = Rounds((1.0, 1.2), (1.0, 0.9), (1.0, 0.9), (1.0, 0.9))
    monkeypatch.setattr(relative_time, "turns", given)
    one, other = (Timed(engine, Artifact({"model.bin": name.encode()}), name) for name in "ab")
    specs = [TensorSpec("x", "float32", (1,))]
    reference = ReferenceOutputs(specs, specs, [{"x": np.zeros(1, np.float32)}])
    for _ in range(2):  # the second time nothing is run
        assert ratio_to_parent(one, other, reference) == 0.9
    assert engine.threads == [1, 1]
    assert engine.loaded == ["b", "a"]
    assert not given.left
