from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.evaluate.verify import (
    FP16_FLOOR_DB,
    ReferenceOutputs,
    Verification,
    compare,
    fp16_limits_db,
    limits_db,
    perturbed,
    verify,
)
from edgekit.target import Artifact
from edgekit.tensor_spec import Array, Json, TensorSpec
from tests.fixtures.fake_engines import (
    Behaviour,
    FakeEngine,
    doubled,
    one_too_many,
    throws,
    wrong_dtype,
    wrong_name,
    wrong_shape,
)


def test_equal_outputs_are_exact() -> None:
    error = compare([np.arange(4.0)], [np.arange(4.0)], 100)
    assert error.snr_db is None
    assert error.within_limit
    assert error.cosine == 1.0


def test_all_samples_count_together() -> None:
    expected = [np.array([3.0]), np.array([4.0])]
    actual = [np.array([3.0]), np.array([4.5])]
    assert compare(expected, actual, 20) == compare([np.array([3.0, 4.0])], [np.array([3.0, 4.5])], 20)


@given(st.floats(1e-6, 1e-1), st.integers(0, 100))
def test_snr_is_that_of_the_noise_put_in(relative: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, noise = rng.normal(size=1000), rng.normal(size=1000)
    noise *= relative * np.linalg.norm(x) / np.linalg.norm(noise)
    error = compare([x], [x + noise], 100)
    assert error.snr_db == pytest.approx(-20 * math.log10(relative), abs=0.06)
    assert error.relative_norm == pytest.approx(relative, rel=1e-3)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ([1.0, 2.0], [1.0, math.nan]),
        ([1.0, math.nan], [1.0, 2.0]),
        ([1.0, math.inf], [1.0, -math.inf]),
        ([1.0, 2.0], [1.0, math.inf]),
        ([0.0, 0.0], [0.0, 1e-9]),
    ],
)
def test_what_no_ratio_can_tell_is_infinitely_wrong(expected: list[float], actual: list[float]) -> None:
    error = compare([np.array(expected)], [np.array(actual)], 20)
    assert error.snr_db == -math.inf
    assert not error.within_limit


def test_the_same_infinities_are_equal() -> None:
    x = np.array([1.0, math.inf, -math.inf, math.nan])
    assert compare([x], [x.copy()], 100).within_limit


def test_another_shape_is_infinitely_wrong() -> None:
    assert not compare([np.zeros(3)], [np.zeros(4)], 20).within_limit
    assert not compare([np.ones((1, 6))], [np.ones((6, 1))], 20).within_limit


def test_integers_are_compared_by_value() -> None:
    far = compare([np.array([250, 3], np.uint8)], [np.array([3, 250], np.uint8)], 20)
    assert far.max_abs == 247


def test_limits() -> None:
    outputs = [TensorSpec(name, "float32", (1,)) for name in "abcd"]
    floors = {"a": None, "b": 130.0, "c": 85.0, "d": 30.0}
    assert limits_db(outputs, {"a"}, floors, "fp32") == {"a": 60.0, "b": 100.0, "c": 65.0, "d": 40.0}
    assert limits_db(outputs, {"a"}, floors, "fp16") == {"a": 45.0, "b": 45.0, "c": 45.0, "d": 40.0}


def test_a_nudge_moves_floats_by_at_most_one_unit_in_the_last_place() -> None:
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    moved = perturbed({"x": x, "i": np.arange(3)})
    assert np.array_equal(moved["i"], np.arange(3))
    assert moved["x"].dtype == np.float32
    assert not np.array_equal(moved["x"], x)
    assert (np.abs(moved["x"] - x) <= np.spacing(np.abs(x))).all()


def verified(behaviour: Behaviour, *, missing: bool = False) -> Verification:
    """What ``verify`` says of an engine of this behaviour, where y = 2 x is right."""
    engine = FakeEngine("ort")
    engine.missing = missing
    engine.behaviour["v"] = behaviour
    spec = (TensorSpec("x", "float32", (1, 6)),), (TensorSpec("y", "float32", (1, 6)),)
    sample = {"x": np.arange(6, dtype=np.float32).reshape(1, 6)}
    artifact = Artifact({"model.bin": b"v"}, {}, {"ops": 1})
    reference = ReferenceOutputs(*spec, [sample], [doubled(sample)], floors_db={"y": 110.0})
    return verify(artifact, engine, "fp32", reference)


def test_a_variant_with_the_right_answers_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verified(doubled)
    assert found.status == "verified on Ort Runtime 1.0"
    assert found.evidence["size_bytes"] == 1
    assert found.evidence["compile"] == {"ops": 1}
    assert found.evidence["accuracy"]["y"]["snr_db"] is None
    assert "limits_db" not in found.evidence


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        (lambda feeds: {"y": 2.002 * feeds["x"]}, "output y: SNR 60.0 dB; fp32 needs 90 dB"),
        (
            lambda feeds: {"y": np.float32(math.nan) * feeds["x"]},
            "output y: it differs from the reference in shape, or in which values are finite; fp32 needs "
            "90 dB",
        ),
        (
            wrong_dtype,
            "Ort Runtime 1.0 cannot run it: it returned y float16 1x6; the model's outputs are y float32 1x6",
        ),
        (
            wrong_shape,
            "Ort Runtime 1.0 cannot run it: it returned y float32 6x1; the model's outputs are y float32 1x6",
        ),
        (
            wrong_name,
            "Ort Runtime 1.0 cannot run it: it returned z float32 1x6; the model's outputs are y float32 1x6",
        ),
        (
            one_too_many,
            "Ort Runtime 1.0 cannot run it: it returned y float32 1x6, z float32 1x6; the model's outputs "
            "are y float32 1x6",
        ),
    ],
)
def test_a_variant_with_wrong_answers_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, status: str
) -> None:
    found = verified(behaviour)
    assert found.rejected
    assert found.status == f"rejected: {status}"
    json.dumps(found.evidence, allow_nan=False)


def test_a_bug_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError):
        verified(throws)


def test_what_could_not_be_run_keeps_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verified(doubled, missing=True)
    assert found.status.startswith("not run: ort is not installed")
    assert found.evidence["limits_db"] == {"y": 90.0}


def test_off_where_the_reference_is_zero_says_so() -> None:
    error = compare([np.zeros(2)], [np.array([0.0, 0.5])], 100)
    assert str(error) == "off by 0.5 where the reference is zero everywhere"
    assert error.as_json() == {
        "max_abs": 0.5,
        "relative_norm": None,
        "snr_db": None,
        "cosine": 0.0,
        "limit_db": 100,
    }


def test_limits_of_fp16_arithmetic_follow_the_noise_floor() -> None:
    outputs = [TensorSpec(name, "float32", (1,)) for name in "abcd"]
    floors = {"a": None, "b": 140.0, "c": 112.0, "d": 80.0}
    assert fp16_limits_db(outputs, floors) == {"a": 40.0, "b": 40.0, "c": 34.0, "d": 30.0}


class StandIn:
    """A reference executor in fp16 arithmetic that is off by a little more than 40 dB allows."""

    device, precision, stands_in_for = "CPU", "fp16", "a phone"

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": 2.0 * feeds["x"] * np.float32(1 + 10 ** (-38 / 20))}

    def facts(self) -> dict[str, Json]:
        return {}

    def close(self) -> None:
        return


def test_a_reference_execution_is_said_and_held_to_its_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine("phone")
    monkeypatch.setattr(engine, "open_runner", lambda *arguments, **options: StandIn())
    x = {"x": np.ones((1, 6), np.float32)}
    expected = [doubled(x)]
    specs = [TensorSpec("x", "float32", (1, 6))], [TensorSpec("y", "float32", (1, 6))]
    artifact = Artifact({"model.bin": b"a"})

    def found(floor_db: float | None) -> Verification:
        reference = ReferenceOutputs(*specs, [x], expected, floors_db={"y": floor_db})
        return verify(artifact, engine, "fp16", reference)

    lower = FP16_FLOOR_DB + 36.0
    assert found(lower).status == "verified by reference execution; not run on a phone"
    assert found(lower).evidence["executed"]["stands_in_for"] == "a phone"
    assert found(None).status == "rejected: output y: SNR 38.0 dB; fp16 needs 40 dB"
