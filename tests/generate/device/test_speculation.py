"""Speculative decoding: the same text, whatever is proposed and however it is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import UsageError
from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.measure_speculation import speculation_on
from edgekit.generate.device.options import GenerateOptions
from edgekit.generate.device.speculation import PromptLookup, Speculation, StepTimes, pays, verified
from edgekit.generate.device.text_stream import TextStream
from edgekit.tensor_spec import Array
from tests.fixtures.numpy_decoder import NumpyDecoder, RoundedRows

GROUNDED = "the cat sat on the mat. the dog sat on the mat. the cow sat on the"


def choose(row: Array) -> int:
    return int(row.argmax())


def rows(*tokens: int) -> Array:
    return np.eye(9, dtype=np.float32)[list(tokens)]


def test_what_agrees_is_taken_and_one_more() -> None:
    assert verified([], rows(5), choose) == [5]
    assert verified([1, 2], rows(1, 2, 3), choose) == [1, 2, 3]
    assert verified([1, 2], rows(1, 4, 3), choose) == [1, 4]
    assert verified([1, 2], rows(0, 2, 3), choose) == [0]
    ends = iter([1, None])
    assert verified([1, 2], rows(1, 2, 3), lambda row: next(ends)) == [1]


def test_lookup_proposes_what_followed_the_longest_match() -> None:
    lookup = PromptLookup()
    assert lookup.propose([1, 2, 3, 1, 2], 4) == [3, 1, 2]
    assert PromptLookup().propose([7, 1, 2, 8, 9, 1, 2, 5, 7, 1, 2], 2) == [8, 9]
    assert PromptLookup().propose([7, 1, 2, 8, 9, 1, 2, 5, 6, 1, 2], 2) == [5, 6]
    assert PromptLookup().propose([1, 2, 3], 4) == []
    assert PromptLookup().propose([1], 4) == []
    assert PromptLookup().propose([], 4) == []


@settings(max_examples=25)
@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(1, 5), max_size=20))
def test_an_index_that_grows_proposes_as_one_made_anew(tokens: list[int], steps: list[int]) -> None:
    growing, at = PromptLookup(), 0
    for step in steps:
        at = min(len(tokens), at + step)
        assert growing.propose(tokens[:at], 4) == PromptLookup().propose(tokens[:at], 4)


class Sometimes:
    """Proposes what will come, with mistakes: a draft of any quality."""

    def __init__(self, whole: list[int], seed: int) -> None:
        self.whole, self.draws = whole, np.random.default_rng(seed)

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        draft = self.whole[len(tokens) : len(tokens) + most]
        return [token if self.draws.random() < 0.7 else int(self.draws.integers(258)) for token in draft]


OPTIONS = [
    GenerateOptions(max_tokens=60),
    GenerateOptions(max_tokens=60, temperature=0.8, seed=4),
    GenerateOptions(max_tokens=60, temperature=1.2, seed=5, top_k=40, top_p=0.9, repetition_penalty=1.3),
    GenerateOptions(max_tokens=33, stop=("e", "a")),
]


@pytest.mark.needs_tokenizers
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_the_text_is_that_without_proposals(parts: TextParts, options: GenerateOptions, seed: int) -> None:
    with TextSession.of_parts(NumpyDecoder(seed), parts) as session:
        prompt = session.tokenizer.encode(GROUNDED)
        plain = TextStream(session, prompt, options)
        text = plain.text()
    runner = NumpyDecoder(seed)
    with TextSession.of_parts(runner, parts) as session:
        proposer = Sometimes(plain.tokens, seed)
        stream = TextStream(session, prompt, options, proposer=proposer, speculation=Speculation(True, ""))
        assert stream.text() == text
        result = stream.result
    assert (result.reason, result.tokens) == (plain.result.reason, plain.result.tokens)
    assert stream.tokens == plain.tokens
    if result.tokens > 10:
        assert result.steps < plain.result.steps
        assert 0 < result.accepted < result.proposed


@pytest.mark.needs_tokenizers
def test_a_full_context_ends_both_alike(parts: TextParts) -> None:
    texts = []
    for speculate in ("off", "lookup"):
        with TextSession.of_parts(NumpyDecoder(2, capacity=90), parts, speculate=speculate) as session:
            stream = session.generate(GROUNDED, max_tokens=80)
            texts.append((stream.text(), stream.result.reason, stream.result.tokens))
    assert texts[0] == texts[1]
    assert texts[0][1:] == ("context", 91 - len(GROUNDED))


@pytest.mark.needs_tokenizers
def test_rows_agree_where_it_is_on_and_facts_say_why(parts: TextParts) -> None:
    for runner, pads in ((NumpyDecoder(), False), (RoundedRows(), True)):
        with TextSession.of_parts(runner, parts, speculate="lookup", conversations=2) as session:
            assert runner.row_consistent is pads
            assert (runner.length, session.facts()["speculation"]["on"]) == (0, True)
    for speculate, why in (("off", "speculate is off"), ("auto", "")):
        runner = NumpyDecoder()
        with TextSession.of_parts(runner, parts, speculate=speculate) as session:
            said = session.facts()["speculation"]
            assert not runner.row_consistent
            assert why in said["why"]
    with pytest.raises(UsageError, match="speculate must be one of auto, draft, lookup, off, not 'on'"):
        TextSession.of_parts(NumpyDecoder(), parts, speculate="on")


def test_times_are_taken_once(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path))
    runner = NumpyDecoder()
    first = speculation_on(runner, "auto", "artifact and engine", 1)
    assert runner.steps > 0
    assert (runner.length, runner.row_consistent) == (0, False)
    steps = runner.steps
    assert speculation_on(runner, "auto", "artifact and engine", 1) == first
    assert runner.steps == steps
    speculation_on(runner, "auto", "another", 1)
    assert runner.steps > steps


def test_a_short_context_does_not_speculate() -> None:
    assert not speculation_on(NumpyDecoder(capacity=20), "lookup", "", 1).on


def test_it_pays_where_rows_are_cheap_and_agree_for_nothing() -> None:
    assert pays(StepTimes(10, 14, 4))[0]
    assert pays(StepTimes(10, 31, 4)) == (False, "a step of 5 rows costs 3.10 of a plain one here")


def test_a_text_in_which_little_is_accepted_goes_on_without() -> None:
    speculation = Speculation(True, "", 4, break_even=1.5)
    assert speculation.goes_on(7, 0)
    assert not speculation.goes_on(8, 3)
    assert speculation.goes_on(8, 4)


@pytest.mark.needs_tokenizers
def test_proposals_that_are_always_wrong_stop(parts: TextParts) -> None:
    class Wrong:
        asked = 0

        def propose(self, tokens: Sequence[int], most: int) -> list[int]:
            self.asked += 1
            return [257] * most

    proposer = Wrong()
    with TextSession.of_parts(NumpyDecoder(2), parts) as session:
        prompt = session.tokenizer.encode("abc")
        speculation = Speculation(True, "", 4, 1.2)
        stream = TextStream(
            session, prompt, GenerateOptions(max_tokens=40), proposer=proposer, speculation=speculation
        )
        stream.text()
    assert (stream.result.tokens, proposer.asked) == (40, 8)
