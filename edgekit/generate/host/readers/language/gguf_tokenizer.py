"""A GGUF file's vocabulary as a ``tokenizer.json`` of Hugging Face's tokenizers: BPE on bytes (``gpt2``), or
SentencePiece's (``llama``; gguf_sentencepiece.py).

Splitting rules by ``tokenizer.ggml.pre``: ``src/llama-vocab.cpp`` of ggml-org/llama.cpp, which has them from
the models' own ``tokenizer.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language import gguf_sentencepiece
from edgekit.generate.host.readers.language.gguf_file import GgufFile
from edgekit.generate.host.readers.language.language_model import STOP_TOKENS
from edgekit.tensor_spec import Json

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""``enum llama_token_type``."""
_BYTE_LEVEL: dict[str, Json] = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
}  # fmt: skip
_BYTES_ONLY: dict[str, Json] = {**_BYTE_LEVEL, "use_regex": False}
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _split(pattern: str) -> list[Json]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return [split, dict(_BYTES_ONLY)]


_SPLITS: Mapping[str, list[Json]] = {
    "gpt-2": [dict(_BYTE_LEVEL)],
    "smollm": [{"type": "Digits", "individual_digits": True}, dict(_BYTE_LEVEL)],
    "llama-bpe": _split(_LLAMA3),
    "qwen2": _split(_QWEN2),
}
"""Name in the file -> how a text is split before its pairs are merged."""
_WHOLE_FIRST = ("llama-bpe",)
"""Where a piece that is a token stays whole (``ignore_merges``)."""
_COMPOSED = ("qwen2",)
"""Where texts are brought to Unicode's form NFC first."""
_STOPS = ("eos", "eot", "eom")


def special_ids(file: GgufFile, vocabulary: int) -> tuple[int | None, tuple[int, ...]]:
    """Return the begin-of-text token, if any, and the tokens that end an answer.

    Raises:
        ModelError: an id is not a token's, or no token ends an answer.
    """
    tokens = _tokens(file, vocabulary)

    def token(role: str) -> int | None:
        number = file.get(f"tokenizer.ggml.{role}_token_id", int)
        if number is not None and not 0 <= number < vocabulary:
            raise ModelError(f"{file.path}: its {role} token is {number}; it has {vocabulary} tokens")
        return number

    stops = {number for role in _STOPS if (number := token(role)) is not None}
    stops |= {number for number, text in enumerate(tokens) if text in STOP_TOKENS}
    if not stops:
        raise ModelError(f"{file.path}: has no end-of-text token (tokenizer.ggml.eos_token_id)")
    by_default = file.get("tokenizer.ggml.model", str) == "llama"
    begins = file.get("tokenizer.ggml.add_bos_token", bool)
    bos_id = token("bos") if (by_default if begins is None else begins) else None
    return bos_id, tuple(sorted(stops))


def tokenizer_json(file: GgufFile, vocabulary: int) -> bytes:
    """Return the tokenizer as a file.

    Raises:
        ModelError: it is of a kind that EdgeKit does not read, or damaged.
    """
    kind = file.need("tokenizer.ggml.model", str)
    tokens = _tokens(file, vocabulary)
    if kind not in ("gpt2", "llama"):
        raise ModelError(f"{file.path}: its tokenizer has kind {kind[:40]}; supported kinds: gpt2 and llama")
    types = _token_types(file, tokens)
    parts = _byte_level(file, tokens) if kind == "gpt2" else _sentencepiece(file, tokens, types)
    added: list[Json] = [
        {
            "id": number, "content": tokens[number], "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": types[number] == _CONTROL,
        }
        for number in range(len(tokens))
        if types[number] in (_CONTROL, _USER_DEFINED) and tokens[number]
    ]  # fmt: skip
    table: dict[str, Json] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": parts["normalizer"],
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": _with_bos(file, tokens),
        "decoder": parts["decoder"],
        "model": parts["model"],
    }
    return json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()


def _byte_level(file: GgufFile, tokens: Sequence[str]) -> dict[str, Json]:
    pre = file.get("tokenizer.ggml.pre", str) or "gpt-2"
    if pre not in _SPLITS:
        raise ModelError(
            f"{file.path}: its tokenizer uses the pre-tokenizer {pre[:40]!r}; supported: "
            f"{', '.join(_SPLITS)}. Use the model's Hugging Face folder instead, which has a tokenizer.json"
        )
    merges = _merges(file, tokens)
    return {
        "normalizer": {"type": "NFC"} if pre in _COMPOSED else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _SPLITS[pre]},
        "decoder": dict(_BYTE_LEVEL),
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": pre in _WHOLE_FIRST, "vocab": _by_token(file, tokens), "merges": merges,
        },
    }  # fmt: skip


def _sentencepiece(file: GgufFile, tokens: Sequence[str], types: Sequence[int]) -> dict[str, Json]:
    return {
        "normalizer": gguf_sentencepiece.normalizer(file),
        "pre_tokenizer": None,
        "decoder": gguf_sentencepiece.decoder(file),
        "model": gguf_sentencepiece.model(file, _by_token(file, tokens), types),
    }


def _tokens(file: GgufFile, vocabulary: int) -> list[str]:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        raise ModelError(f"{file.path}: has no tokenizer.ggml.tokens, which EdgeKit needs to tokenize text")
    if not 0 < len(tokens) <= vocabulary:
        raise ModelError(f"{file.path}: has {len(tokens)} tokens but {vocabulary} embeddings")
    return tokens


def _by_token(file: GgufFile, tokens: Sequence[str]) -> dict[str, Json]:
    id_by_token: dict[str, Json] = {text: number for number, text in enumerate(tokens)}
    if len(id_by_token) != len(tokens):
        raise ModelError(f"{file.path}: two of its tokens are the same")
    return id_by_token


def _token_types(file: GgufFile, tokens: Sequence[str]) -> list[int]:
    types = file.metadata.get("tokenizer.ggml.token_type")
    if types is None:
        return [_NORMAL] * len(tokens)
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu" or len(types) != len(tokens):
        raise ModelError(f"{file.path}: its tokenizer.ggml.token_type does not have a number for each token")
    return [int(number) for number in types]


def _merges(file: GgufFile, tokens: Sequence[str]) -> list[Json]:
    """Return the pairs of tokens that merge into a token."""
    merges = file.metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise ModelError(f"{file.path}: has no tokenizer.ggml.merges, which EdgeKit needs to tokenize text")
    vocabulary, pairs = set(tokens), list[Json]()
    for text in merges:
        first, _, second = text.partition(" ")
        if first not in vocabulary or second not in vocabulary or first + second not in vocabulary:
            raise ModelError(f"{file.path}: its merge {text[:60]!r} does not join two tokens into a token")
        pairs.append([first, second])
    return pairs


def _with_bos(file: GgufFile, tokens: Sequence[str]) -> Json:
    bos_id, _ = special_ids(file, len(tokens))
    if bos_id is None:
        return None
    name = tokens[bos_id]
    piece: list[Json] = [{"SpecialToken": {"id": name, "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": [*piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            *piece, {"Sequence": {"id": "A", "type_id": 0}}, *piece, {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {name: {"id": name, "ids": [bos_id], "tokens": [name]}},
    }  # fmt: skip
