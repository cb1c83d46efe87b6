"""What is given, what is stored, and what goes to the child."""

from __future__ import annotations

import pickle
from collections import UserList
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from edgekit.compiler.pipeline.build_request import BuildRequest, parse_layout, parse_lengths, parse_shape
from edgekit.generate.host.kinds import LANGUAGE, TEXT2TEXT
from edgekit.system.declared_options import plain_arguments, stored_options


def test_options_that_do_not_apply_are_named_as_the_user_spells_them() -> None:
    request = BuildRequest(
        "m.gguf", targets=["ort"], force=True, samples="s", shapes={}, lengths=(), shrink="", time_budget=0.0,
        fallback=False, example_inputs=[np.zeros(3)], context=64, trust_pickle=True,
    )  # fmt: skip
    inapplicable = ["--samples", "example_inputs", "--time-budget", "--no-fallback"]
    assert request.inapplicable(LANGUAGE.options) == inapplicable
    assert request.inapplicable(TEXT2TEXT.options) == inapplicable[1:]
    assert request.inapplicable(None) == ["--context"]


def test_defaults_and_what_trusts_a_model_are_not_stored() -> None:
    assert stored_options(BuildRequest("m.onnx", targets=["ort"], trust_pickle=True, trusted=True)) == {}
    given = BuildRequest("m.onnx", targets=["ort"], fallback=False, lengths=(4, 8), max_drop="2%")
    assert stored_options(given) == {"fallback": False, "lengths": [4, 8], "max_drop": "2%"}


def test_the_child_gets_plain_arguments_and_neither_a_callback_nor_the_trust() -> None:
    request = BuildRequest(
        Path("m.onnx"), targets=("ort",), shapes=MappingProxyType({"x": (1, 3)}),
        samples=UserList([MappingProxyType({"x": np.ones(3)})]),
        progress=lambda stage: None, trusted=True,
    )  # fmt: skip
    arguments = pickle.loads(pickle.dumps(plain_arguments(request)))
    assert arguments.keys() == set(vars(request)) - {"progress", "trusted"}
    assert arguments["shapes"] == {"x": (1, 3)}
    assert type(arguments["samples"]) is list
    assert type(arguments["samples"][0]) is dict
    assert BuildRequest(**arguments).model == Path("m.onnx")


def test_a_scalars_shape() -> None:
    assert parse_shape("x=") == ("x", ())


def test_several_shapes() -> None:
    assert parse_shape("a=1x3,1x4") == ("a", ((1, 3), (1, 4)))
    assert parse_shape("1x3,1x4") == ("", ((1, 3), (1, 4)))


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "=1x3",
        "a=1x0",
        "a=1xb",
        "a=-1",
        "a=²",
        "a=1x3,",
        "a=,1x3",
        "a=1x3,,1x4",
        "3,1x3",
        f"a={'9' * 20}",
    ],
)
def test_shapes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^, with sizes of 1 or more$"):
        parse_shape(text)


def test_a_range() -> None:
    assert parse_shape("ids=1x1..512") == ("ids", (1, "1..512"))
    assert parse_shape("1x3x320..640x640") == ("", (1, 3, "320..640", 640))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x=1x9..1", "; a range is written 1..512, the smaller size first"),
        ("x=1x0..9", "; a range is written 1..512, the smaller size first"),
        ("x=1x..9", "; a range is written 1..512, the smaller size first"),
        ("x=1x1..9,1x16", "; give a range, or several shapes"),
        ("1..9", ", with sizes of 1 or more"),
    ],
)
def test_a_range_that_is_none(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"^[;,] ") as caught:
        parse_shape(text)
    assert str(caught.value) == reason


def test_layouts_and_lengths() -> None:
    assert parse_layout("uint8") == ("", "uint8")
    assert parse_layout("x=nhwc") == ("x", "nhwc")
    assert parse_lengths("16,64") == (16, 64)
    for text in ("=nhwc", "x="):
        with pytest.raises(ValueError, match=r"^$"):
            parse_layout(text)
    for text in ("", "16,", "-1", "1.5", "1234567"):
        with pytest.raises(ValueError, match=r"^: numbers of tokens$"):
            parse_lengths(text)
