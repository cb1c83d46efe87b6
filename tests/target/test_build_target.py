"""Targets that are looked up once, and what runs their artifacts here."""

from __future__ import annotations

import pytest

from edgekit.errors import ProfileError
from edgekit.target import registry
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Profile
from tests.fixtures.fake_engines import Engines


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    found = Engines("tensorrt", "ort")
    monkeypatch.setattr(registry, "engine", found)
    return found


def test_an_engine_that_is_there_is_used(engines: Engines) -> None:
    target = resolve(find_profile("tensorrt"))
    assert target.executor() is engines["tensorrt"]
    assert target.missing() is None


def test_one_that_is_missing_is_stood_in_for(engines: Engines) -> None:
    engines["tensorrt"].missing = engines["ort"].missing = True
    jetson, ort = (resolve(find_profile(name)) for name in ("tensorrt", "ort"))
    assert jetson.executor() is jetson.info.reference_executor
    assert jetson.missing() is None
    assert ort.executor() is engines["ort"]  # nothing stands in for it
    assert str(ort.missing()).startswith("ort is not installed")


@pytest.mark.needs_ort
def test_what_stands_in_says_so() -> None:
    executor = resolve(find_profile("tensorrt")).info.reference_executor
    assert executor is not None
    assert executor.engine_version().startswith("ONNX Runtime ")
    assert executor.engine_version().endswith(" for TensorRT")


def test_a_device_has_the_rules_of_its_target() -> None:
    target = resolve(find_profile("rpi5"))
    assert (target.name, target.profile.name) == ("tflite", "rpi5")
    assert target.rules is not None
    assert target.rules.target == "rpi5"  # what messages call it


def test_an_unknown_target() -> None:
    with pytest.raises(ProfileError, match=r"^unknown target 'tensorflow'; available: "):
        resolve(Profile("x", "tensorflow", "X", {}))
