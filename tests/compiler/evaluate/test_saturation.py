"""Outputs that saturate, and differences of theirs that do not matter."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.bundle.variant import Status
from edgekit.compiler.evaluate.saturation import NEGLIGIBLE_LIMIT_DB, negligible_limit_db, saturating_outputs
from edgekit.compiler.evaluate.verify import ReferenceOutputs, Verification, verify
from edgekit.target import Artifact
from edgekit.tensor_spec import TensorSpec
from tests.fixtures import models
from tests.fixtures.fake_engines import FakeEngine


def test_outputs_that_saturate_are_found_behind_moved_data() -> None:
    model = models.parse(
        """<ir_version: 8, opset_import: ["": 17]>
        m (float[2,3] x) => (float[3,2] a, float[2,3] b, float[2,6] c)
        { s = Softmax(x) a = Transpose(s) b = Relu(s) t = Tanh(x) c = Concat<axis = 1>(x, t) }"""
    )
    assert saturating_outputs(model) == {"a", "c"}


def verified(values: list[float], answer: list[float], *, saturates: bool = True) -> Verification:
    engine = FakeEngine("fake")
    engine.behaviour["file"] = lambda feeds: {"y": np.array(answer, np.float32)}
    shape = (len(values),)
    spec = TensorSpec("y", "float32", shape)
    reference = ReferenceOutputs(
        (TensorSpec("x", "float32", shape),),
        (spec,),
        [{"x": np.zeros(shape, np.float32)}],
        [{"y": np.array(values, np.float32)}],
        frozenset({"y"} if saturates else ()),
    )
    return verify(Artifact({"model.bin": b"file"}), engine, "fp32", reference)


def test_a_small_score_that_is_a_little_off_is_verified() -> None:
    found = verified([1.0e-4], [1.05e-4])
    assert found.outcome is Status.VERIFIED
    assert found.evidence["accuracy"]["y"]["snr_db"] == 26.0
    assert found.evidence["accuracy"]["y"]["limit_db"] == 20.0  # 1e-5 of 1e-4


@pytest.mark.parametrize(
    ("values", "answer", "saturates"),
    [
        ([1.0e-4], [1.2e-4], True),  # off by more than 1e-5
        ([1.0e-4], [1.05e-4], False),  # without a softmax or sigmoid, small values may be all there is
    ],
)
def test_other_differences_are_not(values: list[float], answer: list[float], saturates: bool) -> None:
    assert verified(values, answer, saturates=saturates).rejected


def test_the_limit_of_what_passes_anyway_stays() -> None:
    assert verified([0.5], [0.5]).evidence["accuracy"]["y"]["limit_db"] == 60.0


def test_the_smallest_sample_sets_the_limit() -> None:
    samples = [{"y": np.array([value])} for value in (0.1, 1e-4)]
    assert negligible_limit_db(samples, "y") == 20.0
    assert negligible_limit_db([*samples, {"y": np.zeros(1)}], "y") == NEGLIGIBLE_LIMIT_DB
