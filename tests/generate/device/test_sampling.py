"""The next token: what each option leaves over, and that draws follow the weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.errors import UsageError
from edgekit.generate.device.options import GenerateOptions, checked_options
from edgekit.generate.device.sampling import candidates, next_token, penalized
from edgekit.tensor_spec import Array

ROW = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


def kept(**options: float) -> list[int]:
    tokens: list[int] = candidates(ROW, GenerateOptions(temperature=1.0, **options))[0].tolist()  # type: ignore[arg-type]
    return tokens


def test_what_may_be_drawn_is_the_likeliest_first() -> None:
    assert kept() == [1, 3, 2, 0]
    assert kept(top_k=2) == [1, 3]
    assert kept(top_k=9) == [1, 3, 2, 0]
    assert kept(top_p=0.39) == [1]
    assert kept(top_p=0.41) == [1, 3]
    assert kept(top_p=1e-9) == [1]
    assert kept(min_p=0.49) == [1, 3, 2]
    assert kept(min_p=0.51) == [1, 3]
    assert kept(min_p=1.0) == [1]
    assert kept(top_k=3, top_p=0.6, min_p=0.9) == [1]


def test_greedy_takes_the_first_of_the_likeliest_and_draws_nothing() -> None:
    draws = np.random.default_rng(1)
    before = draws.bit_generator.state
    assert next_token(np.array([1, 5, 5], np.float32), GenerateOptions(), (), draws) == 1
    assert draws.bit_generator.state == before


def test_draws_follow_the_weights() -> None:
    draws, options = np.random.default_rng(0), GenerateOptions(temperature=1.0)
    found = np.bincount([next_token(ROW, options, (), draws) for _ in range(20_000)], minlength=4)
    # Five standard deviations of a count of 20,000 draws are at most 0.018 of them.
    np.testing.assert_allclose(found / 20_000, np.exp(ROW), atol=0.018)


def test_a_high_temperature_makes_all_equal_and_a_low_one_greedy() -> None:
    _, flat = candidates(ROW, GenerateOptions(temperature=100.0))
    assert flat.min() > 0.98
    assert candidates(ROW, GenerateOptions(temperature=1e-6))[0].tolist() == [1]


def test_a_grammar_takes_part_before_the_draw() -> None:
    allowed = np.array([True, False, False, False])
    for options in (GenerateOptions(), GenerateOptions(temperature=2.0)):
        assert next_token(ROW, options, (), np.random.default_rng(0), allowed) == 0


def test_the_penalty_divides_what_is_positive_and_multiplies_what_is_not() -> None:
    row = np.array([2.0, -2.0, 1.0], np.float32)
    np.testing.assert_array_equal(penalized(row, {0, 1}, 2.0), [1.0, -4.0, 1.0])
    np.testing.assert_array_equal(row, [2.0, -2.0, 1.0])
    options = GenerateOptions(repetition_penalty=4.0)
    assert next_token(row, options, {0}, np.random.default_rng()) == 2


rows = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40).map(
    lambda values: np.array(values, np.float32)
)


@given(rows, st.floats(0.01, 10), st.integers(0, 50), st.floats(0.01, 1), st.floats(0, 1), st.integers(0, 99))
def test_a_token_that_is_drawn_may_be(
    row: Array, temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    options = GenerateOptions(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    tokens, weights = candidates(row, options)
    assert 1 <= len(tokens) <= (top_k or len(row))
    assert row.argmax() in tokens or row[tokens[0]] == row.max()
    assert (weights > 0).all()
    assert (np.diff(weights) <= 0).all()
    assert next_token(row, options, (), np.random.default_rng(seed)) in tokens


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_token": 3}, "generate has no option 'max_token'; available: max_tokens, temperature"),
        ({"max_tokens": 0}, "max_tokens must be a whole number from 1 to 1048576, not 0"),
        ({"max_tokens": True}, "max_tokens must be a whole number from 1 to 1048576, not True"),
        ({"temperature": -1}, "temperature must be a number from 0 to 100, not -1"),
        ({"temperature": float("nan")}, "temperature must be a number from 0 to 100, not nan"),
        ({"top_p": 0}, "top_p must be a number above 0, at most 1, not 0"),
        ({"stop": [""]}, "stop is a text or a list of texts that are not empty"),
        ({"stop": ["x"] * 17}, "stop takes 16 texts of at most 256 characters"),
        ({"json_schema": {}, "grammar": ""}, "json_schema and grammar were both given; give one"),
        ({"json_schema": "{}"}, "json_schema is a mapping, not a str"),
        ({"seed": -1}, "seed must be a whole number from 0 to 18446744073709551615, not -1"),
        ({"deadline_ms": 0}, "deadline_ms must be a number above 0, at most 1e+12, not 0"),
    ],
)
def test_an_option_is_honored_or_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked_options(options)
    assert str(caught.value).startswith(said)


def test_a_stop_word_may_stand_alone() -> None:
    assert checked_options({"stop": "END"}).stop == ("END",)
