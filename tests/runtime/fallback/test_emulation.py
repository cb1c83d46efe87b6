"""An engine that only emulates its device on this machine runs where it is named, and is never a fallback."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from edgekit.errors import EngineError, NoVariantError
from edgekit.runtime import Session
from edgekit.runtime.deadline.watchdog import WatchedRunner
from edgekit.target import EngineInfo, registry
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, FakeRunner, change, throws

VARIANTS = [variant("phone8", "ort"), variant("phone", "ort"), variant("lite", "tflite")]
WHY = "needs a phone; engine='ort' runs an emulation of it here"


@pytest.fixture
def engines(engines: Engines) -> Engines:
    engines["ort"].ENGINE = EngineInfo(stands_in_for=lambda: "a phone")
    return engines


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("deadline_ms", [None, 60_000.0])
def test_it_is_skipped(engines: Engines, strict: bool, deadline_ms: float | None) -> None:
    with Session(small_bundle(VARIANTS), strict=strict, deadline_ms=deadline_ms) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert (session.active.variant, session.fallbacks) == ("lite", ())
        assert dict(session.skipped) == {"phone8": WHY, "phone": WHY}
        assert engines["ort"].loaded == []


def test_it_is_no_fallback(engines: Engines) -> None:
    variants = [variant("lite", "tflite", p50_ms=1.0), *VARIANTS[:2]]
    engines["tflite"].behaviour["lite"] = throws
    with Session(small_bundle(variants)) as session, pytest.raises(NoVariantError) as error:
        session.run({"x": X})
    assert str(error.value).splitlines()[1:4] == [
        "  lite    RuntimeError: kernel died",
        f"  phone8  {WHY}",
        f"  phone   {WHY}",
    ]
    assert engines["ort"].loaded == []


def test_it_is_no_standby(engines: Engines) -> None:
    variants = [variant("lite", "tflite", p50_ms=1.0), *VARIANTS[:2]]
    with Session(small_bundle(variants), deadline_ms=60_000) as session:
        session.run({"x": X})
        assert engines["ort"].loaded == []
        assert isinstance(session.runner, WatchedRunner)
        assert isinstance(session.runner._runner, FakeRunner)
        session.runner._runner.behaviour = throws
        with pytest.raises(NoVariantError):
            session.run({"x": X})
    assert engines["ort"].loaded == []


def test_it_runs_where_its_engine_is_named(engines: Engines) -> None:
    with Session(small_bundle(VARIANTS), engine="ort", strict=True) as session:
        session.run({"x": X})
        assert (session.active.variant, session.fallbacks) == ("phone8", ())


def test_it_runs_where_a_variant_is_named_and_no_other_of_its_engine(engines: Engines) -> None:
    with Session(small_bundle(VARIANTS), variant="phone") as session:
        session.run({"x": X})
        assert session.active.variant == "phone"
        change(session, throws)
        session.run({"x": X})
        assert session.active.variant == "lite"
        assert engines["ort"].loaded == ["phone"]


def test_a_bundle_for_another_device_says_what_to_name(engines: Engines) -> None:
    with pytest.raises(NoVariantError) as error:
        Session(small_bundle(VARIANTS[1:2]))
    assert str(error.value).splitlines()[1:] == [
        f"  phone  {WHY}",
        "  install one of these engines, or build the bundle for one that `edgekit doctor` finds",
    ]
    assert isinstance(error.value, EngineError)


def test_targets_say_what_they_emulate() -> None:
    def emulated(target: str) -> str:
        stands_in_for = registry.engine(target).ENGINE.stands_in_for
        return "" if stands_in_for is None else stands_in_for()

    x86 = platform.machine().lower() in ("x86_64", "amd64")
    assert emulated("coreml") == ("" if platform.system() == "Darwin" else "Apple hardware")
    assert emulated("qnn") == ("a Hexagon NPU" if x86 else "")
    assert emulated("tflm") == "a microcontroller"
    assert [emulated(name) for name in ("ort", "tflite", "openvino", "tensorrt", "rknn")] == [""] * 5
