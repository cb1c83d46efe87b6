"""SentencePiece vocabularies of GGUF files, against SentencePiece's rule written out."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.gguf_file import GgufFile, open_gguf
from edgekit.generate.host.readers.language.gguf_tokenizer import tokenizer_json
from tests.fixtures.gguf_files import gguf_bytes

SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE = "\u2581"
WORDS = "the then hen he in on no not nothing thing \u00e9t \u00e9 a an and end nd to too"


def pieces() -> list[str]:
    """Letters, and words by which a text can be split in several ways."""
    words = WORDS.split()
    found = [*(f"{SPACE}{word}" for word in words), *words, SPACE, SPACE * 2, f"{SPACE}t", f"{SPACE}th", "th"]
    letters = sorted({letter for word in found for letter in word})
    halves = [word[:cut] for word in words for cut in range(2, len(word))]
    return list(dict.fromkeys([*letters, *halves, *found]))


TOKENS = [*SPECIAL, *BYTES, *pieces()]
SCORES = np.concatenate(
    [np.zeros(len(SPECIAL) + 256), -np.random.default_rng(3).permutation(len(pieces())) - 1.0]
).astype("<f4")


def opened(tmp_path: Path, **changed: object) -> GgufFile:
    kinds = np.array([2, 3, 3, 3] + [6] * 256 + [1] * len(pieces()), "<i4")
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.scores": SCORES,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **changed,
    }
    path = tmp_path / "spm.gguf"
    path.write_bytes(gguf_bytes({k: v for k, v in metadata.items() if v is not None}, {}))
    return open_gguf(path)


def tokenizer_of(file: GgufFile) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(tokenizer_json(file, len(TOKENS)))


def expected(text: str) -> list[str]:
    """Join the two neighbours whose piece has the highest score, the first of equals, until none is left."""
    scores = dict(zip(TOKENS, SCORES.tolist(), strict=True))
    parts = list(text.replace(" ", SPACE))
    while True:
        pairs = enumerate(pairwise(parts))
        joined = [(scores[a + b], -place) for place, (a, b) in pairs if a + b in scores]
        if not joined:
            break
        at = -max(joined)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    found = []
    for part in parts:
        found += [part] if part in scores else [f"<0x{byte:02X}>" for byte in part.encode()]
    return found


@pytest.mark.needs_tokenizers
def test_texts_are_split_by_scores(tmp_path: Path) -> None:
    tokenizer, draw = tokenizer_of(opened(tmp_path)), random.Random(1)
    words = ["the", "then", "nothing", "and", "end", "too", "\u00e9t\u00e9", "zebra", "\u6f22", "  ", "nth"]
    for _ in range(200):
        text = " ".join(draw.choices(words, k=draw.randint(1, 9)))
        encoding = tokenizer.encode(text, add_special_tokens=False)
        assert encoding.tokens == expected(f" {text}"), text
        assert tokenizer.decode(encoding.ids) == text


@pytest.mark.needs_tokenizers
def test_a_first_token_special_ones_and_no_space_before_the_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(opened(tmp_path))
    assert tokenizer.encode("the").tokens == ["<s>", f"{SPACE}the"]
    assert tokenizer.encode("<|user|>the</s>").tokens == ["<s>", "<|user|>", f"{SPACE}the", "</s>"]
    bare = tokenizer_of(
        opened(tmp_path, **{"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False})
    )
    assert bare.encode("the then").tokens == ["the", f"{SPACE}then"]
    assert bare.decode(bare.encode(" the").ids) == " the"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer.ggml.scores": None}, "its tokenizer.ggml.scores does not have a number for each token"),
        (
            {"tokenizer.ggml.scores": SCORES[1:]},
            "its tokenizer.ggml.scores does not have a number for each token",
        ),
        (
            {"tokenizer.ggml.scores": np.where(SCORES == -3, np.nan, SCORES).astype("<f4")},
            "its tokenizer.ggml.scores holds a value that is not finite",
        ),
        (
            {"tokenizer.ggml.unknown_token_id": 99_999},
            f"its unknown token is 99999; it has {len(TOKENS)} tokens",
        ),
        (
            {"tokenizer.ggml.tokens": [*TOKENS[:-1], "x" * 5000]},
            "its tokenizer has a piece of 5000 characters; at most 128 are supported",
        ),
        ({"tokenizer.ggml.model": "t5"}, "its tokenizer has kind t5; supported kinds: gpt2 and llama"),
    ],
)
def test_what_is_damaged_is_refused(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    file = opened(tmp_path, **changed)
    with pytest.raises(ModelError) as raised:
        tokenizer_json(file, len(TOKENS))
    assert str(raised.value) == f"{file.path}: {said}"
