"""A variant beside the session: takes what the session takes, and leaves what fails to it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.runtime import Session
from edgekit.runtime.streaming.replica import Replica
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Behaviour, Engines, doubled, nothing, throws, wrong_shape


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    variants = [
        variant("onnx", "ort", p50_ms=7.0),
        variant("lite", "tflite"),
        variant("bad", "ort", status="rejected: slow"),
    ]
    with Session(small_bundle(variants)) as session:
        yield session


def test_it_takes_arrays_as_the_session_does(session: Session, engines: Engines) -> None:
    contiguous = []

    def seen(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        contiguous.append(feeds["x"].flags.c_contiguous)
        return doubled(feeds)

    engines["tflite"].behaviour["lite"] = seen  # type: ignore[assignment]
    beside = Replica(session, "lite", 1)
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(beside.run({"x": wide})["y"], 2 * X)
    assert contiguous == [True]
    beside.close()
    beside.close()
    assert engines["tflite"].closed == 1
    np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)  # the session's


@pytest.mark.parametrize("fails", [throws, wrong_shape, nothing])
def test_the_session_answers_what_fails(session: Session, engines: Engines, fails: Behaviour) -> None:
    engines["tflite"].behaviour["lite"] = fails
    beside = Replica(session, "lite", 1)
    np.testing.assert_array_equal(beside.run({"x": X})["y"], 2 * X)
    assert beside.failed
    assert engines["tflite"].closed == 1  # its memory is free at once
    assert session.fallbacks == ()


@pytest.mark.parametrize("name", ["none", "bad"])
def test_a_variant_that_is_not_to_run(session: Session, name: str) -> None:
    with pytest.raises(UsageError) as error:
        Replica(session, name, 1)
    text = f"{session.bundle.name} has no usable variant {name!r}; it has onnx, lite"
    assert str(error.value) == text
