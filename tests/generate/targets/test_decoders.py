"""Language models on every engine: logits against numpy, and the cache's promises."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from edgekit_openvino.decoder import OpenvinoDecoder
from edgekit_tflite import compile_decoder, decoder

from edgekit.compiler.evaluate.verify import write_files
from edgekit.errors import EngineError, ModelError, ProfileError, UsageError
from edgekit.generate.device.adapter import AdapterRunner
from edgekit.generate.device.decoder import BatchRunner, DecoderRunner, DecoderShape
from edgekit.generate.device.decoder_registry import decoder_compiler, open_decoder
from edgekit.generate.device.memory_plan import plan_memory
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.weights.language import quantize_decoder
from edgekit.system.cpu import instruction_sets
from tests.generate.targets.architecture_kinds import EXPERT_KINDS, KINDS
from tests.generate.targets.reference_decoder import reference_logits, tiny_model

ENGINES = [
    pytest.param("ort", marks=pytest.mark.needs_ort),
    pytest.param("openvino", marks=pytest.mark.needs_openvino),
    pytest.param("tflite", marks=pytest.mark.needs_tflite),
]
TOKENS = np.random.default_rng(5).integers(0, 80, 40).tolist()


def slides() -> bool:
    """Whether this ONNX Runtime is after 1.23."""
    return tuple(int(part) for part in version("onnxruntime").split(".")[:2]) > (1, 23)


def opened(
    target: str, model: LanguageModel, folder: Path, precision: str = "fp32", capacity: int | None = None
) -> DecoderRunner:
    artifact = decoder_compiler(target).compile_decoder(model, precision, {}, 64)
    folder.mkdir(exist_ok=True)
    return open_decoder(target, write_files(artifact, folder), artifact.options, 1, capacity)


@pytest.fixture(params=ENGINES, scope="module")
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DecoderRunner:
    return opened(request.param, tiny_model(), tmp_path_factory.mktemp("decoder"))


@pytest.mark.parametrize("target", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_reference_s(target: str, kind: str, tmp_path: Path) -> None:
    if target == "ort" and kind == "gemma" and not slides():
        pytest.skip("ONNX Runtime 1.23 has no right sliding window")
    model = tiny_model(**KINDS[kind])
    decoder = opened(target, model, tmp_path)
    expected = reference_logits(model, TOKENS)
    found = [decoder.forward(TOKENS[:17], 3), *(decoder.forward([token]) for token in TOKENS[17:])]
    assert np.abs(np.concatenate(found) - expected[14:]).max() < 1e-4


@pytest.mark.parametrize("target", ENGINES[:2])
@pytest.mark.parametrize("kind", EXPERT_KINDS)
def test_each_token_has_its_own_experts(target: str, kind: str, tmp_path: Path) -> None:
    model = tiny_model(**EXPERT_KINDS[kind])
    decoder = opened(target, model, tmp_path / "decoder")
    expected = reference_logits(model, TOKENS)
    found = [decoder.forward(TOKENS[:17], 3), *(decoder.forward([token]) for token in TOKENS[17:])]
    assert np.abs(np.concatenate(found) - expected[14:]).max() < 1e-4
    assert np.abs(expected - reference_logits(_with_other_experts(model), TOKENS)).max() > 0.1


def _with_other_experts(model: LanguageModel) -> LanguageModel:
    return replace(model, config=replace(model.config, picked_experts=model.config.picked_experts - 1))


@pytest.mark.parametrize("target", ENGINES[:2])
def test_experts_of_a_step_cost_what_the_picked_ones_do(target: str, tmp_path: Path) -> None:
    """A step with 2 of 32 experts takes far less than one with all of them."""
    seconds = {}
    for picked in (2, 32):
        model = tiny_model(width=256, mlp_width=512, experts=32, picked_experts=picked, heads=16)
        decoder = opened(target, model, tmp_path / str(picked))
        times = []
        for token in TOKENS[:24]:
            start = time.process_time()
            decoder.forward([token])
            times.append(time.process_time() - start)
        seconds[picked] = min(times)
    assert seconds[2] < 0.4 * seconds[32], seconds


@pytest.mark.needs_tflite
def test_litert_has_no_form_for_experts(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        opened("tflite", tiny_model(**EXPERT_KINDS["olmoe"]), tmp_path)
    assert str(error.value) == (
        "tiny: has experts, and this target would compute all of them for every token; build it for ort or "
        "openvino"
    )


@pytest.mark.parametrize("target", ENGINES[:2])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_adapters_are_inputs_of_the_decoder(target: str, kind: str, tmp_path: Path) -> None:
    model, random = tiny_model(**KINDS[kind]), np.random.default_rng(2)
    shapes = model.config.weight_shapes()
    matrices = {
        name: (random.normal(0, 0.1, (shapes[name][1], rank)), random.normal(0, 0.1, (rank, shapes[name][0])))
        for name, rank in ((name, 2 + len(name) % 3) for name in shapes if name.endswith("_proj.weight"))
        if "k_proj" not in name  # a gap between q and v, which are multiplied as one
    }
    added = {name: (a @ b).T.astype(np.float32) for name, (a, b) in matrices.items()}
    merged = replace(model, read=lambda name: model.read(name) + added.get(name, np.float32(0)))
    artifact = decoder_compiler(target).compile_decoder(model, "fp32", {}, 64, tuple(matrices))
    decoder = open_decoder(target, write_files(artifact, tmp_path), artifact.options, 1, None)
    other = decoder.another()
    assert isinstance(decoder, AdapterRunner)
    plain, expected = (reference_logits(each, TOKENS) for each in (model, merged))
    assert np.abs(decoder.forward(TOKENS, 40) - plain).max() < 1e-4
    decoder.adapt("one", matrices)
    assert (decoder.adapter, decoder.length) == ("one", 0)
    assert np.abs(decoder.forward(TOKENS, 40) - expected).max() < 1e-4
    assert np.abs(other.forward(TOKENS, 40) - plain).max() < 1e-4  # its neighbour has none
    decoder.row_consistent = True
    decoder.truncate(39)
    assert np.abs(decoder.forward(TOKENS[39:]) - expected[39]).max() < 1e-4
    decoder.adapt("", {})
    assert np.abs(decoder.forward(TOKENS, 40) - plain).max() < 1e-4


def test_a_shortened_cache_goes_on_as_if_nothing_had_been_there(runner: DecoderRunner) -> None:
    runner.truncate(0)
    runner.forward(TOKENS[:20])
    expected = runner.forward(TOKENS[20:21])
    runner.forward(TOKENS[30:36])
    runner.truncate(20)
    assert runner.length == 20
    np.testing.assert_allclose(runner.forward(TOKENS[20:21]), expected, atol=1e-5)


def test_a_saved_cache_is_restored_also_in_another_conversation_and_in_part(runner: DecoderRunner) -> None:
    runner.truncate(0)
    runner.forward(TOKENS[:20])
    saved = runner.save()
    assert saved.shape == (4, 2, 20, 16)
    expected = runner.forward(TOKENS[20:22], 2)
    other = runner.another()
    assert other.length == 0
    other.restore(saved[:, :, :18])
    other.forward(TOKENS[18:20])
    np.testing.assert_allclose(other.forward(TOKENS[20:22], 2), expected, atol=1e-5)
    runner.forward(TOKENS[:10])
    runner.restore(saved)
    np.testing.assert_allclose(runner.forward(TOKENS[20:22], 2), expected, atol=1e-5)


def test_rows_are_consistent_where_that_is_asked_for(runner: DecoderRunner) -> None:
    runner.row_consistent = True
    runner.truncate(0)
    many = runner.forward(TOKENS[:8], 8)
    runner.truncate(0)
    single = np.concatenate([runner.forward([token]) for token in TOKENS[:8]])
    runner.row_consistent = False
    np.testing.assert_allclose(single, many, atol=1e-5)


def test_the_whole_capacity_can_be_used_and_no_more(runner: DecoderRunner) -> None:
    runner.truncate(0)
    runner.row_consistent = True
    runner.forward((TOKENS * 2)[:63])
    assert runner.forward([1]).shape == (1, 80)
    runner.row_consistent = False
    with pytest.raises(UsageError, match="1 tokens do not fit into the cache: it has 64 of 64"):
        runner.forward([1])
    assert runner.length == 64


def test_wrong_calls_are_refused_and_change_nothing(runner: DecoderRunner) -> None:
    runner.truncate(0)
    runner.forward(TOKENS[:4])
    for tokens, rows in (([], 1), ([80], 1), ([-1], 1), ([1, 2], 3), ([1], 0)):
        with pytest.raises(UsageError):
            runner.forward(tokens, rows)
    with pytest.raises(UsageError, match="can't be cut to 5 tokens: it holds 4"):
        runner.truncate(5)
    with pytest.raises(UsageError, match=r"float32 \[4, 2, tokens, 16\]"):
        runner.restore(np.zeros((4, 2, 3, 8), np.float32))
    assert runner.length == 4


@pytest.mark.parametrize("target", ENGINES)
def test_an_unknown_precision(target: str) -> None:
    compiler = decoder_compiler(target)
    with pytest.raises(UsageError) as error:
        compiler.compile_decoder(tiny_model(), "fp8", {}, 64)
    known = ", ".join(compiler.PRECISIONS)
    assert str(error.value) == f"{target} supports {known} for language models, not fp8"


@pytest.mark.needs_ort
def test_a_sliding_window_needs_an_engine_that_computes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime 1.23.2, by its version: this one is another."""
    monkeypatch.setattr("edgekit_ort.decoder.engine_version", lambda: "ONNX Runtime 1.23.2")
    with pytest.raises(
        EngineError, match="computes a sliding window of 9 tokens wrongly, and the cache holds 64"
    ):
        opened("ort", tiny_model(**KINDS["gemma"]), tmp_path / "whole")
    assert opened("ort", tiny_model(**KINDS["gemma"]), tmp_path / "short", capacity=9).capacity == 9


def test_memory_is_known_before_loading() -> None:
    shape = DecoderShape(30, 3, 64, 49152, 2048)
    assert shape.cache_bytes(1000) == 2 * 30 * 3 * 64 * 1000 * 4
    assert shape._replace(fixed=True).cache_bytes(1000) == shape.cache_bytes(2048)
    assert DecoderShape.from_options({"decoder": shape.as_json()}) == shape


@pytest.mark.needs_tflite
@pytest.mark.parametrize("kind", KINDS)
def test_litert_reads_a_prompt_by_a_program_of_its_own(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_decoder, "PROMPT_TOKENS", 8)
    runs: list[int] = []
    run = decoder._Program.run

    def counted(self: decoder._Program, tokens: list[int], length: int) -> None:
        runs.append(len(tokens))
        run(self, tokens, length)

    monkeypatch.setattr(decoder._Program, "run", counted)
    model = tiny_model(**KINDS[kind])
    found = opened("tflite", model, tmp_path)
    expected = reference_logits(model, TOKENS)
    assert np.abs(found.forward(TOKENS[:23], 2) - expected[21:23]).max() < 1e-4
    assert runs == [8, 8, 5, 1, 1]
    # What one token wrote, what was cut and what another took the place of, both programs know of.
    texts = {found: TOKENS[:23]}

    def goes_on(runner: DecoderRunner, *parts: list[int]) -> None:
        for part in parts:
            texts[runner] = [*texts[runner][: runner.length], *part]
            logits = runner.forward(part)
            assert np.abs(logits - reference_logits(model, texts[runner])[-1]).max() < 1e-4

    goes_on(found, TOKENS[23:])
    found.truncate(21)
    goes_on(found, TOKENS[:1], TOKENS[3:15])
    beside = found.another()
    texts[beside] = []
    goes_on(beside, TOKENS[5:6], TOKENS[7:40])
    found.truncate(30)
    goes_on(found, TOKENS[:10])
    # To the end of the cache: a run has places for more tokens than are left.
    whole = np.random.default_rng(1).integers(0, 80, 64).tolist()
    beside.truncate(0)
    goes_on(beside, whole)
    saved = beside.save()
    found.truncate(0)
    goes_on(found, TOKENS)
    for runner in (found, beside):
        runner.restore(saved[:, :, :20])
        texts[runner] = whole
        goes_on(runner, whole[30:])


@pytest.mark.needs_tflite
def test_litert_has_a_program_for_prompts_where_it_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, compiled = tiny_model(), decoder_compiler("tflite").compile_decoder
    weights = quantize_decoder(model, "int8")
    whole = compiled(model, "int8", weights, 64)
    assert whole.options["prompt"] == 32
    shape = DecoderShape.from_options(whole.options)
    plan = plan_memory(whole.options, 0, None, 1, 0)
    assert plan.weights_bytes == whole.options["extra_bytes"] > shape.cache_bytes(64)
    floats = compiled(model, "fp32", {}, 64).options
    assert floats["prompt"] == 32
    cache = shape.cache_bytes(64)
    assert floats["extra_bytes"] - cache == 4 * (whole.options["extra_bytes"] - cache)
    assert "prompt" not in compiled(model, "int8", weights, 32).options
    monkeypatch.setattr(compile_decoder, "PROMPT_LIMIT_BYTES", 1000)
    single = compiled(model, "int8", weights, 64)
    assert "prompt" not in single.options
    assert len(single.files["model.tflite"]) < len(whole.files["model.tflite"])
    # The same int8 weights, read in both ways: inputs are rounded a token at a time in both.
    texts = []
    for name, artifact in (("whole", whole), ("single", single)):
        (tmp_path / name).mkdir()
        files = write_files(artifact, tmp_path / name)
        texts.append(open_decoder("tflite", files, artifact.options, 1, None).forward(TOKENS))
    assert np.square(texts[1]).sum() > 1e4 * np.square(texts[0] - texts[1]).sum()


@pytest.mark.needs_openvino
def test_openvino_computes_integers_variants_in_bf16_where_the_processor_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model()
    artifact = decoder_compiler("openvino").compile_decoder(
        model, "int8", quantize_decoder(model, "int8"), 64
    )
    files = write_files(artifact, tmp_path)
    arithmetic, exact, logits = [], [], []
    for instructions in (instruction_sets(), ()):
        monkeypatch.setattr("edgekit_openvino.decoder.instruction_sets", lambda sets=instructions: sets)
        whole = open_decoder("openvino", files, artifact.options, 1, None)
        arithmetic.append(whole.facts()["arithmetic"])
        logits.append(whole.forward(TOKENS[:30], 8))
        whole.row_consistent = True  # the cache goes on in another model
        exact.append((whole.facts()["arithmetic"], whole.length))
        logits.append(whole.forward(TOKENS[30:]))
    bf16 = not {"avx512_bf16", "amx_bf16"}.isdisjoint(instruction_sets())
    assert arithmetic == ["bf16" if bf16 else "fp32", "fp32"]
    assert exact == [("fp32", 30)] * 2
    for ours, others in zip(logits[:2], logits[2:], strict=True):
        off = np.square(ours - others).sum() / np.square(others).sum()
        assert 1e-8 < off < 1e-2 if bf16 else off == 0
    floats = opened("openvino", model, tmp_path / "fp32")
    assert floats.facts()["arithmetic"] == "fp32"


@pytest.mark.needs_openvino
def test_openvino_rotates_by_one_kernel(tmp_path: Path) -> None:
    artifact = decoder_compiler("openvino").compile_decoder(tiny_model(), "fp32", {}, 64)
    found = open_decoder("openvino", write_files(artifact, tmp_path), artifact.options, 1, None)
    assert isinstance(found, OpenvinoDecoder)
    kinds = [
        node.get_rt_info()["layerType"].astype(str) for node in found._compiled.get_runtime_model().get_ops()
    ]
    assert kinds.count("RoPE") == 2 * tiny_model().config.layers


@pytest.mark.needs_ort
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_rows_of_several_texts_do_not_depend_on_each_other(precision: str, tmp_path: Path) -> None:
    model = tiny_model()
    weights = {} if precision == "fp32" else quantize_decoder(model, precision)
    artifact = decoder_compiler("ort").compile_decoder(model, precision, weights, 64)
    files = write_files(artifact, tmp_path)
    first = open_decoder("ort", files, artifact.options, 1, None)
    assert isinstance(first, BatchRunner)
    texts, next_tokens = [TOKENS[:20], TOKENS[5:12], TOKENS[30:]], [3, 1, 4]
    first.forward(texts[0])
    plain = first.forward(next_tokens[:1])
    first.truncate(20)
    alone = [first.forward_each([], next_tokens[:1])]
    np.testing.assert_array_equal(alone[0], plain)
    assert first.length == 21
    first.truncate(20)
    others = [first.another(), first.another()]
    for other, text, token in zip(others, texts[1:], next_tokens[1:], strict=True):
        other.forward(text)
        alone.append(other.forward_each([], [token]))  # type: ignore[attr-defined]
        other.truncate(len(text))
    together = first.forward_each(others, next_tokens)
    assert [first.length, others[0].length, others[1].length] == [21, 8, 11]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    for each in (first, *others):
        each.truncate(each.length - 1)
    apart = others[1].forward_each([first], [4, 3])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(apart, together[[2, 0]])
    assert others[0].length == 7
    np.testing.assert_array_equal(others[0].forward_each([], [1]), together[1:2])  # type: ignore[attr-defined]
    # Cut by the step of many, its cache goes on in forward as if it had been alone.
    expected = reference_logits(model, [*texts[1], 1, 9])[-1] if precision == "fp32" else None
    found = others[0].forward([9])
    if expected is not None:
        assert np.abs(found[0] - expected).max() < 1e-4
    with pytest.raises(UsageError, match="is not in the vocabulary"):
        first.forward_each(others, [1, 2, 80])
    others[0].close()
    assert first.another().length == 0


FORKS = """
import os
from edgekit.generate.device.decoder import DecoderShape
from edgekit_ort.decoder import _Caches
caches = _Caches(None, DecoderShape(1, 1, 2, 4, 8), 8, {})
caches.take()
pid = os.fork()
if not pid:
    caches.parts[0][...] = 1
    os._exit(0)
os.waitpid(pid, 0)
print(caches.parts[0].max())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_caches_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert done.stdout == "0.0\n"


@pytest.mark.parametrize("choose", [decoder_compiler, lambda name: open_decoder(name, {}, {}, 1, None)])
def test_a_target_without_language_models_says_so(choose: Callable[[str], object]) -> None:
    with pytest.raises(ProfileError, match=r"^ncnn does not run language models$"):
        choose("ncnn")
