"""A text session on a small decoder with a real cache: the text, its end, its cache, cancelling."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.generate import TextParts, TextStream
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.text_tokens import TextTokenizer
from tests.fixtures.numpy_decoder import STOP_ID, NumpyDecoder
from tests.generate.device.conftest import Open

pytestmark = pytest.mark.needs_tokenizers
SECRET = "the safe is behind the painting"


def greedy(tokenizer: TextTokenizer, prompt: str, most: int, seed: int = 0) -> str:
    """The text by whole passes over all tokens, without any cache."""
    tokens, made = tokenizer.encode(prompt), 0
    while made < most and tokens[-1] != STOP_ID:
        tokens.append(int(NumpyDecoder(seed).forward(tokens)[0].argmax()))
        made += 1
    return tokenizer.decode(tokens[-made:])


@pytest.mark.parametrize("prompt", ["a", "hello wörld", "😀" * 20])
def test_the_text_is_that_of_whole_passes(opened: Open, prompt: str) -> None:
    session = opened()
    stream = session.generate(prompt, max_tokens=40)
    assert stream.text() == greedy(session.tokenizer, prompt, 40) == stream.result.text


def test_pieces_come_as_they_are_made(opened: Open) -> None:
    runner = NumpyDecoder(1)
    stream = opened(runner).generate("a", max_tokens=20)
    assert runner.steps == 0
    next(stream)
    assert 0 < runner.steps < 10
    rest = list(stream)
    assert all(rest)
    result = stream.result
    assert (result.reason, result.tokens, result.prompt_tokens) == ("length", 20, 1)
    assert result.steps == 19


def test_the_model_ends_its_text(opened: Open) -> None:
    stream = opened().generate("hello wörld", max_tokens=200)
    text = stream.text()
    assert stream.result.reason == "stop"
    assert "<|im_end|>" not in text
    assert stream.tokens[-1] == STOP_ID


def test_a_seed_gives_the_same_text_again(opened: Open) -> None:
    session = opened()
    texts = [session.generate("a", max_tokens=30, temperature=1.0, seed=seed).text() for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_a_stop_word_ends_the_text_before_it(opened: Open) -> None:
    session = opened()
    whole = session.generate("hello", max_tokens=40).text()
    at = next(i for i in range(5, len(whole) - 3) if whole.find(whole[i : i + 3]) == i)
    stream = session.generate("hello", max_tokens=40, stop=[whole[at : at + 3]])
    assert stream.text() == whole[:at]
    assert stream.result.reason == "stop"


def test_the_context_ends_the_text(opened: Open) -> None:
    runner = NumpyDecoder(2, capacity=24)
    session = opened(runner)
    stream = session.generate("x" * 20, max_tokens=40)
    stream.text()
    assert (stream.result.reason, stream.result.tokens) == ("context", 5)
    with pytest.raises(UsageError, match=r"^the prompt has 25 tokens, and the context is 24: shorten it"):
        session.generate("x" * 25)
    with pytest.raises(UsageError, match=r"^the prompt has no tokens"):
        session.generate("")


# --- the cache -------------------------------------------------------------------------------------------


def test_a_text_that_goes_on_is_not_read_again(opened: Open) -> None:
    runner = NumpyDecoder()
    session = opened(runner)
    first = session.generate("system: be kind. user: hi", max_tokens=10)
    text = first.text()
    read = runner.computed
    second = session.generate("system: be kind. user: hi" + " and more", max_tokens=1)
    second.text()
    assert runner.computed - read == len(" and more")
    assert second.result.cached_tokens == 25
    assert text


def test_a_text_is_the_same_with_and_without_what_was_read_before(opened: Open) -> None:
    prompts = ["once upon a time in the west " * 2 + end for end in ("there", "there was", "a")] + [
        "other " * 9
    ]
    for kept_bytes in (0, 1 << 20):
        session = opened(kept_bytes=kept_bytes)
        for prompt in (*prompts, *prompts):
            text = session.generate(prompt, max_tokens=12).text()
            assert text == opened().generate(prompt, max_tokens=12).text()


def test_another_text_is_saved_and_found_again(opened: Open) -> None:
    runner = NumpyDecoder()
    session = opened(runner)
    prompts = ["a long system prompt, forty letters or so", "b " * 30]
    for prompt in prompts:
        session.generate(prompt, max_tokens=1).text()
    read = runner.computed
    for prompt in prompts:
        session.generate(prompt, max_tokens=1).text()
    assert runner.computed - read == 2
    assert session.facts()["kept"] == 2


def test_kept_caches_have_a_limit(opened: Open) -> None:
    cache = NumpyDecoder().shape.cache_bytes(1)
    session = opened(kept_bytes=100 * cache)
    for letter in "abcdefgh":
        session.generate(letter * 40, max_tokens=1).text()
        assert session.facts()["kept_bytes"] <= 100 * cache
    assert session.facts()["kept"] == 2


# --- several at once -------------------------------------------------------------------------------------


@pytest.mark.parametrize("conversations", [1, 3])
def test_texts_in_turns_are_those_alone(opened: Open, conversations: int) -> None:
    prompts = [f"{word} " * 12 for word in ("red", "green", "blue")]
    alone = [opened().generate(prompt, max_tokens=20).text() for prompt in prompts]
    runner = NumpyDecoder()
    session = opened(runner, conversations=conversations)
    streams = [session.generate(prompt, max_tokens=20) for prompt in prompts]
    texts = ["", "", ""]
    for _ in range(30):
        for index, stream in enumerate(streams):
            texts[index] += next(stream, "")
    assert texts == alone
    assert session.facts()["caches"] == conversations


def test_threads_generate_at_once(opened: Open) -> None:
    prompts = [f"conversation {index}" for index in range(4)]
    alone = [opened(NumpyDecoder(2)).generate(prompt, max_tokens=50).text() for prompt in prompts]
    for conversations in (1, 4):
        session = opened(NumpyDecoder(2), conversations=conversations)
        with ThreadPoolExecutor(4) as pool:
            streams = [session.generate(prompt, max_tokens=50) for prompt in prompts]
            assert list(pool.map(TextStream.text, streams)) == alone


# --- its end ---------------------------------------------------------------------------------------------


def test_cancel_from_another_thread_frees_within_one_step(opened: Open) -> None:
    session = opened(runner := NumpyDecoder(2))
    stream = session.generate("a", max_tokens=400)
    next(stream)
    steps = runner.steps

    def cancel() -> None:
        stream.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    thread.join()
    list(stream)
    assert runner.steps == steps
    assert stream.result.reason == "cancelled"


def test_cancel_ends_the_reading_of_a_long_prompt(opened: Open) -> None:
    runner = NumpyDecoder(before=lambda tokens: stream.cancel())
    stream = opened(runner).generate("x" * 500, max_tokens=4)
    assert stream.text() == ""
    assert (runner.steps, stream.result.reason, stream.result.tokens) == (1, "cancelled", 0)


def test_a_deadline_ends_it_with_what_was_made(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("edgekit.generate.device.text_stream.time.monotonic", lambda: now[0])

    def before(tokens: Sequence[int]) -> None:
        now[0] += 0.010

    stream = opened(NumpyDecoder(2, before=before)).generate("a", max_tokens=400, deadline_ms=95)
    stream.text()
    assert (stream.result.reason, stream.result.tokens) == ("timeout", 10)
    assert stream.result.first_token_ms == pytest.approx(10)
    assert stream.result.total_ms == pytest.approx(100)
    assert stream.result.tokens_per_s == pytest.approx(100)


def test_with_ends_it(opened: Open) -> None:
    session = opened()
    with session.generate("a", max_tokens=400) as stream:
        with pytest.raises(UsageError, match="the generation has not ended"):
            _ = stream.result
        piece = next(stream)
    assert (stream.result.reason, stream.result.text) == ("cancelled", piece)
    assert list(stream) == []


def test_a_closed_session_says_so(opened: Open) -> None:
    runner = NumpyDecoder()
    session = opened(runner)
    stream = session.generate("a")
    next(stream)
    session.close()
    session.close()
    assert runner.closed
    with pytest.raises(UsageError, match="the text session is closed"):
        next(stream)
    assert stream.result.reason == "failed"
    with pytest.raises(UsageError, match="the text session is closed"):
        session.generate("a")


def test_logits_that_are_no_numbers_are_an_error(opened: Open) -> None:
    runner = NumpyDecoder()
    runner.output[7, 0] = np.nan
    with pytest.raises(
        EngineError, match=r"^decoder does not run: the decoder's logits are NaN or infinite$"
    ):
        opened(runner).generate("a").text()


def test_nothing_of_a_text_is_in_an_error_or_a_repr(opened: Open, parts: TextParts) -> None:
    def before(tokens: Sequence[int]) -> None:
        raise RuntimeError("kernel died")

    session = opened(NumpyDecoder(before=before))
    stream = session.generate(SECRET)
    with pytest.raises(EngineError) as caught:
        stream.text()
    made = GeneratedText(SECRET, "stop", 1, 0, 1, 1.0, 1.0)
    shown = f"{caught.value} {stream!r} {stream.result!r} {session!r} {made!r} {made.as_json()}"
    assert "kernel died" in shown
    assert "safe" not in shown
    with pytest.raises(UsageError) as refused:
        session.generate(SECRET * 1000)
    assert "safe" not in str(refused.value)
