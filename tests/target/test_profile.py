"""Profiles: those that come with the targets, and what is refused."""

from __future__ import annotations

import pytest

from edgekit.errors import ProfileError
from edgekit.target.installed_profiles import find_profile, profile_names
from edgekit.target.profile import FACTS, Profile, parse_profile

FACT = 'title = "A board"\n[facts.cores]\nvalue = 4\nsource = "its manual"\n'


def test_the_profiles_that_come_with_the_targets() -> None:
    assert {
        name: target for name, target in profile_names().items() if target in ("ort", "openvino", "tflite")
    } == {
        "openvino": "openvino",
        "intel-cpu": "openvino",
        "xeon-amx": "openvino",
        "ort": "ort",
        "windows-x64": "ort",
        "tflite": "tflite",
        "android-arm64": "tflite",
        "rpi4": "tflite",
        "rpi5": "tflite",
    }


def test_the_generic_profile_comes_first() -> None:
    first: dict[str, str] = {}
    for name, target in profile_names().items():
        first.setdefault(target, name)
    assert all(name == target for target, name in first.items())


@pytest.mark.parametrize("name", list(profile_names()))
def test_every_profile_is_well_formed_with_a_web_source_for_each_fact(name: str) -> None:
    profile = find_profile(name)
    assert profile.title
    assert profile.facts
    for fact in profile.facts.values():
        assert fact.source.startswith("https://")


def test_what_is_known_of_a_board() -> None:
    profile = find_profile("rpi5")
    assert (profile.target, profile.title) == ("tflite", "Raspberry Pi 5")
    assert profile.facts["cores"].value == 4
    assert profile.as_json()["facts"]["arch"]["value"] == "aarch64"


def test_an_unknown_profile_names_those_there_are() -> None:
    with pytest.raises(ProfileError) as caught:
        find_profile("toaster")
    assert str(caught.value) == (f"unknown target 'toaster'; available: {', '.join(profile_names())}")


def test_several_names_in_one() -> None:
    with pytest.raises(ProfileError) as caught:
        find_profile("ort, tflite")
    assert str(caught.value) == ("unknown target 'ort, tflite'; give each one separately: -t ort -t tflite")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("rpi9", "rpi5 or rpi4"),
        ("raspberry-pi-5", "rpi5-ncnn or rpi5"),
        ("ONNXRuntime", "ort"),
        ("litert", "tflite"),
        ("iphone-15", "iphone-15-pro or iphone-12 or ios-15"),
        ("jetson", "tensorrt or jetson-agx-orin or jetson-orin-nano"),
    ],
)
def test_an_unknown_profile_names_those_that_may_be_meant(name: str, near: str) -> None:
    with pytest.raises(ProfileError) as caught:
        find_profile(name)
    assert str(caught.value) == (
        f"unknown target {name!r}; did you mean {near}? Run edgekit targets for a list"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "profile b is not valid TOML: Invalid value (at end of document)"),
        ("[facts]", "profile b: needs a title and facts, and has no title"),
        ('title = "b"\nname = "b"', "profile b: needs a title and facts, and has name"),
        (FACT.replace("cores", "core"), None),
        (FACT.replace("4", '"4"'), "profile b: facts.cores.value must be a int"),
        (FACT + 'unit = "MB"', "profile b: facts.cores.unit must be ''"),
        (FACT.replace("cores", "memory"), "profile b: facts.memory.unit must be 'MB'"),
        (FACT.replace('source = "its manual"', ""), "profile b: facts.cores has no source"),
        (
            FACT.replace("cores", "precision").replace("4", '"int8"'),
            "profile b: facts.precision.value must be a float precision, e.g. fp16",
        ),
    ],
)
def test_malformed_profiles_are_refused(text: str, message: str | None) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "b", "tflite")
    assert str(caught.value) == (
        message or (f"profile b: fact 'core' is unknown; available: {', '.join(FACTS)}")
    )


def test_a_profile_is_its_name_target_title_and_facts() -> None:
    profile = parse_profile(FACT, "b", "tflite")
    assert isinstance(profile, Profile)
    assert profile.as_json() == {
        "name": "b",
        "target": "tflite",
        "title": "A board",
        "facts": {"cores": {"value": 4, "unit": "", "source": "its manual"}},
    }
