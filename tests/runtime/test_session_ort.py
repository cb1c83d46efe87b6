"""A session on a real engine, and what importing and running it may not do."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.runtime import Session
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return ort_bundle(good=onnx_bytes(DOUBLES)).save(tmp_path / "ort.edgekit")


@pytest.mark.needs_ort
def test_a_real_engine_answers_the_golden_vectors(path: Path) -> None:
    with Session(path, threads=1) as session, Bundle.open(path) as bundle:
        feeds, expected = bundle.golden[0]
        answers = [session.run(feeds)["y"] for _ in range(3)]
        assert session.active.engine.startswith("ONNX Runtime ")
        assert (session.active.device, session.active.precision) == ("CPU", "fp32")
        assert not any(np.shares_memory(answers[0], later) for later in answers[1:])
    for answer in answers:
        np.testing.assert_array_equal(answer, expected["y"])


@pytest.mark.needs_ort
def test_a_session_is_opened_in_each_process(path: Path) -> None:
    with Session(path, threads=1) as session, pytest.raises(TypeError) as error:
        pickle.dumps(session)
    assert str(error.value) == "a Session can't be sent to another process; open one there"
