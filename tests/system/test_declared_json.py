"""Values cross JSON by the declaration of their types, and what has another form is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pytest

from edgekit.system.formats import strict_json
from edgekit.system.formats.declared_json import ITEMS_LIMIT, decode, encode
from edgekit.system.formats.json_schema import ManifestError

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle


class Pair(NamedTuple):
    name: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    share: float
    kind: Literal["even", "odd"] = "even"


@dataclass(frozen=True)
class Whole:
    held: Bundle | None
    parts: Sequence[Part]
    pairs: Mapping[str, Pair]
    both: tuple[int, str]
    names: frozenset[str] = frozenset()
    ready: bool = True
    note: str | None = None
    best: Part | None = field(default=None)
    side: Literal["left", "right"] | None = None


WHOLE = Whole(
    None, [Part(0.1), Part(-math.inf, "odd")], {"é": Pair("x", (1, -1))}, (3, "c"), frozenset("ba"), False,
    None, Part(1e-300), "left",
)  # fmt: skip


def sent(kind: Any, value: Any, *without: str) -> Any:
    return strict_json.decode(strict_json.encode(encode(kind, value, *without)), "message", 10_000)


def test_a_value_comes_back() -> None:
    message = sent(Whole, WHOLE, "held")
    assert "held" not in message
    assert message["parts"][1] == {"share": "-inf", "kind": "odd"}
    assert message["pairs"] == {"é": ["x", [1, -1]]}
    assert message["names"] == ["a", "b"]
    assert decode(Whole, message, "whole", held=None) == WHOLE


def test_numbers_of_numpy_keep_every_digit() -> None:
    part = Part(np.float32(0.1))  # type: ignore[arg-type]
    assert decode(Part, sent(Part, part), "part") == Part(float(np.float32(0.1)))
    assert math.isnan(decode(float, sent(float, math.nan), "number"))
    assert type(decode(float, 3, "number")) is float
    assert sent(dict[str, int], {"a": np.int64(4)}) == {"a": 4}


PART = r"whole\.parts\[0\]"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"parts": 1}, r"whole\.parts: 1 where a list is expected"),
        ({"parts": [{"share": 1}]}, rf"{PART}: 'kind' is missing"),
        ({"parts": [{"share": 1, "kind": "even", "x": 1}]}, rf"{PART}: key 'x' is unknown"),
        ({"parts": [{"share": 1, "kind": "other"}]}, rf"{PART}\.kind: 'other' is not one of even, odd"),
        ({"parts": [{"share": "1", "kind": "odd"}]}, rf"{PART}\.share: '1' where a number is expected"),
        ({"parts": [{"share": True, "kind": "odd"}]}, rf"{PART}\.share: True where a number is expected"),
        ({"parts": [{"share": [], "kind": "odd"}]}, rf"{PART}\.share: a list where a number is expected"),
        ({"pairs": {"a": ["x"]}}, r"whole\.pairs\.a: 1 items where 2 are expected"),
        ({"pairs": {"a": ["x", [], 1]}}, r"whole\.pairs\.a: 3 items where 2 are expected"),
        ({"pairs": {"a": {"name": "x"}}}, r"whole\.pairs\.a: a dict where a list is expected"),
        ({"pairs": {"a": ["x", [-2]]}}, r"whole\.pairs\.a\[1\]\[0\]: -2 where a whole number from -1 "),
        ({"pairs": []}, r"whole\.pairs: a list where an object is expected"),
        ({"both": ["c", 3]}, r"whole\.both\[0\]: 'c' where a whole number"),
        ({"names": [1]}, r"whole\.names\[0\]: 1 where a text is expected"),
        ({"ready": 1}, r"whole\.ready: 1 where true or false is expected"),
        ({"note": "\x1b"}, r"whole\.note: .*control character"),
        ({"side": "up"}, r"whole\.side: 'up' is not one of left, right"),
        ({"best": 1}, r"whole\.best: 1 where an object is expected"),
        ({"held": None}, r"whole: key 'held' is unknown"),
        ({"names": ["a"] * (ITEMS_LIMIT + 1)}, rf"whole\.names: {ITEMS_LIMIT + 1} items; the limit is "),
    ],
)
def test_another_form_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError, match=f"^{problem}"):
        decode(Whole, {**sent(Whole, WHOLE, "held"), **change}, "whole", held=None)


def test_a_value_that_is_not_of_its_type_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        encode(tuple[int, str], (1, "a", 2))
    with pytest.raises(AttributeError):
        encode(Part, "text")
