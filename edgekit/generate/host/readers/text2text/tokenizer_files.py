"""Tokenizers of a text-to-text folder: ``tokenizer.json``, or SentencePiece files, which become the same
form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.compiler.model.hugging_face_folder import read_json, read_part
from edgekit.errors import CardError, ModelError
from edgekit.generate.host.readers.folder_fields import entries, number, table_of, text
from edgekit.generate.host.readers.text2text.sentencepiece_file import (
    SentencePieceFile,
    open_sentencepiece,
    unigram_json,
)
from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES, vocabulary_size
from edgekit.processing.transcripts.words import BYTE_LEVEL, SENTENCEPIECE

JSON_FILE, T5_FILE = "tokenizer.json", "spiece.model"
MARIAN_FILES = ("source.spm", "target.spm", "vocab.json")
EXTRA_TOKENS = 100
"""Sentinels ``<extra_id_0>`` ... that T5's tokenizers add after the vocabulary, the last one first."""
UNKNOWN, END, PAD = "<unk>", "</s>", "<pad>"


class Tokenizers(NamedTuple):
    """Tokenizers of a model.

    Attributes:
        source: The ``tokenizer.json`` that splits texts.
        target: The one that has the texts of generated tokens.
    """

    source: bytes
    target: bytes
    special: tuple[int, ...]
    spelling: str
    files: tuple[str, ...]


def read_tokenizers(folder: Path, vocabulary: int, special: Set[int]) -> Tokenizers:
    """Read the tokenizers.

    Raises:
        ModelError: no tokenizer is there, or it is damaged or does not fit.
    """
    names: tuple[str, ...]
    if all((folder / name).is_file() for name in MARIAN_FILES):
        names, (source, target) = MARIAN_FILES, _marian(folder, vocabulary)
    elif (folder / JSON_FILE).is_file():
        names = (JSON_FILE,)
        source = target = read_part(folder / JSON_FILE, TOKENIZER_LIMIT_BYTES)
    elif (folder / T5_FILE).is_file():
        names = (T5_FILE,)
        source = target = _t5(open_sentencepiece(folder / T5_FILE))
    else:
        raise ModelError(
            f"{folder}: has no tokenizer.json, spiece.model, or source.spm with target.spm and vocab.json; "
            "copy them from where the model is from, or save them with transformers: "
            "AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER)"
        )
    try:
        size = max(vocabulary_size(source), vocabulary_size(target))
        table: dict[str, Any] = json.loads(target)
    except (CardError, TypeError, AttributeError) as problem:
        raise ModelError(f"{folder}: the tokenizer is damaged ({problem}); download it again") from None
    if size > vocabulary:
        raise ModelError(f"{folder}: the tokenizer has {size} tokens, but the model {vocabulary}")
    added = entries(table, "added_tokens", folder, JSON_FILE)
    ids = {number(entry, "id", folder, file=JSON_FILE) for entry in added if entry.get("special") is True}
    if table["model"].get("unk_id") is not None:
        ids.add(number(table["model"], "unk_id", folder, file=JSON_FILE))
    return Tokenizers(source, target, tuple(sorted({*special, *ids})), _spelling(table, folder), names)


def _spelling(table: dict[str, Any], folder: Path) -> str:
    decoder = table_of(table, "decoder", folder, JSON_FILE)
    steps = entries(decoder, "decoders", folder, JSON_FILE) or [decoder]
    kinds = {text(step, "type", folder, file=JSON_FILE) for step in steps}
    if "ByteLevel" in kinds:
        return BYTE_LEVEL
    if kinds & {"Metaspace", "ByteFallback", "Replace"}:
        return SENTENCEPIECE
    raise ModelError(
        f"{folder}: tokenizer.json has the decoder {sorted(kinds)}; EdgeKit decodes ByteLevel and Metaspace"
    )


def _t5(file: SentencePieceFile) -> bytes:
    """Return T5's tokenizer: the pieces in their order, and the sentinels after them."""
    names = [f"<extra_id_{number}>" for number in reversed(range(EXTRA_TOKENS))]
    pieces = [piece.text for piece in file.pieces]
    return unigram_json(file, [*pieces, *names], special=(PAD, END, UNKNOWN, *names), end=END)


def _marian(folder: Path, vocabulary: int) -> tuple[bytes, bytes]:
    """Return Marian's tokenizers: pieces of two SentencePiece files, whose tokens ``vocab.json`` has."""
    source, _ = (open_sentencepiece(folder / name) for name in MARIAN_FILES[:2])
    numbers: Any = read_json(folder / MARIAN_FILES[2])
    if not all(type(number) is int and 0 <= number < vocabulary for number in numbers.values()):
        raise ModelError(f"{folder}: vocab.json has tokens beyond the {vocabulary} of the model")
    if not {UNKNOWN, END} <= set(numbers):
        raise ModelError(f"{folder}: vocab.json has no {UNKNOWN} or {END}; download it again")
    if len(set(numbers.values())) < len(numbers):
        raise ModelError(f"{folder}: vocab.json has two tokens of one number; download it again")
    texts = [""] * (max(numbers.values()) + 1)
    for piece, token in numbers.items():
        texts[token] = piece
    special = [piece for piece in (END, UNKNOWN, PAD) if piece in numbers] + _language_codes(texts)
    return (
        unigram_json(source, texts, special=special, end=END),
        unigram_json(source, texts, special=special, end=END, all_match=True),
    )


def _language_codes(texts: Iterable[str]) -> list[str]:
    """Return the tokens that choose the language to write, e.g. ``>>fra<<``."""
    return [text for text in texts if text.startswith(">>") and text.endswith("<<")]
