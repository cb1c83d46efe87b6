"""``edgekit build --adapter``: LoRA adapters in the bundle, their evidence, and texts that swap them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.cli import main
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.errors import BundleError, EngineError, UsageError
from edgekit.generate import TextSession
from edgekit.generate.device.adapter import adapters_of, read_adapter
from edgekit.generate.host.adapters import merged, open_adapter
from edgekit.generate.host.judge import evaluation
from edgekit.generate.host.pipeline.language import variants
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.system.formats.npy import npy_bytes
from tests.fixtures.adapter_files import random_pairs, write_gguf, write_peft
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.hugging_face_files import write_folder
from tests.fixtures.threads import until
from tests.generate.device.conftest import held, queued

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino, pytest.mark.needs_tokenizers]
PROMPT = "the of and to in is that it was for on are as with his they at be this from " * 2
"""More tokens than a saved cache needs."""
NAMES = ("", "one", "two")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, two adapters, of which the second changes fewer matrices, and the model merged with each."""
    folder = tmp_path_factory.mktemp("adapters")
    model = open_language_model(write_tiny(folder / "tiny.gguf"))
    other = tmp_path_factory.mktemp("elsewhere")  # the build's child may read no other folder
    one = write_peft(other / "one", random_pairs(model, spread=0.2))
    two = write_gguf(other / "two.gguf", model, random_pairs(model, 1, ("v", "down"), 0.2))
    (folder / "one").symlink_to(one)
    (folder / "two.gguf").symlink_to(two)
    for name, path in (("merged-one", one), ("merged-two", two)):
        write_folder(folder / name, merged(model, open_adapter(path, model)))
    return folder


def options(folder: Path) -> dict[str, Any]:
    return {
        "targets": ["ort", "openvino"],
        "adapters": {"one": folder / "one", "two": folder / "two.gguf"},
    }


@pytest.fixture(scope="module")
def built(folder: Path) -> Bundle:
    edgekit.build(folder / "tiny.gguf", **options(folder)).save(folder / "chat.edgekit")
    return Bundle.open(folder / "chat.edgekit")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, str]:
    """The text of the model and of each merged model."""
    texts = {}
    for name, path in zip(NAMES, ("tiny.gguf", "merged-one", "merged-two"), strict=True):
        with TextSession(edgekit.build(folder / path, targets=["ort"]), threads=1) as session:
            texts[name] = session.generate(PROMPT, max_tokens=24).text()
    assert len(set(texts.values())) == 3
    return texts


@pytest.mark.parametrize("engine", ["ort", "openvino"])
def test_texts_are_those_of_merged_weights_and_nothing_is_loaded_again(
    built: Bundle, alone: dict[str, str], engine: str
) -> None:
    with TextSession(built, engine=engine, threads=1, speculate="off") as session:
        assert session.adapters == ("one", "two")
        loaded = session._decoders.runner
        for name in (*NAMES, *reversed(NAMES)):  # caches of other adapters are not used
            assert session.generate(PROMPT, max_tokens=24, adapter=name).text() == alone[name]
        stream = session.generate(PROMPT, max_tokens=24, adapter="one")
        assert stream.text() == alone["one"]
        assert stream.result.cached_tokens >= 32  # its own is
        assert session._decoders.runner is loaded
        assert session.fallbacks == ()
        with pytest.raises(UsageError) as refused:
            session.generate(PROMPT, adapter="three")
        assert str(refused.value) == "the bundle has no adapter 'three'; available: one, two"


def test_concurrent_texts_share_steps_with_those_of_their_adapter(
    built: Bundle, alone: dict[str, str]
) -> None:
    with TextSession(built, engine="ort", threads=1, conversations=6) as session:
        streams = [session.generate(PROMPT, max_tokens=24, adapter=name) for name in NAMES * 2]
        threads = [Thread(target=stream.text) for stream in streams]
        with held(session._scheduler):
            for thread in threads:
                thread.start()
            until(lambda: queued(session._scheduler) == len(threads) + 1)
        for thread in threads:
            thread.join()
        assert [stream.result.text for stream in streams] == [alone[name] for name in NAMES * 2]
        assert session.facts()["together"]["steps"] > 0


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_variants_have_evidence_with_each_adapter(folder: Path, precision: str) -> None:
    bundle = edgekit.build(folder / "tiny.gguf", **options(folder), precision=precision, force=True)
    for variant in bundle.variants:
        base = variant.evidence["generation"]["float_perplexity"]
        for name in NAMES[1:]:
            figures = variant.evidence["adapters"][name]
            assert figures["generation"]["float_perplexity"] != base
            snr_db = figures["logits"]["snr_db"]
            assert snr_db is not None
            assert snr_db > (15 if precision == "int8" else 50)


def test_report_and_verification_show_the_adapters(built: Bundle) -> None:
    figures = next(v.evidence["adapters"]["one"] for v in built.variants if v.name == "ort-fp32")
    perplexity, snr_db = figures["generation"]["perplexity"], figures["logits"]["snr_db"]
    (row,) = (line for line in built.report.splitlines() if line.split()[:2] == ["one", "ort-fp32"])
    assert f"  {perplexity:.2f}" in row
    assert row.endswith(f"  chat +0.0 %, code +0.0 %, prose +0.0 %  {snr_db:.1f} dB")
    checks = {check.variant: check.outcome for check in verify_bundle(built)}
    assert set(checks.values()) == {CheckOutcome.VERIFIED}
    assert [name for name in checks if name.startswith("ort")] == [
        "ort-fp32", "ort-fp32 with one", "ort-fp32 with two",
    ]  # fmt: skip


def test_a_variant_that_misses_the_bar_with_an_adapter_is_rejected(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evaluation.written_by
    calls = iter((0.0, 0.0, 5.0))

    def noisy(*arguments: Any) -> evaluation.VariantTexts:
        texts, noise = real(*arguments), np.random.default_rng(0)
        return texts._replace(logits=texts.logits + next(calls) * noise.standard_normal(texts.logits.shape))

    monkeypatch.setattr(variants, "written_by", noisy)
    bundle = edgekit.build(folder / "tiny.gguf", **{**options(folder), "targets": ["ort"]}, trusted=True)
    (variant,) = bundle.variants
    assert variant.status.startswith("rejected: adapter two: logits of the golden prompts: SNR ")


def test_the_next_engine_continues_with_the_adapter(
    built: Bundle, alone: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with TextSession(built, threads=1, speculate="off") as session:  # either engine may be the first
        stream = session.generate(PROMPT, max_tokens=24, adapter="two")
        first = session._decoders.runner
        pieces = [next(stream)]

        def fail(*arguments: object) -> None:
            raise EngineError("it broke")

        monkeypatch.setattr(first, "forward", fail)
        assert "".join([*pieces, *stream]) == alone["two"]
        assert len(session.fallbacks) == 1


def test_a_draft_proposes_and_the_text_stays_the_adapters(folder: Path) -> None:
    path = folder / "tiny.gguf"
    bundle = edgekit.build(path, targets=["ort"], adapters=options(folder)["adapters"], draft=path)
    with TextSession(bundle, speculate="off", threads=1) as plain:
        plain._scheduler.decoder.load().runner.row_consistent = (
            True  # the same kernels for any number of rows
        )
        expected = [plain.generate(PROMPT, max_tokens=24, adapter=name).text() for name in NAMES]
    with TextSession(bundle, speculate="draft", threads=1) as session:
        streams = [session.generate(PROMPT, max_tokens=24, adapter=name) for name in NAMES]
        assert [stream.text() for stream in streams] == expected
        assert all(stream.result.proposed > 0 for stream in streams)


@pytest.mark.usefixtures("own_cache")
def test_caches_on_disk_are_those_without_an_adapter(built: Bundle) -> None:
    chat = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "the"}]

    def texts(**more: Any) -> list[str]:
        with TextSession(built, engine="ort", threads=1, speculate="off", **more) as session:
            streams = [session.chat(chat, max_tokens=8, adapter=name) for name in ("one", "", "one")]
            return [stream.text() for stream in streams]

    expected = texts()
    assert expected[0] != expected[1]
    assert texts(keeps_on_disk=True) == expected
    with TextSession(built, engine="ort", threads=1, keeps_on_disk=True, speculate="off") as session:
        assert session.facts()["on_disk"] == 1
        stream = session.chat(chat, max_tokens=8, adapter="one")
        assert stream.text() == expected[0]
        assert stream.result.cached_tokens == 0


Change = Callable[[dict[str, Any]], object]
MATRIX = "model.layers.0.self_attn.v_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update({"1": a["two"]}), "'1' is not a letter, then letters, digits, - and _"),
        (lambda a: a["two"].update(dtype="float64"), "'float64' is not float16 or float32"),
        (lambda a: a["two"].update(weights="adapters/no.npy"), "entry 'adapters/no.npy' does not exist"),
        (lambda a: a["two"]["matrices"].update({MATRIX: [1025, 64, 32]}), "[rank, inputs, outputs]"),
        (lambda a: a["two"]["matrices"].update({MATRIX: [4, 1 << 40, 32]}), "1099511627776"),
        (lambda a: a["two"]["matrices"].update({MATRIX: [4, 64]}), "[rank, inputs, outputs]"),
    ],
)
def test_malformed_adapters_are_refused(built: Bundle, change: Change, message: str) -> None:
    with pytest.raises(BundleError) as refused:
        TextSession(changed(built, change), engine="ort")
    assert message in str(refused.value)


def test_values_of_another_size_or_not_finite_are_refused(built: Bundle) -> None:
    bundle = changed(built, lambda a: a["two"]["matrices"].update({MATRIX: [5, 64, 32]}))
    with pytest.raises(BundleError, match=r"entry adapters/two\.npy: its \.npy header does not match"):
        read_adapter(bundle, adapters_of(bundle)["two"])
    entry = adapters_of(built)["two"]
    nan = npy_bytes(np.full(entry.values, np.nan, np.dtype(entry.dtype)))
    bundle = changed(built, lambda a: None, {entry.weights: nan})
    with TextSession(bundle, engine="ort") as session:
        with pytest.raises(BundleError, match="has values that are not finite"):
            session.generate(PROMPT, adapter="two").text()
        assert session.generate(PROMPT, max_tokens=2).text()  # the session goes on


def test_matrices_that_the_decoder_lacks_are_refused(built: Bundle) -> None:
    def narrow(adapters: dict[str, Any]) -> None:
        sizes = adapters["two"]["matrices"]
        sizes["model.layers.0.self_attn.other"] = sizes.pop(MATRIX)

    with TextSession(changed(built, narrow), engine="ort") as session:
        with pytest.raises(EngineError, match="and the decoder has no such product: build the bundle again"):
            session.generate(PROMPT, adapter="two").text()
        assert session.generate(PROMPT, max_tokens=2).text()


def test_the_memory_plan_has_the_matrices_of_all_adapters(built: Bundle) -> None:
    manifest, entries = contents(built)
    sites = next(v["options"]["adapters"] for v in manifest["variants"] if v["name"] == "ort-fp32")
    next(iter(sites.values()))["outputs"].append(["more", 1 << 38])  # 1 TB for each of 8 ranks
    with TextSession(Bundle.create(manifest, entries), engine="ort") as session:
        (fallback,) = session.fallbacks
    assert fallback.reason.startswith("ort-fp32 needs 8,388,7")


def changed(bundle: Bundle, change: Change, more: dict[str, bytes] | None = None) -> Bundle:
    """The bundle with other adapters in its manifest."""
    manifest, entries = contents(bundle)
    change(manifest["extensions"]["adapters"])
    return Bundle.create(manifest, {**entries, **(more or {})})


def contents(bundle: Bundle) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and entries, for ``Bundle.create``."""
    manifest = json.loads(json.dumps(bundle.manifest))
    entries = {entry["name"]: bytes(bundle.read(entry["name"])) for entry in manifest["entries"]}
    made = ("format", "version", "entries")
    return {key: value for key, value in manifest.items() if key not in made}, entries


@pytest.mark.parametrize(
    ("adapters", "targets", "message"),
    [
        ({"a:b": "one"}, ["ort"], "adapters: 'a:b' is not a name; use a letter"),
        ({"a": "one"}, ["tflite"], "adapters: tflite takes no adapters; leave it out, or merge the weights"),
        ({"a": "missing"}, ["ort"], "is not an adapter; pass a folder of PEFT"),
    ],
)
def test_wrong_requests_are_refused(
    folder: Path, adapters: dict[str, str], targets: list[str], message: str
) -> None:
    paths = {name: folder / path for name, path in adapters.items()}
    with pytest.raises(UsageError) as refused:
        edgekit.build(folder / "tiny.gguf", targets=targets, adapters=paths)
    assert message in str(refused.value)


def test_the_command_line(folder: Path, built: Bundle, alone: dict[str, str]) -> None:
    path = str(folder / "chat.edgekit")
    command = [
        "generate",
        path,
        "-p",
        PROMPT,
        "--max-tokens",
        "24",
        "--use-adapter",
        "one",
        "--engine",
        "ort",
    ]
    done = CliRunner().invoke(main, [*command, "--speculate", "off", "--json"])
    assert json.loads(done.stdout)["text"] == alone["one"]
    out = folder / "again.edgekit"
    command = ["build", str(folder / "tiny.gguf"), "-t", "ort", "--adapter", f"one={folder / 'one'}"]
    done = CliRunner().invoke(main, [*command, "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert list(adapters_of(Bundle.open(out))) == ["one"]
    done = CliRunner().invoke(main, ["build", str(folder / "tiny.gguf"), "-t", "ort", "--adapter", "one"])
    assert done.exit_code == 2
    assert "NAME=ADAPTER, e.g. pirate=FOLDER" in done.output


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
