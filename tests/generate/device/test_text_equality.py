"""By default, neither speculation nor a shared step changes a text: real engines with a tiny model.

``python -m tests.benchmarks.bench_text_equality`` does the same with a real model and 100 prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgekit.compiler.evaluate.verify import write_files
from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.decoder import DecoderRunner
from edgekit.generate.device.decoder_registry import decoder_compiler, open_decoder
from edgekit.generate.device.measure_speculation import DIFFERENT, SAME, _is_exact, _key, speculation_on
from edgekit.generate.host.weights.language import quantize_decoder
from edgekit.system import timings
from edgekit.tensor_spec import Array
from tests.fixtures.numpy_decoder import VOCABULARY, NumpyDecoder
from tests.generate.targets.reference_decoder import tiny_model

pytestmark = pytest.mark.needs_tokenizers
ENGINES = [
    pytest.param(target, precision, marks=getattr(pytest.mark, f"needs_{target}"))
    for target, precisions in {
        "ort": ("fp32", "int8"), "openvino": ("fp32", "int8"), "tflite": ("fp32", "int8"),
    }.items()
    for precision in precisions
]  # fmt: skip
PROMPTS = [
    f"{word} sat on the mat. the {word} sat on the" for word in ("cat", "dog", "1, 2, 3", "é", "a b", "x")
]
CONTEXT = 128
FAST = {"p50_ms": 10.0, "consistent_ms": 10.0, "rows_ms": 11.0}
INEXACT = "a step of 5 rows rounds differently than 5 steps here, which may change a text"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def runner(target: str, precision: str, tmp_path: Path) -> DecoderRunner:
    model = tiny_model(vocabulary=VOCABULARY, context_length=CONTEXT)
    weights = {} if precision == "fp32" else quantize_decoder(model, precision)
    artifact = decoder_compiler(target).compile_decoder(model, precision, weights, CONTEXT)
    files = write_files(artifact, tmp_path)
    return open_decoder(target, files, artifact.options, 1, CONTEXT)


def texts_alone(runner: DecoderRunner, parts: TextParts) -> list[str]:
    """Each text in a session of its own."""
    texts = []
    for prompt in PROMPTS:
        with TextSession.of_parts(runner.another(), parts) as session:
            texts.append(session.generate(prompt, max_tokens=24).text())
    return texts


@pytest.mark.parametrize(("target", "precision"), ENGINES)
def test_speculation_that_is_on_by_itself_changes_no_text(
    runner: DecoderRunner, target: str, precision: str, parts: TextParts
) -> None:
    """Behave as on a device on which speculation is faster."""
    exact = _is_exact(runner)
    assert exact or target != "tflite"  # which runs each token by itself
    timings.record(_key("tiny", 1), {**FAST, "logits": SAME if exact else DIFFERENT})
    texts, accepted = [], 0
    for prompt in PROMPTS:
        with TextSession.of_parts(runner.another(), parts, identity="tiny", speculate="auto") as session:
            stream = session.generate(prompt, max_tokens=24)
            texts.append(stream.text())
            accepted += stream.result.accepted
            assert session.facts()["speculation"]["on"] is exact
    assert texts == texts_alone(runner, parts)
    assert accepted or (target, precision) != ("tflite", "fp32")


@pytest.mark.parametrize(("target", "precision"), ENGINES[:2])
def test_a_shared_step_changes_no_text(runner: DecoderRunner, parts: TextParts) -> None:
    with TextSession.of_parts(runner.another(), parts, conversations=3) as session:
        streams = [session.generate(prompt, max_tokens=24) for prompt in PROMPTS]
        with ThreadPoolExecutor(3) as pool:
            texts = list(pool.map(lambda stream: stream.text(), streams))
    assert texts == texts_alone(runner, parts)


class RoundedRows(NumpyDecoder):
    """A decoder that rounds the rows of a step differently than a single one."""

    def forward(self, tokens: Sequence[int], rows: int = 1) -> Array:
        logits = super().forward(tokens, rows)
        return logits * logits.dtype.type(1.0001) if len(tokens) > 1 or self.row_consistent else logits


def test_logits_are_compared_and_the_result_is_stored() -> None:
    for decoder, exact in ((NumpyDecoder, True), (RoundedRows, False)):
        assert _is_exact(decoder()) is exact
    speculation_on(RoundedRows(), "auto", "rounded", 1)
    assert (timings.recall(_key("rounded", 1)) or {})["logits"] == DIFFERENT


def test_where_rows_are_rounded_differently_only_who_asks_for_it_speculates() -> None:
    timings.record(_key("rounded", 1), {**FAST, "logits": DIFFERENT})
    timings.record(_key("exact", 1), {**FAST, "logits": SAME})
    timings.record(_key("earlier", 1), FAST)  # as earlier versions wrote it: it is measured anew
    speculation = speculation_on(RoundedRows(), "auto", "rounded", 1)
    assert (speculation.on, speculation.reason) == (False, INEXACT)
    assert speculation_on(NumpyDecoder(), "auto", "exact", 1).on
    assert speculation_on(RoundedRows(), "auto", "earlier", 1).reason == INEXACT
    assert speculation_on(RoundedRows(), "lookup", "rounded", 1).on
