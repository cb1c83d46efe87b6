"""Fields of another type in a model's folder: one error that names the file and the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import ModelError
from edgekit.generate.host.readers.folder_fields import entries, number, real, table_of, text
from edgekit.generate.host.readers.language.hugging_face import open_hugging_face
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.generate.host.readers.text2text import sentencepiece_file
from edgekit.generate.host.readers.text2text.open_text2text import open_text2text_model
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.hugging_face_files import write_folder
from tests.fixtures.moonshine_folders import write_moonshine
from tests.fixtures.text2text_folders import write_text2text
from tests.fixtures.whisper_folders import write_whisper

PLACE = Path("m")


def language(folder: Path) -> Path:
    return write_folder(folder / "model", open_language_model(write_tiny(folder / "tiny.gguf")))


def moonshine(folder: Path) -> Path:
    return write_moonshine(folder / "model")


def whisper(folder: Path) -> Path:
    return write_whisper(folder / "model")


def text2text(family: str) -> Callable[[Path], Path]:
    return lambda folder: write_text2text(folder / "model", family)


Change = Callable[[dict[str, Any]], object]
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
CASES: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object], str, Change, str]] = {
    "rope_scaling": (
        moonshine, open_speech_model, CONFIG, lambda v: v.update(rope_scaling=1),
        "config.json: rope_scaling is 1; it must be an object",
    ),
    "decoders of a tokenizer": (
        moonshine, open_speech_model, TOKENIZER, lambda v: v.update(decoder={"decoders": 7}),
        "tokenizer.json: decoders is 7; it must be a list of objects",
    ),
    "type of a decoder": (
        moonshine, open_speech_model, TOKENIZER, lambda v: v.update(decoder={"type": ["ByteLevel"]}),
        "tokenizer.json: type is ['ByteLevel']; it must be a string",
    ),
    "feed forward": (
        text2text("t5"), open_text2text_model, CONFIG, lambda v: v.update(feed_forward_proj=1e-300),
        "config.json: feed_forward_proj is 1e-300; it must be a string",
    ),
    "two tokens of a number": (
        text2text("marian"), open_text2text_model, "vocab.json",
        lambda v: v.update({max(v, key=lambda text: v[text]): v["</s>"]}),
        "vocab.json has two tokens of one number; download it again",
    ),
    "added tokens": (
        text2text("bart"), open_text2text_model, TOKENIZER, lambda v: v.update(added_tokens=7),
        "tokenizer.json: added_tokens is 7; it must be a list of objects",
    ),
    "an added token": (
        text2text("bart"), open_text2text_model, TOKENIZER, lambda v: v["added_tokens"][0].pop("id"),
        "tokenizer.json has no id; it must be a whole number",
    ),
    "an added token that is infinite": (
        whisper, open_speech_model, TOKENIZER, lambda v: v["added_tokens"][0].update(id=float("inf")),
        "tokenizer.json: id is inf; it must be a whole number",
    ),
    "end of a text": (
        language, open_hugging_face, CONFIG, lambda v: v.update(eos_token_id=[[1]]),
        "its eos_token_id is [1]; it has 309 tokens",
    ),
    "activation": (
        language, open_hugging_face, CONFIG, lambda v: v.update(hidden_act=["silu"]),
        "config.json: hidden_act is ['silu']; it must be a string",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_field_of_another_type_is_one_error(case: str, tmp_path: Path) -> None:
    write, read, file, change, expected = CASES[case]
    folder = write(tmp_path)
    read(folder)
    table = json.loads((folder / file).read_text())
    change(table)
    (folder / file).write_text(json.dumps(table))
    with pytest.raises(ModelError) as error:
        read(folder)
    assert str(error.value).startswith(f"{folder}: ")
    assert str(error.value).endswith(expected)


def test_names_of_chat_templates(tmp_path: Path) -> None:
    folder = language(tmp_path)
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text('{"chat_template": [{"name": [], "template": "x"}]}')
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: name is \[\]; it must be a string$"):
        open_hugging_face(folder)


def test_a_sentencepiece_file_without_an_unknown_piece(tmp_path: Path) -> None:
    folder = write_text2text(tmp_path / "model", "t5")
    content = (folder / "spiece.model").read_bytes()
    assert content.count(b"<unk>") == 1
    piece = b"<unk>\x15\x00\x00\x00\x00\x18"
    (folder / "spiece.model").write_bytes(content.replace(piece + b"\x02", piece + b"\x01"))
    with pytest.raises(ModelError, match=r"is not a SentencePiece model \(no unknown piece\)"):
        open_text2text_model(folder)


def test_a_sentencepiece_file_of_too_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_text2text(tmp_path / "model", "t5")
    open_text2text_model(folder)
    monkeypatch.setattr(sentencepiece_file, "PIECES_LIMIT", 5)
    with pytest.raises(ModelError, match=r"is not a SentencePiece model \(\d+ pieces\)"):
        open_text2text_model(folder)


def test_absent_and_null_fields_have_their_default() -> None:
    for table in ({}, {"a": None}):
        assert number(table, "a", PLACE, 3) == 3
        assert real(table, "a", PLACE, 0.5) == 0.5
        assert text(table, "a", PLACE, "x") == "x"
        assert table_of(table, "a", PLACE) == {}
        assert entries(table, "a", PLACE) == []
        with pytest.raises(ModelError, match=r"^m: config\.json has no a; it must be a whole number$"):
            number(table, "a", PLACE)
        with pytest.raises(ModelError, match=r"^m: config\.json has no a; it must be from 0 to 1$"):
            real(table, "a", PLACE)


def test_numbers_have_limits() -> None:
    assert number({"a": 1 << 30}, "a", PLACE) == 1 << 30
    wrong: tuple[Any, ...] = (True, 1.0, "1", (1 << 30) + 1, -(1 << 30) - 1, [1])
    for value in wrong:
        with pytest.raises(ModelError, match=r"it must be a whole number$"):
            number({"a": value}, "a", PLACE)
    assert real({"a": 1}, "a", PLACE) == 1.0
    wrong = (True, "1", 1.5, -0.1, 10**400, float("nan"), {})
    for value in wrong:
        with pytest.raises(ModelError, match=r"it must be from 0 to 1$"):
            real({"a": value}, "a", PLACE)
