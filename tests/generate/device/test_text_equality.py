"""By default, neither speculation nor a shared step changes a text: real engines with a tiny model.

``python -m tests.benchmarks.bench_text_equality`` does the same with a real model and 100 prompts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from edgekit.compiler.evaluate.verify import write_files
from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.decoder import BatchRunner, DecoderRunner
from edgekit.generate.device.decoder_registry import decoder_compiler, open_decoder
from edgekit.generate.device.measure_speculation import DIFFERENT, SAME, _is_exact, _key, speculation_on
from edgekit.generate.host.weights.language import quantize_decoder
from edgekit.system import timings
from edgekit.system.cpu import instruction_sets
from edgekit.tensor_spec import Array
from tests.fixtures.numpy_decoder import VOCABULARY, NumpyDecoder, RoundedRows
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
FAST = {"p50_ms": 10.0, "rows_ms": 11.0}
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


@pytest.mark.needs_ort
def test_blocks_of_128_are_multiplied_by_one_kernel_however_many_rows(tmp_path: Path) -> None:
    model = tiny_model(width=256, mlp_width=512)
    artifact = decoder_compiler("ort").compile_decoder(model, "int8", quantize_decoder(model, "int8"), 64)
    decoders = [open_decoder("ort", write_files(artifact, tmp_path), artifact.options, 1)]
    decoders += [decoders[0].another() for _ in range(4)]
    shared: dict[int, Array] = {}
    for count in (1, 2, 3, 5):
        for number, decoder in enumerate(decoders):
            decoder.truncate(0)
            decoder.forward([number, 7, 8, 9])
        batch = decoders[:count]
        shared[count] = cast(BatchRunner, batch[0]).forward_each(cast(Any, batch[1:]), [5] * count)
    assert all(np.array_equal(logits, shared[5][:count]) for count, logits in shared.items())
    one, alone = decoders[0], []
    one.row_consistent = True
    for steps in [1] * 8, [3, 5], [2, 1, 3, 2]:
        one.truncate(0)
        alone.append(np.concatenate([one.forward(range(one.length, one.length + n), n) for n in steps]))
    assert all(np.array_equal(logits, alone[0]) for logits in alone)


@pytest.mark.needs_ort
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int4"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_decoder_with_a_draft_computes_several_tokens_like_single_ones(
    precision: str, tied: bool, tmp_path: Path
) -> None:
    if "avx512_vnni" not in instruction_sets():
        pytest.skip("other processors have other kernels, which a session compares by itself")
    model = tiny_model(width=256, mlp_width=512, tied_embedding=tied, qkv_bias=tied)  # 8 bits: blocks of 128
    tokens = [index % 80 for index in range(64)]
    weights = {} if precision.startswith("fp") else quantize_decoder(model, precision, tokens * 8)
    compiler, logits = decoder_compiler("ort"), []
    for equal_rows in (False, True):
        artifact = compiler.compile_decoder(model, precision, weights, 64, (), equal_rows)
        files = write_files(artifact, tmp_path / str(equal_rows))
        decoder = open_decoder("ort", files, artifact.options, 1)
        assert _is_exact(decoder) is equal_rows
        decoder.truncate(0)
        rows = [decoder.forward(tokens[:33], 33), decoder.forward(tokens[33:63], 30)]
        logits.append(np.concatenate([*rows, decoder.forward(tokens[63:])]))  # to the end of the cache
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-4)


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
