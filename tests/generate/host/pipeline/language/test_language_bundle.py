"""A language model from its file to a bundle, with ONNX Runtime."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import read_card_file
from edgekit.cli import main
from edgekit.compiler.bench.bench import bench
from edgekit.compiler.evaluate.run_bundle import run_files
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.compiler.explain.explain import explain
from edgekit.errors import ModelError, UsageError
from edgekit.generate.device import decoder_registry
from edgekit.generate.host.judge import evaluation
from edgekit.generate.host.pipeline.language import language_bundle, variants
from edgekit.generate.host.weights.language.decoder_weights import BARS
from edgekit.processing.generation import is_generation, read_generation
from edgekit.runtime import Session
from tests.fixtures.gguf_architectures import write_architecture
from tests.fixtures.gguf_files import F32, Q4_1, write_tiny

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("language")
    path = write_tiny(folder / "tiny.gguf")
    edgekit.build(path, targets=["ort"]).save(folder / "tiny.edgekit")
    return Bundle.open(folder / "tiny.edgekit")


def test_the_card_has_what_generation_needs(built: Bundle) -> None:
    assert is_generation(built.card)
    card = read_generation(built.card or {}, "card")
    assert (card.title, card.stop_ids, card.bos_id, card.context_length) == ("tiny", (2,), None, 128)
    assert card.about == {"license": "apache-2.0"}
    assert card.as_json() == built.card
    assert json.loads(read_card_file(built, card.tokenizer))["model"]["type"] == "BPE"
    assert b"<|im_start|>" in read_card_file(built, card.chat_template)


def test_a_variant_is_judged_on_the_text_and_the_prompts(built: Bundle) -> None:
    (variant,) = built.variants
    assert variant.verified, variant.status
    found = variant.evidence["generation"]
    assert found["perplexity"] == pytest.approx(found["float_perplexity"], rel=1e-4)
    assert found["agreement"] > 0.999
    assert found["greedy"]["likeliest"] == found["greedy"]["of"]
    assert variant.evidence["accuracy"]["logits"]["snr_db"] > 80
    assert variant.evidence["timing"]["prompt_token_ms"] > 0


def test_golden_logits_are_those_of_the_variant_that_a_device_loads(built: Bundle, tmp_path: Path) -> None:
    (variant,) = built.variants
    assert list(built.manifest["extensions"]) == ["language_model"]  # no draft
    golden = built.manifest["extensions"]["language_model"]
    logits = np.load(io.BytesIO(built.read(golden["logits"])))
    files = {}
    for name, entry in variant.files.items():
        files[name] = tmp_path / name
        files[name].write_bytes(built.read(entry))
    runner = decoder_registry.open_decoder("ort", files, variant.options, 1)
    for prompt, expected in zip(golden["prompts"], logits, strict=True):
        runner.truncate(0)
        assert np.allclose(runner.forward(prompt)[-1], expected, atol=1e-3)
    runner.close()


def test_the_report_has_the_perplexity(built: Bundle) -> None:
    first, row, *_, basis = built.report.splitlines()
    assert first.split() == [
        "target",
        "variant",
        "perplexity",
        "over",
        "float's",
        "expected",
        "top-1",
        "size",
        "SNR",
        "a",
        "token",
        "at",
        "build",
        "verified",
    ]
    assert f"{built.variants[0].evidence['generation']['perplexity']:.2f}" in row
    kinds = built.variants[0].evidence["generation"]["kinds"]
    assert "  chat +0.0 %, code +0.0 %, prose +0.0 %  +0.0 %  " in row
    order = ("prose", "code", "chat")
    whole = ", ".join(f"{kinds[kind]['float_perplexity']:.2f} on {kind}" for kind in order)
    assert f" tokens of text, where its perplexity is {whole}; " in basis


def test_the_golden_prompts_are_run_again_by_verify(built: Bundle) -> None:
    (check,) = verify_bundle(built)
    assert check.outcome is CheckOutcome.VERIFIED, check.reason
    assert check.outputs["logits"].snr_db is None or check.outputs["logits"].snr_db > 80


def test_verify_fails_where_the_logits_are_others(tmp_path: Path) -> None:
    first, other = (write_tiny(tmp_path / f"{seed}.gguf", seed=seed) for seed in (0, 1))
    bundle, wrong = (edgekit.build(path, targets=["ort"]) for path in (first, other))
    entries = {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}
    entries["golden/logits.npy"] = bytes(wrong.read("golden/logits.npy"))
    manifest = {k: v for k, v in bundle.manifest.items() if k not in ("format", "version", "entries")}
    (check,) = verify_bundle(Bundle.create(manifest, entries))
    assert check.outcome is CheckOutcome.FAILED
    assert check.reason.startswith("logits: SNR ")


@pytest.mark.parametrize("use", [Session, bench, explain, lambda bundle: run_files(bundle, {})])
def test_what_runs_on_arrays_refuses_it(built: Bundle, use: Callable[[Bundle], object]) -> None:
    with pytest.raises(UsageError) as raised:
        use(built)
    assert str(raised.value) == (
        f"{built.name} has a language model, which does not run on arrays: use edgekit generate, or "
        "edgekit.generate.TextSession"
    )


def test_a_precision_that_misses_its_bar_is_rejected_and_a_more_accurate_one_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = {**BARS, "fp16": BARS["fp16"]._replace(logits_db=300.0)}
    monkeypatch.setattr(language_bundle, "BARS", strict)
    bundle = edgekit.build(write_tiny(tmp_path / "tiny.gguf"), targets=["ort"], precision="fp16")
    assert [variant.name for variant in bundle.variants] == ["ort-fp16", "ort-fp32"]
    rejected, kept = bundle.variants
    assert rejected.rejected
    assert rejected.reason.endswith("300 dB is required")
    assert not rejected.files
    assert kept.verified


def test_a_variant_must_be_good_on_each_kind_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = evaluation.written_by

    def worse_in_code(runner: Any, reference: evaluation.TextReference, *more: Any) -> Any:
        texts = real(runner, reference, *more)
        loss = {"code": 0.002}
        rows = [row - loss.get(kind, 0) for row, kind in zip(texts.likelihoods, reference.kinds, strict=True)]
        return texts._replace(likelihoods=rows)

    monkeypatch.setattr(variants, "written_by", worse_in_code)
    path = write_tiny(tmp_path / "tiny.gguf")
    (variant,) = edgekit.build(path, targets=["ort"], trusted=True).variants
    figures = variant.evidence["generation"]
    assert figures["perplexity"] / figures["float_perplexity"] < 1.001  # of all texts together
    assert variant.status.startswith("rejected: perplexity ")
    assert re.search(r" on code, 0.2 % .* above the float model's [0-9.]+; 0.1 % is allowed$", variant.status)


@pytest.mark.parametrize("kind", [F32, Q4_1])
def test_weights_as_integers_are_judged_too(tmp_path: Path, kind: int) -> None:
    """int8, and int4 on the file's own grid or fitted."""
    path = write_tiny(tmp_path / "tiny.gguf", kind)
    bundle = edgekit.build(path, targets=["ort"], precision="auto", max_drop="50%")
    int4, int8, *_ = bundle.variants
    assert (int4.name, int8.name) == ("ort-int4", "ort-int8")
    assert int8.verified, int8.status
    figures = int8.evidence["generation"]
    assert figures["perplexity"] == pytest.approx(figures["float_perplexity"], rel=0.05)
    assert int8.evidence["size_bytes"] < 200_000
    if kind == Q4_1:
        assert int4.verified, int4.status
        assert int4.evidence["generation"]["agreement"] > 0.8


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    first, again = (edgekit.build(path, targets=["ort"]) for _ in range(2))
    assert again.digest == first.digest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": "x"}, "samples: does not apply to language models; leave it out"),
        (
            {"precision": "bf16"},
            "language models cannot be built as 'bf16'; available: fp32, fp16, int8, int4, auto",
        ),
        ({"context": 129}, "context is 129; tiny supports 64 to 128 tokens"),
        (
            {"max_drop": "24dB"},
            "max_drop is '24dB'; for language models it must be a percentage of perplexity, e.g. "
"2%",
        ),
        ({"max_drop": "2%"}, "max_drop applies to int8 and int4, but the precision is fp32"),
    ],
)  # fmt: skip
def test_options_are_refused_with_the_reason(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        edgekit.build(write_tiny(tmp_path / "tiny.gguf"), targets=["ort"], **options)  # type: ignore[arg-type]
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("target", "precision", "message"),
    [
        (
            "ort", "int4",
            "ort does not support int4 for language models with experts; available: fp32, fp16, int8",
        ),
        (
            "tflite", "auto",
            "tflite would compute all experts of a layer for each token; build this model for other targets, "
            "e.g. ort or openvino",
        ),
    ],
)  # fmt: skip
def test_experts_need_a_form_that_computes_the_picked_ones_only(
    tmp_path: Path, target: str, precision: str, message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        edgekit.build(
            write_architecture(tmp_path / "tiny.gguf", "olmoe"), targets=[target], precision=precision
        )
    assert str(raised.value) == message


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    path, output = write_tiny(tmp_path / "tiny.gguf"), tmp_path / "chat.edgekit"
    done = CliRunner().invoke(main, ["build", str(path), "-t", "ort", "-o", str(output), "--context", "64"])
    assert done.exit_code == 0, done.output
    assert f"try:    edgekit generate {output} -p Hello\n" in done.output
    assert read_generation(Bundle.open(output).card or {}, "card").context_length == 64


def test_a_context_that_is_too_short_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    monkeypatch.setattr(language_bundle, "LEAST_CONTEXT_TOKENS", 1 << 20)
    with pytest.raises(ModelError, match=r"has a context of \d+ tokens; at least 1048576 are needed"):
        edgekit.build(path, targets=["ort"])
