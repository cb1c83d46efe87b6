"""Chats, asyncio and metrics of a text session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.text_metrics import TextMetrics
from tests.fixtures.numpy_decoder import CHATML, STOP_ID, NumpyDecoder
from tests.generate.device.conftest import Open

pytestmark = [pytest.mark.needs_tokenizers, pytest.mark.needs_templates]


def chatting(parts: TextParts, runner: NumpyDecoder) -> TextSession:
    return TextSession.of_parts(runner, parts._replace(template=CHATML))


def test_a_chat_is_its_template_and_the_next_turn_reads_only_what_is_new(parts: TextParts) -> None:
    runner = NumpyDecoder()
    system = {"role": "system", "content": "You answer in one word, always, whatever the question."}
    with chatting(parts, runner) as session:
        messages = [system, {"role": "user", "content": "hello"}]
        first = session.chat(messages, max_tokens=8)
        answer = first.text()
        prompt = (
            f"<|im_start|>system\n{system['content']}<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        assert answer == session.generate(prompt, max_tokens=8).text()
        again = session.chat([system, {"role": "user", "content": "other"}], max_tokens=8)
        again.text()
    assert again.result.cached_tokens >= len(session.tokenizer.encode(prompt[: prompt.index("hello")]))


def test_a_model_without_a_template_says_so(opened: Open) -> None:
    with pytest.raises(UsageError, match="the model has no template of a chat; give a text to generate"):
        opened().chat([{"role": "user", "content": "x"}])


# --- asyncio ---------------------------------------------------------------------------------------------


def test_async_pieces_are_the_text(parts: TextParts) -> None:
    async def both(session: TextSession) -> list[str]:
        async with session.agenerate("hello", max_tokens=20) as stream:
            pieces = [piece async for piece in stream]
        assert stream.result.tokens == 20
        chat = session.achat([{"role": "user", "content": "x"}], max_tokens=5)
        assert await chat.text() == chat.result.text
        texts = [session.agenerate("hello", max_tokens=20).text() for _ in range(3)]
        return ["".join(pieces), *await asyncio.gather(*texts)]

    with chatting(parts, NumpyDecoder(1)) as session:
        texts = asyncio.run(both(session))
        assert set(texts) == {session.generate("hello", max_tokens=20).text()}


def test_a_task_that_is_cancelled_frees_the_decoder(parts: TextParts) -> None:
    async def cancelled(session: TextSession) -> None:
        stream = session.agenerate("hello", max_tokens=400)

        async def read() -> None:
            async with stream:
                async for _ in stream:
                    begun.set()

        begun = asyncio.Event()
        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stream.result.reason == "cancelled"

    runner = NumpyDecoder(2)
    with chatting(parts, runner) as session:
        asyncio.run(cancelled(session))
        steps = runner.steps
        assert steps < 300
        session.generate("next", max_tokens=1).text()


def test_async_errors_are_those_of_the_call(parts: TextParts) -> None:
    async def read(session: TextSession) -> None:
        stream = session.agenerate("x", max_tokens=0)
        with pytest.raises(UsageError, match="the generation has not begun"):
            _ = stream.result
        with pytest.raises(UsageError, match="max_tokens must be"):
            await stream.text()

    with chatting(parts, NumpyDecoder()) as session:
        asyncio.run(read(session))


# --- metrics ---------------------------------------------------------------------------------------------


def test_metrics_count_tokens_ends_and_times_and_hold_no_text(parts: TextParts) -> None:
    metrics = TextMetrics()
    secret = "the safe is behind the painting"

    def before(tokens: Sequence[int]) -> None:
        if STOP_ID in tokens:
            raise RuntimeError("kernel died")

    with TextSession.of_parts(
        NumpyDecoder(1, before=before), parts, metrics=metrics, speculate="lookup"
    ) as session:
        session.generate(secret, max_tokens=9).text()
        session.generate(secret, max_tokens=9).text()
        with session.generate(secret, max_tokens=9) as stream:
            next(stream)
        with pytest.raises(EngineError):
            session.generate("x<|im_end|>").text()
    found = metrics.snapshot()
    assert found["texts"] == {"length": 2, "cancelled": 1, "failed": 1}
    assert found["tokens"] == 18 + stream.result.tokens
    assert found["prompt_tokens"] == 3 * len(secret) + 2
    assert found["cached_tokens"] == 2 * (len(secret) - 1)
    assert found["engine"] == "decoder"
    stages = {stage["stage"]: stage["count"] for stage in found["stages"]}
    assert stages["first_token"] == 3
    assert stages["token"] >= 2
    assert metrics.quantile("first_token", 0.5) > 0
    assert "safe" not in json.dumps(found)
