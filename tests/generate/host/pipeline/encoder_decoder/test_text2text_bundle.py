"""Text-to-text models from their folders to bundles and to text, on every engine."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.cli import main
from edgekit.errors import EngineError, SampleError, UsageError
from edgekit.generate.device.encoder_decoder import OPTION
from edgekit.generate.host.pipeline.encoder_decoder.job import with_folded_norms
from edgekit.generate.host.pipeline.encoder_decoder.text2text import card_of
from edgekit.generate.host.readers.encoder_decoder.reference import ReferenceModel
from edgekit.generate.host.readers.text2text.open_text2text import open_text2text_model
from edgekit.processing.tokenizer import token_texts, tokenize
from edgekit.processing.transcripts.words import spelled_text
from edgekit.runtime import Session
from edgekit.runtime.streaming.listening import predict_parts
from edgekit.target import registry
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array, Json
from tests.fixtures.text2text_folders import FAMILIES, tensors_of, write_text2text
from tests.fixtures.text2text_folders import SOURCES as TEXTS
from tests.generate.host.readers.text2text.write_goldens import CHOSEN, FILE, SOURCES

TARGETS = ("ort", "openvino", "tflite")
ENGINES = [pytest.param(target, marks=getattr(pytest.mark, f"needs_{target}")) for target in TARGETS]
pytestmark = pytest.mark.needs_ort
CONTEXT = 64
Build = Callable[[str], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds a family for all engines that are installed here, once."""
    root = tmp_path_factory.mktemp("text2text")
    names = [name for name in TARGETS if resolve(find_profile(name)).missing() is None]
    (root / "texts.txt").write_text("\n".join(TEXTS))

    @cache
    def build(family: str) -> Path:
        folder, path = write_text2text(root / family, family), root / f"{family}.edgekit"
        options = {"precision": "auto", "context": CONTEXT, "samples": root / "texts.txt", "force": True}
        edgekit.build(folder, targets=names, **options).save(path)  # type: ignore[arg-type]
        return path

    return build


@cache
def expected_text(folder: Path, text: str) -> str:
    """The float reference's text."""
    model = open_text2text_model(folder, CONTEXT)
    source = np.array(tokenize(model.source_tokenizer, text, CONTEXT, True).ids)
    decoder = ReferenceModel(model)
    tokens = decoder.generate(decoder.encode(source), [model.start], CONTEXT - 1)
    return spelled_text(tokens, token_texts(model.tokenizer), model.spelling, frozenset(model.special))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", ENGINES)
def test_every_engine_writes_the_references_text(target: str, family: str, built: Build) -> None:
    path = built(family)
    with Bundle.open(path) as bundle:
        floats, integers = (v for v in bundle.variants if v.target == target)
        assert (floats.name, integers.name) == (f"{target}-fp32", f"{target}-int8")
        assert floats.verified, floats.status
        assert floats.evidence["accuracy"]["logits"]["snr_db"] > 85
        assert floats.evidence["generation"]["texts"] == {"equal": len(TEXTS), "of": len(TEXTS)}
        assert integers.evidence["accuracy"]["logits"]["snr_db"] > 10
        assert integers.evidence["generation"]["agreement"] > 0.5  # weights are random
        assert integers.evidence["size_bytes"] < 0.65 * floats.evidence["size_bytes"]
    texts = set()
    with Session(path, variant=f"{target}-fp32", strict=True, threads=1) as session:
        for text in TEXTS:
            written = session.predict(text)
            assert written.text == expected_text(path.parent / family, text)
            texts.add(written.text)
    assert len(texts) > 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", ENGINES)
def test_every_engine_has_transformers_logits(target: str, family: str, built: Build) -> None:
    """Each engine's fp32 logits after every chosen token, against transformers' (write_goldens.py)."""
    with np.load(FILE) as file:
        goldens = file[f"{family}/logits"].astype(np.float64)
    with Session(built(family), variant=f"{target}-fp32", strict=True, threads=1) as session:
        entry, constants = session.card.inputs["source"], session.card.constants()
        rows = []
        for numbers in SOURCES:
            source = np.full(entry.shape, entry.pad_id)  # type: ignore[union-attr]
            source[0, : len(numbers)] = numbers
            for length in range(len(CHOSEN) + 1):
                prompt = constants["prompt"].copy()
                prompt[0, 1 : 1 + length] = CHOSEN[:length]
                feeds = {"source": source, "prompt": prompt, "limit": np.zeros(1, np.int64)}
                rows.append(session.run(feeds)["logits"][0])
    noise = np.square(np.stack(rows) - np.concatenate(goldens)).sum()
    snr_db = 10 * np.log10(np.square(goldens).sum() / noise)
    print(f"{family} on {target}: {snr_db:.1f} dB")
    assert snr_db > 70


@pytest.mark.parametrize("family", ["t5", "bart"])
@pytest.mark.parametrize("target", ENGINES)
def test_the_embedding_is_stored_once(target: str, family: str, built: Build) -> None:
    rows = tensors_of(family)["shared.weight" if family == "t5" else "model.shared.weight"]
    with Bundle.open(built(family)) as bundle:
        variant = next(v for v in bundle.variants if v.name == f"{target}-fp32")
        content = b"".join(bundle.read(entry) for entry in variant.files.values())
    assert sum(content.count(np.ascontiguousarray(array).tobytes()) for array in (rows, rows.T)) == 1


def test_parts_are_the_text_so_far(built: Build) -> None:
    with Session(built("marian"), variant="ort-fp32", threads=1) as session:
        whole = session.predict(TEXTS[1])
        parts = list(predict_parts(session, TEXTS[1]))
        assert len(parts) > 3
        assert parts[-1] == whole
        assert all(whole.text.startswith(part.text) for part in parts)
        assert [part.reason for part in parts[:-1]] == [""] * (len(parts) - 1)
        short = session.predict(TEXTS[1], max_tokens=5)
        assert (len(short.tokens), short.reason) == (5, "length")
        assert short.tokens == whole.tokens[:5]


def test_a_run_that_continues_computes_only_what_is_new(
    built: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(built("t5-gated"), variant="ort-fp32", threads=1) as session:
        runner, steps, encoded = session.runner, list[int](), list[int]()
        step, encode = runner._decoder.run, runner._encoder.run  # type: ignore[attr-defined]

        def stepped(feeds: Mapping[str, Array]) -> dict[str, Array]:
            steps.append(int(feeds["token"][0]))
            outputs: dict[str, Array] = step(feeds)
            return outputs

        def encoded_once(feeds: Mapping[str, Array]) -> dict[str, Array]:
            encoded.append(1)
            outputs: dict[str, Array] = encode(feeds)
            return outputs

        monkeypatch.setattr(runner._decoder, "run", stepped)  # type: ignore[attr-defined]
        monkeypatch.setattr(runner._encoder, "run", encoded_once)  # type: ignore[attr-defined]
        written = session.predict(TEXTS[1], max_tokens=20)
        assert len(encoded) == 1
        assert steps == [0, *written.tokens[:-1]]
        assert session.predict(TEXTS[1], max_tokens=20) == written
        assert len(encoded) == 2, "a repeated run must be computed anew: it may be timed"


def test_the_command_line_builds_runs_and_verifies(tmp_path: Path) -> None:
    folder, path = write_text2text(tmp_path / "marian", "marian"), tmp_path / "translate.edgekit"
    command = ["build", str(folder), "-t", "ort", "-o", str(path), "--context", "64", "--precision", "fp16"]
    built = CliRunner().invoke(main, [*command, "--force"])
    assert built.exit_code == 0, built.output
    ran = CliRunner().invoke(main, ["run", str(path), "--text", TEXTS[0], "--json"])
    assert ran.exit_code == 0, ran.output
    answer = json.loads(ran.stdout)["answer"]
    with Session(path) as session:
        assert session.active.variant == "ort-fp16"
        assert answer == session.predict(TEXTS[0]).as_json()
        (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
        several = CliRunner().invoke(main, ["run", str(path), "-i", str(tmp_path / "texts.txt"), "--json"])
        assert len(json.loads(several.stdout)["answer"]) == len(TEXTS)
        with pytest.raises(UsageError, match="has more than 64 tokens, which is the most that marian reads"):
            session.predict("aa0 " * 70)
        with pytest.raises(UsageError, match="max_tokens is 70; marian writes at most 63"):
            session.predict(TEXTS[0], max_tokens=70)
    live = CliRunner().invoke(main, ["run", str(path), "-i", "-"], b"")
    assert live.exit_code == 2
    assert "does not transcribe speech" in live.stderr
    verified = CliRunner().invoke(main, ["verify", str(path)])
    assert verified.exit_code == 0, verified.output
    inspected = CliRunner().invoke(main, ["inspect", str(path)])
    assert "12 sentences of English prose" in inspected.output


def test_what_does_not_apply_is_refused(tmp_path: Path) -> None:
    folder = write_text2text(tmp_path / "bart", "bart")
    (tmp_path / "long.txt").write_text("zz " * 60)

    def refusal(**options: object) -> str:
        with pytest.raises((UsageError, SampleError)) as refused:
            edgekit.build(folder, **{"targets": ["ort"], **options})  # type: ignore[arg-type]
        return str(refused.value)

    assert refusal(precision="int4") == (
        "text-to-text models cannot be built as 'int4'; available: fp32, fp16, int8, auto"
    )
    assert refusal(io="nhwc") == "io: does not apply to text-to-text models; leave it out"
    assert refusal(max_drop="2%").startswith("max_drop is '2%'; for text-to-text models it is a percentage")
    assert refusal(context=81) == "context is 81; bart supports 64 to 80 tokens"
    assert "has more than 80 tokens; shorten it" in refusal(context=80, samples=tmp_path / "long.txt")


@pytest.mark.parametrize("family", ["t5", "t5-gated"])
def test_folded_norms_keep_the_logits(tmp_path: Path, family: str) -> None:
    model = open_text2text_model(write_text2text(tmp_path / family, family), CONTEXT)
    rows = []
    for variant in (model, with_folded_norms(model)):
        decoder = ReferenceModel(variant)
        rows.append(decoder.logits(decoder.encode(np.array(SOURCES[1])), [0, *CHOSEN], []))
    assert (with_folded_norms(model).weight("encoder.layer_norm.weight") == 1).all()
    np.testing.assert_allclose(rows[0], rows[1], rtol=2e-3, atol=5e-3)


def test_a_malformed_option_is_refused(built: Build) -> None:
    with Bundle.open(built("marian")) as bundle:
        variant = next(v for v in bundle.variants if v.target == "ort")
        embedding: Mapping[str, Json] = variant.options[OPTION]["embedding"]
        changes: list[dict[str, Json]] = [
            {"width": 0}, {"pad": "x"}, {"rules": {}}, {"embedding": {}},
            {"embedding": {**embedding, "offset": 1 << 40}}, {"embedding": {**embedding, "dtype": "object"}},
            {"embedding": {**embedding, "offset": -4}},
        ]  # fmt: skip
        files = {name: Path(__file__) for name in variant.files}
        for change in changes:
            options = {**variant.options, OPTION: {**variant.options[OPTION], **change}}
            with pytest.raises(EngineError, match="encoder and decoder are malformed"):
                registry.open_runner(registry.engine("ort"), files, bundle.inputs, bundle.outputs, options, 1)


def test_invalid_arrays_are_refused(built: Build) -> None:
    with Session(built("marian"), variant="ort-fp32") as session:
        run = session.runner.run
        feeds = {"source": np.full((1, CONTEXT), 63), **session.card.constants()}
        with pytest.raises(UsageError, match="source must be tokens from 0 below 64, then 63; at least one"):
            run(feeds)
        feeds["source"][0, :3] = 5, 64, 7
        with pytest.raises(UsageError, match="source must be tokens"):
            run(feeds)
        feeds["source"][0, :3] = 5, 6, 7
        feeds["prompt"] = np.full((1, CONTEXT), 64)
        with pytest.raises(UsageError, match="prompt must be 1 to 64 tokens below 64, then -1"):
            run(feeds)


def test_the_card_has_two_tokenizers_only_where_they_differ(tmp_path: Path) -> None:
    files = {}
    for family in ("marian", "bart"):
        card = card_of(open_text2text_model(write_text2text(tmp_path / family, family), CONTEXT))
        files[family] = sorted(card.files)
    assert files == {"marian": ["source-tokenizer.json", "tokenizer.json"], "bart": ["tokenizer.json"]}
