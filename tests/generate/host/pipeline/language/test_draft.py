"""``edgekit build --draft``: a second decoder in the bundle, its tokens checked, its evidence there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.draft_entry import draft_of
from edgekit.cli import main
from edgekit.compiler.evaluate.verify_bundle import CheckOutcome, verify_bundle
from edgekit.errors import UsageError
from edgekit.generate import TextSession
from edgekit.generate.host.readers.language.open_model import open_language_model
from tests.fixtures.gguf_files import Q4_1, tiny_metadata, write_tiny
from tests.fixtures.hugging_face_files import write_folder

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]
PROMPTS = ("the of and to in", "is that it was for on are as with", "his they at be this")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and its first layer as a draft."""
    folder = tmp_path_factory.mktemp("draft")
    write_tiny(folder / "big.gguf")
    changed: dict[str, Any] = {"general.name": "small", "llama.block_count": 1}
    write_tiny(folder / "small.gguf", **changed)
    return folder


@pytest.fixture(scope="module")
def built(folder: Path) -> Bundle:
    bundle = edgekit.build(folder / "big.gguf", targets=["ort"], draft=folder / "small.gguf")
    bundle.save(folder / "chat.edgekit")
    return Bundle.open(folder / "chat.edgekit")


def test_the_draft_has_variants_evidence_and_a_share_of_right_guesses(built: Bundle) -> None:
    draft = draft_of(built.name, built.manifest)
    assert draft is not None
    (variant,) = draft.variants
    assert (draft.title, variant.name, variant.verified) == ("small", "ort-fp32", True)
    assert 0 < draft.agreement < 1
    assert draft.tokens == built.variants[0].evidence["generation"]["tokens"]
    assert variant.options["decoder"]["layers"] == 1
    assert (
        variant.evidence["generation"]["greedy"]["likeliest"]
        == variant.evidence["generation"]["greedy"]["of"]
    )
    said = next(line for line in built.report.splitlines() if line.startswith("  draft"))
    assert said == (
        "  draft     small, 0.1 M parameters: its likeliest token is the model's at "
        f"{draft.agreement:.3f} of {draft.tokens} tokens"
    )


def test_verify_runs_its_golden_prompts_too(built: Bundle) -> None:
    checks = verify_bundle(built)
    assert [(check.variant, check.outcome) for check in checks] == [
        ("ort-fp32", CheckOutcome.VERIFIED),
        ("draft: ort-fp32", CheckOutcome.VERIFIED),
    ]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}])
def test_texts_are_those_without_it(built: Bundle, options: dict[str, float]) -> None:
    texts = []
    with TextSession(built, speculate="off", threads=1) as plain:
        texts = [plain.generate(prompt, max_tokens=40, **options).text() for prompt in PROMPTS]
    with TextSession(built, speculate="draft", threads=1) as session:
        streams = [session.generate(prompt, max_tokens=40, **options) for prompt in PROMPTS]
        assert [stream.text() for stream in streams] == texts
        assert sum(stream.result.proposed for stream in streams) > 0


def test_a_model_is_a_perfect_draft_of_itself(folder: Path) -> None:
    path = folder / "big.gguf"
    twice = edgekit.build(path, targets=["ort"], draft=path)
    draft = draft_of(twice.name, twice.manifest)
    assert draft is not None
    assert draft.agreement == 1.0
    with TextSession(twice, speculate="draft", threads=1) as session:
        result = (stream := session.generate(PROMPTS[0], max_tokens=41)).text() and stream.result
        assert result
        assert (result.accepted, result.steps) == (result.proposed, 8)


def test_a_folder_of_the_same_tokens_is_a_draft_too(folder: Path, tmp_path: Path) -> None:
    small = write_folder(tmp_path / "folder", open_language_model(folder / "small.gguf"))
    bundle = edgekit.build(
        folder / "big.gguf", targets=["ort"], draft=small, precision="int8", max_drop="50%"
    )
    draft = draft_of(bundle.name, bundle.manifest)
    assert draft is not None
    assert [v.precision for v in draft.variants if v.usable] == ["int8"]


def test_other_tokens_are_one_error_before_anything_is_built(folder: Path, tmp_path: Path) -> None:
    tokens = [*tiny_metadata()["tokenizer.ggml.tokens"]]  # type: ignore[misc]
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    changed: dict[str, Any] = {"tokenizer.ggml.tokens": tokens}
    swapped = write_tiny(tmp_path / "swapped.gguf", Q4_1, **changed)
    with pytest.raises(UsageError) as caught:
        edgekit.build(folder / "big.gguf", targets=["ort"], draft=swapped)
    assert str(caught.value) == (
        f"draft: tiny cannot draft for tiny: 2 of its tokens differ, the first one is {len(tokens) - 2}; "
        "use a model with the same tokenizer"
    )
    other = tmp_path / "other.txt"
    other.write_text("no model")
    with pytest.raises(UsageError) as caught:
        edgekit.build(folder / "big.gguf", targets=["ort"], draft=other)
    assert str(caught.value) == (
        f"draft: {other} is not a language model; pass a GGUF file or a Hugging Face folder"
    )


def test_the_command_builds_and_generates_with_it(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "chat.edgekit"
    given = ["build", str(folder / "big.gguf"), "-t", "ort", "-o", str(output), "-v", "--draft"]
    done = CliRunner().invoke(main, [*given, str(folder / "small.gguf")])
    assert done.exit_code == 0, done.output
    assert "  draft     small, 0.1 M parameters" in done.output
    made = CliRunner().invoke(
        main, ["generate", str(output), "-p", PROMPTS[0], "--speculate", "draft", "--max-tokens", "20"]
    )
    assert made.exit_code == 0, made.output
    assert "guessed" in made.output
    lost = CliRunner().invoke(main, [*given, str(tmp_path / "absent.gguf")])
    assert (lost.exit_code, "absent.gguf is not a language model" in lost.output) == (2, True)
