"""A GGUF file's SentencePiece vocabulary (``tokenizer.ggml.model`` is ``llama``) as parts of a
``tokenizer.json``.

SentencePiece's BPE joins the two neighbours that make the piece with the highest score; the package
``tokenizers`` joins pairs by their place in a list. The list is made from the scores as transformers makes it
(``generate_merges`` in ``convert_slow_tokenizer.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.gguf_file import GgufFile
from edgekit.tensor_spec import Json

SPACE = "\u2581"
_NORMAL, _UNKNOWN, _BYTE = 1, 2, 6
"""``enum llama_token_type``."""
LONGEST_PIECE = 128
"""Characters of a piece: SentencePiece's own limit is 16, Gemma's longest are runs of 31 spaces."""


def normalizer(file: GgufFile) -> Json:
    """Return the normalizer: it replaces spaces by ``SPACE`` and, unless disabled, adds one in front."""
    spaces: Json = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps: list[Json] = [{"type": "Prepend", "prepend": SPACE}, spaces] if _begins(file) else [spaces]
    return {"type": "Sequence", "normalizers": steps}


def decoder(file: GgufFile) -> Json:
    """Return the decoder: it joins pieces to text, and byte tokens to characters."""
    steps: list[Json] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if _begins(file):
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def model(file: GgufFile, by_token: Mapping[str, Json], types: Sequence[int]) -> Json:
    """Return the table of merges.

    Raises:
        ModelError: the file has no scores, no piece for what it does not know, or a piece that is too long.
    """
    tokens, unknown = list(by_token), file.get("tokenizer.ggml.unknown_token_id", int)
    if unknown is None:
        unknown = next((number for number, kind in enumerate(types) if kind == _UNKNOWN), -1)
    if not 0 <= unknown < len(tokens):
        raise ModelError(f"{file.path}: its unknown token is {unknown}; it has {len(tokens)} tokens")
    return {
        "type": "BPE", "dropout": None, "unk_token": tokens[unknown], "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": _BYTE in types,
        "ignore_merges": False, "vocab": dict(by_token), "merges": _merges(file, by_token, types),
    }  # fmt: skip


def _begins(file: GgufFile) -> bool:
    return file.get("tokenizer.ggml.add_space_prefix", bool) is not False


def _merges(file: GgufFile, by_token: Mapping[str, Json], types: Sequence[int]) -> list[Json]:
    scores = file.metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or scores.dtype.kind != "f" or len(scores) != len(by_token):
        raise ModelError(f"{file.path}: its tokenizer.ggml.scores does not have a number for each token")
    if not np.isfinite(scores).all():
        raise ModelError(f"{file.path}: its tokenizer.ggml.scores holds a value that is not finite")
    pieces = {text for text, kind in zip(by_token, types, strict=True) if kind == _NORMAL}
    longest = max(map(len, pieces), default=0)
    if longest > LONGEST_PIECE:
        raise ModelError(
            f"{file.path}: its tokenizer has a piece of {longest} characters; at most "
            f"{LONGEST_PIECE} are supported"
        )
    ranked = [
        (score, len(first), len(second), first, second)
        for text, score in zip(by_token, scores.tolist(), strict=True)
        if text in pieces
        for first, second in _halves(text, pieces)
    ]
    ranked.sort(key=lambda pair: pair[:3], reverse=True)
    return [[first, second] for *_, first, second in ranked]


def _halves(text: str, pieces: set[str]) -> Iterator[tuple[str, str]]:
    for cut in range(1, len(text)):
        if text[:cut] in pieces and text[cut:] in pieces:
            yield text[:cut], text[cut:]
