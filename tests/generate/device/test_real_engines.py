"""Text sessions on real engines, with a tiny model: speculation, turns on one cache, and what was read
before."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.evaluate.verify import write_files
from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.decoder_registry import decoder_compiler, open_decoder
from edgekit.generate.device.options import GenerateOptions
from edgekit.generate.device.speculation import PromptLookup, Speculation
from edgekit.generate.device.text_stream import TextStream
from tests.fixtures.numpy_decoder import VOCABULARY
from tests.generate.targets.reference_decoder import tiny_model

pytestmark = pytest.mark.needs_tokenizers
ENGINES = [
    pytest.param("ort", marks=pytest.mark.needs_ort),
    pytest.param("openvino", marks=pytest.mark.needs_openvino),
]
PROMPTS = (
    "the cat sat on the mat. the dog sat on the mat. the",
    "1, 2, 3, 4, 1, 2, 3, 4, 1, 2",
    "a short one",
)
CONTEXT = 160


@pytest.fixture(scope="module", params=ENGINES)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def session(target: str, parts: TextParts, tmp_path_factory: pytest.TempPathFactory) -> TextSession:
    folder = tmp_path_factory.mktemp("decoder")
    model = tiny_model(vocabulary=VOCABULARY, context_length=CONTEXT)
    artifact = decoder_compiler(target).compile_decoder(model, "fp32", {}, CONTEXT)
    runner = open_decoder(target, write_files(artifact, folder), artifact.options, 1, CONTEXT)
    runner.row_consistent = True
    return TextSession.of_parts(runner, parts)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_speculation_gives_the_same_text(session: TextSession, temperature: float) -> None:
    options = GenerateOptions(max_tokens=48, temperature=temperature, seed=3)
    accepted = 0
    for prompt in PROMPTS:
        tokens = session.tokenizer.encode(prompt)
        plain = TextStream(session, tokens, options)
        text = plain.text()
        guessed = TextStream(
            session, tokens, options, proposer=PromptLookup(), speculation=Speculation(True, "")
        )
        assert guessed.text() == text
        assert guessed.tokens == plain.tokens
        accepted += guessed.result.accepted
    assert temperature or accepted > 0


def test_texts_in_turns_on_one_cache_are_those_alone(session: TextSession) -> None:
    alone = [session.generate(prompt, max_tokens=24).text() for prompt in PROMPTS]
    streams = [session.generate(prompt, max_tokens=24) for prompt in PROMPTS]
    texts = [""] * len(streams)
    for _ in range(24):
        for index, stream in enumerate(streams):
            texts[index] += next(stream, "")
    assert texts == alone


def test_what_was_read_is_not_read_again(session: TextSession) -> None:
    session.generate(PROMPTS[0], max_tokens=2).text()
    session.generate(PROMPTS[1], max_tokens=2).text()
    stream = session.generate(PROMPTS[0] + " end", max_tokens=2)
    stream.text()
    assert stream.result.cached_tokens == len(PROMPTS[0])


def test_facts_are_those_of_the_engine(session: TextSession, target: str, tmp_path: Path) -> None:
    found = session.facts()
    assert found["context"] == CONTEXT
    if target == "ort":
        assert found["providers"] == ["CPUExecutionProvider"]
