from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from edgekit import trials
from edgekit.profile import find_profile
from edgekit.samples import Samples
from edgekit.target import Artifact, Json
from edgekit.trials import Trial, Truth, time_and_judge
from tests.fake_engines import Engines

TRUTH = Truth((), (), Samples([{"x": np.zeros(1)}], "1 files", ""), [], set(), MappingProxyType({}))


def trial(name: str, parent: Trial | None = None, status: str = "verified on Ort 1") -> Trial:
    artifact = Artifact({"model.bin": name.encode()})
    return Trial(name, find_profile("ort"), "fp32", artifact, name, status, {}, parent)


def judge(monkeypatch: pytest.MonkeyPatch, each: list[Trial], *min_ms: float) -> list[str]:
    timings: list[Json] = [{"min_ms": value} for value in min_ms]
    monkeypatch.setattr("edgekit.target.engine", Engines("ort"))
    monkeypatch.setattr(trials, "time_in_turns", lambda variants, *_: timings[: len(variants)])
    time_and_judge(each, TRUTH)
    return [t.status for t in each]


def test_slower_than_its_parent_is_rejected_with_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = trial("ort-fp32")
    child, other = trial("ort-fp16", parent), trial("ort-int8", parent)
    assert judge(monkeypatch, [parent, child, other], 10.0, 11.2, 10.9) == [
        "verified on Ort 1",
        "rejected: 1.12x the time of ort-fp32",
        "verified on Ort 1",
    ]
    assert [t.evidence["timing"]["min_ms"] for t in (parent, child, other)] == [10.0, 11.2, 10.9]


def test_what_did_not_run_is_neither_timed_nor_a_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = trial("ort-fp32", status="rejected: SNR")
    child = trial("ort-fp16", parent)
    assert judge(monkeypatch, [parent, child], 99.0) == ["rejected: SNR", "verified on Ort 1"]
    assert "timing" not in parent.evidence
