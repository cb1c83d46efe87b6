"""Folders of T5, BART and Marian: what is read, and what is refused in plain words."""

import json
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.hugging_face_folder import onnx_in_folder
from edgekit.errors import ModelError
from edgekit.generate.device.token_rules import TextRules
from edgekit.generate.host.readers.encoder_decoder.config import EMBEDDING, HEAD
from edgekit.generate.host.readers.language.activations import GELU_TANH, SILU
from edgekit.generate.host.readers.text2text.open_text2text import is_text2text_model, open_text2text_model
from edgekit.generate.host.readers.text2text.sentencepiece_file import open_sentencepiece
from edgekit.processing.tokenizer import token_texts, tokenize
from edgekit.processing.transcripts.words import BYTE_LEVEL, SENTENCEPIECE, spelled_text
from tests.fixtures.text2text_folders import FAMILIES, sentencepiece_bytes, tensors_of, write_text2text


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_is_read(tmp_path: Path, family: str) -> None:
    folder = write_text2text(tmp_path / family, family)
    assert is_text2text_model(folder)
    model = open_text2text_model(folder, 64)
    for name in model.config.weight_shapes():
        assert model.weight(name).dtype == np.float32, name
    tensors = tensors_of(family)
    shared = tensors["shared.weight" if family.startswith("t5") else "model.shared.weight"]
    np.testing.assert_array_equal(model.weight(EMBEDDING), shared)
    sizes = sum(np.prod(shape) for shape in model.config.weight_shapes().values())
    positions = 2 * 64 * 32 if family == "marian" else -2 * 18 * 32 if family == "bart" else 0
    assert sizes == sum(values.size for values in tensors.values()) + positions


def test_forms_and_rules(tmp_path: Path) -> None:
    models = {
        f: open_text2text_model(write_text2text(tmp_path / f, f)) for f in ("t5-gated", "bart", "marian")
    }
    gated, bart, marian = models.values()
    assert (gated.config.form.tied, gated.config.form.activation) == (False, GELU_TANH)
    assert gated.config.output_matrix == HEAD
    assert (gated.config.context, bart.config.context, marian.config.context) == (128, 80, 80)
    assert gated.rules == TextRules((1,), shortest=6)
    assert bart.rules == TextRules((2,), (7,), (), ((9, 11),), 0, 0, 2)
    assert (bart.start, bart.pad, bart.spelling) == (2, 1, BYTE_LEVEL)
    assert (marian.start, marian.pad, marian.spelling) == (63, 63, SENTENCEPIECE)
    assert marian.config.form.activation == SILU
    assert marian.config.form.embedding_scale == pytest.approx(32**0.5)
    assert bart.weight("encoder.embed_positions.weight")[0] == pytest.approx(
        tensors_of("bart")["model.encoder.embed_positions.weight"][2]
    )


def test_tokens_of_texts(tmp_path: Path) -> None:
    marian, t5, bart = (
        open_text2text_model(write_text2text(tmp_path / f, f)) for f in ("marian", "t5", "bart")
    )

    def tokens(model: object, text: str) -> list[str]:
        numbers = tokenize(model.source_tokenizer, text, 99, True).ids  # type: ignore[attr-defined]
        return [token_texts(model.tokenizer)[number] for number in numbers]  # type: ignore[attr-defined]

    assert tokens(marian, ">>xx<< aa0  bb1") == [">>xx<<", "▁aa0", "▁bb1", "</s>"]
    assert tokens(marian, "abcd") == ["▁", "a", "b", "c", "d", "</s>"], "a piece of the target only"
    assert tokens(marian, "aa0 ü aa0")[1:3] == ["▁", "<unk>"]
    assert tokens(t5, " aa0 <extra_id_0>aad") == ["▁aa0", "<extra_id_0>", "▁", "a", "a", "d", "</s>"]
    assert tokens(bart, "aa b") == ["<s>", "aa", "Ġb", "</s>"]
    for model, text in ((marian, "aa0 bb1"), (t5, "aa0 bb1"), (bart, "Zwölf aa, é €")):
        numbers = tokenize(model.source_tokenizer, text, 99, True).ids
        pieces, special = token_texts(model.tokenizer), frozenset(model.special)
        assert spelled_text(numbers, pieces, model.spelling, special) == text


def test_pieces_are_those_of_sentencepiece(tmp_path: Path) -> None:
    """The package's own tokens, for a model that it trained on this repository's prose."""
    library = pytest.importorskip("sentencepiece")
    from edgekit.generate.host.readers.text2text.sentencepiece_file import unigram_json

    lines = [
        line for path in sorted(Path("docs").glob("*.md")) for line in path.read_text("utf-8").split("\n")
    ]
    lines = [line[:400] for line in lines if len(line) > 40]
    (tmp_path / "lines.txt").write_text("\n".join(lines[::2]))
    library.SentencePieceTrainer.train(
        input=str(tmp_path / "lines.txt"), model_prefix=str(tmp_path / "m"), vocab_size=1500,
        model_type="unigram", pad_id=3, num_threads=1,
    )  # fmt: skip
    theirs = library.SentencePieceProcessor(str(tmp_path / "m.model"))
    file = open_sentencepiece(tmp_path / "m.model")
    texts = [piece.text for piece in file.pieces]
    content = unigram_json(file, texts, special=("</s>", "<unk>", "<pad>"), end="</s>")
    differ = [text for text in lines if tokenize(content, text, 9999, True).ids != [*theirs.encode(text), 2]]
    print(f"{len(differ)} of {len(lines)} lines differ")
    assert len(lines) > 500
    assert differ == []


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    def refusal(family: str, **changes: object) -> str:
        folder = tmp_path / f"{family}{len(list(tmp_path.iterdir()))}"
        write_text2text(folder, family)
        for file in ("config.json", "generation_config.json"):
            table = json.loads((folder / file).read_text())
            (folder / file).write_text(json.dumps({**table, **changes}))
        with pytest.raises(ModelError) as refused:
            open_text2text_model(folder, 64)
        return str(refused.value).removeprefix(f"{folder}")

    assert refusal("t5", num_layers=4) == (
        ": has no weight encoder.block.2.layer.0.layer_norm.weight, which T5 models of its config.json need"
    )
    assert refusal("t5", d_model=48).startswith(
        ": weight shared.weight is [160, 32]; config.json requires [160, 48]"
    )
    assert (
        refusal("t5", feed_forward_proj="gated-tanh") == ": config.json: activation 'tanh' is not supported"
    )
    assert refusal("t5", d_kv="8") == ": config.json: d_kv is 8; it must be a whole number"
    for epsilon in ("small", True, -1.0):
        told = f": config.json: layer_norm_epsilon is {epsilon}; it must be from 0 to 1"
        assert refusal("t5", layer_norm_epsilon=epsilon) == told
    assert "the tokenizer has 153 tokens, but the model 100" in refusal("t5", vocab_size=100)
    assert refusal("bart", decoder_attention_heads=2).endswith("differ, which is not supported")
    assert refusal("bart", normalize_before=True) == ": config.json: normalize_before is not supported"
    assert "share_encoder_decoder_embeddings" in refusal("marian", share_encoder_decoder_embeddings=False)
    assert refusal("bart", repetition_penalty=1.2) == (
        ": generation_config.json has repetition_penalty = 1.2, which is not supported; remove it to build "
        "the model without"
    )
    assert "bad_words_ids must be" in refusal("bart", bad_words_ids=[3])
    assert "token 999 is not in the vocabulary" in refusal("marian", eos_token_id=999)
    assert "decoder_start_token_id is None" in refusal("bart", decoder_start_token_id=None)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = write_text2text(tmp_path / "t5", "t5")
    (folder / "spiece.model").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer\.json, spiece\.model, or source\.spm"):
        open_text2text_model(folder)


@pytest.mark.parametrize("cut", [1, 7, 30, -3])
def test_a_truncated_sentencepiece_file_is_refused(tmp_path: Path, cut: int) -> None:
    content = sentencepiece_bytes([("<unk>", 0.0, 2), ("▁a", -1.0, 1), ("b", float("nan"), 1)])
    (tmp_path / "m.model").write_bytes(content[:cut])
    with pytest.raises(ModelError, match="is not a SentencePiece model"):
        open_sentencepiece(tmp_path / "m.model")


def test_a_piece_whose_text_is_a_number_is_refused(tmp_path: Path) -> None:
    number = b"\x0a\x02\x08\x05"  # a piece of two bytes: field 1, its text, is the number 5
    (tmp_path / "m.model").write_bytes(sentencepiece_bytes([("<unk>", 0.0, 2)]) + number)
    with pytest.raises(ModelError, match=r"is not a SentencePiece model \(a piece is malformed\)"):
        open_sentencepiece(tmp_path / "m.model")


def test_other_models_of_these_families_are_left_to_other_readers(tmp_path: Path) -> None:
    folder = write_text2text(tmp_path / "bart", "bart")
    (folder / "model.onnx").write_bytes(b"x")
    assert onnx_in_folder(folder) is None
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**table, "architectures": ["BartForSequenceClassification"]})
    )
    assert not is_text2text_model(folder)
    assert onnx_in_folder(folder) == folder / "model.onnx"
