"""BERT's tokenizer as the ``tokenizers`` package saves it, from the vocabulary alone (arXiv 1810.04805)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_tokenizer(vocabulary: Path, path: Path) -> None:
    """Write ``tokenizer.json`` of an uncased BERT.

    Args:
        vocabulary: A JSON list in the order of the ids, where what begins a word has U+2581 first; WordPiece
            marks what continues one instead, with ##.
        path: The file to write.
    """
    pieces = [_as_wordpiece(token) for token in json.loads(vocabulary.read_text("utf-8"))]
    ids = {piece: number for number, piece in enumerate(pieces)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    table: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": ids[name], "content": name, **plain} for name in SPECIAL],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "BertProcessing",
            "sep": ["[SEP]", ids["[SEP]"]],
            "cls": ["[CLS]", ids["[CLS]"]],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }
    path.write_text(json.dumps(table), "utf-8")


def _as_wordpiece(token: str) -> str:
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[1:] if token.startswith("\u2581") and len(token) > 1 else f"##{token}"
