"""A SentencePiece file (Unigram), which may be hostile, and its form as a ``tokenizer.json``.

Format: ``sentencepiece_model.proto`` of google/sentencepiece, in Protocol Buffers' wire format.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from edgekit.compiler.model.hugging_face_folder import read_part
from edgekit.errors import ModelError
from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES
from edgekit.tensor_spec import Json

SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""``SentencePiece.Type``."""
UNIGRAM = 1
"""``TrainerSpec.ModelType``."""
PIECES_LIMIT = 1 << 20
NEVER = "\ufdd0"
"""Not a character (Unicode, 23.7): begins pieces that no text has."""


class Piece(NamedTuple):
    """A piece of the vocabulary: text, log probability and type."""

    text: str
    score: float
    kind: int


class SentencePieceFile(NamedTuple):
    """An opened file.

    Attributes:
        charsmap: Rules of the Unicode normalization; b"": none.
        prefix: Whether a space is added before a text.
        trims: Whether spaces at both ends are removed, and several become one.
    """

    path: Path
    pieces: tuple[Piece, ...]
    charsmap: bytes
    prefix: bool
    trims: bool


def open_sentencepiece(path: Path) -> SentencePieceFile:
    """Open a file.

    Raises:
        ModelError: it can't be read, is damaged, or is not a Unigram model.
    """
    content = read_part(path, TOKENIZER_LIMIT_BYTES)
    try:
        return _parsed(path, content)
    except (IndexError, KeyError, TypeError, ValueError, struct.error) as problem:
        raise ModelError(f"{path}: is not a SentencePiece model ({problem}); download it again") from None


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; fixed 32-bit ones as their 4 bytes."""
    offset = 0
    while offset < len(content):
        key, offset = _varint(content, offset)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, offset = _varint(content, offset)
            yield number, value
            continue
        if wire == 2:
            size, offset = _varint(content, offset)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at {offset}")
        if offset + size > len(content):
            raise ValueError(f"a field of {size} bytes at {offset} is beyond the end")
        yield number, content[offset : offset + size]
        offset += size


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise ValueError(f"a number of more than 64 bits at {offset}")


def _parsed(path: Path, content: bytes) -> SentencePieceFile:
    pieces, trainer, normalizer = list[Piece](), dict[int, int | bytes](), dict[int, int | bytes]()
    for number, value in _fields(content):
        if number in (1, 2, 3) and not isinstance(value, bytes):
            raise ValueError(f"field {number} is a number")
        if number == 1 and isinstance(value, bytes):
            pieces.append(_piece(dict(_fields(value))))
        elif number in (2, 3) and isinstance(value, bytes):
            (trainer if number == 2 else normalizer).update(_fields(value))
    if not pieces or len(pieces) > PIECES_LIMIT:
        raise ValueError(f"{len(pieces)} pieces")
    if all(piece.kind != UNKNOWN for piece in pieces):
        raise ValueError("no unknown piece")
    if trainer.get(3, UNIGRAM) != UNIGRAM:
        raise ModelError(
            f"{path}: is a SentencePiece model of another type than Unigram, which is not supported"
        )
    if trainer.get(24, 0) or not normalizer.get(5, 1):
        raise ModelError(f"{path}: spaces follow words, or are not escaped, which is not supported")
    charsmap = normalizer.get(2, b"")
    if not isinstance(charsmap, bytes):
        raise ValueError("the normalization is a number")
    return SentencePieceFile(
        path, tuple(pieces), charsmap, bool(normalizer.get(3, 1)), bool(normalizer.get(4, 1))
    )


def _piece(fields: dict[int, int | bytes]) -> Piece:
    text, score, kind = fields.get(1, b""), fields.get(2, b"\0\0\0\0"), fields.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("a piece is malformed")
    value = struct.unpack("<f", score)[0]
    if not -1e9 < value < 1e9:
        raise ValueError(f"a piece has the score {value}")
    return Piece(text.decode("utf-8"), value, kind)


def unigram_json(
    file: SentencePieceFile,
    texts: Sequence[str],
    *,
    special: Sequence[str],
    end: str,
    all_match: bool = False,
) -> bytes:
    """Return a ``tokenizer.json`` with the pieces of a file as these tokens.

    A piece that is not among the tokens is left out: other pieces spell its text.

    Args:
        texts: Text of each token; "" for numbers that are not used.
        end: Special token that is added to a text.
        all_match: Whether tokens that are not pieces of the file keep their texts: for decoding.

    Raises:
        ModelError: a special token is not among the tokens.
    """
    by_text = {piece.text: piece for piece in file.pieces}
    usable = {text for text, piece in by_text.items() if piece.kind in (NORMAL, USER_DEFINED, BYTE)}
    lowest = min(piece.score for piece in file.pieces)
    vocabulary: list[Json] = []
    for number, text in enumerate(texts):
        matches = all_match or text in usable or text in special
        score = by_text[text].score if text in usable else 0.0 if text in special else lowest
        vocabulary.append([text if matches and text else f"{NEVER}{number}", score])
    whole = [text for text in texts if text in by_text and by_text[text].kind == USER_DEFINED]
    numbers = {text: number for number, text in enumerate(texts)}
    unknown = next(piece.text for piece in file.pieces if piece.kind == UNKNOWN)
    if missing := [text for text in (*special, end, unknown) if text not in numbers]:
        raise ModelError(f"{file.path}: has no piece {missing[0]}; download it again")
    added = [_added(text, numbers[text], text in special) for text in dict.fromkeys((*special, *whole))]
    splits = not any(SPACE in text[1:] for text in usable)
    metaspace: Json = {
        "type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always" if file.prefix else "never",
        "split": splits,
    }  # fmt: skip
    ending: Json = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": end, "type_id": 0}}]
    table: dict[str, Json] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": _normalizer(file), "pre_tokenizer": metaspace,
        "post_processor": {
            "type": "TemplateProcessing", "single": ending,
            "pair": [*ending, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {end: {"id": end, "ids": [numbers[end]], "tokens": [end]}},
        },
        "decoder": metaspace,
        "model": {
            "type": "Unigram", "unk_id": numbers[unknown], "vocab": vocabulary,
            "byte_fallback": any(piece.kind == BYTE for piece in file.pieces),
        },
    }  # fmt: skip
    return json.dumps(table, ensure_ascii=False).encode()


def _added(text: str, number: int, special: bool) -> Json:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": text, **flags, "special": special}


def _normalizer(file: SentencePieceFile) -> Json:
    steps: list[Json] = []
    if file.charsmap:
        rules = base64.b64encode(file.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": rules})
    if file.trims:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return {"type": "Sequence", "normalizers": steps}
