"""GGUF files that are wrong, cut off or hostile: one clear error, without memory for what they only claim."""

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language import gguf_file
from edgekit.generate.host.readers.language.gguf_file import open_gguf
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from tests.fixtures.gguf_files import F32, as_tensors, gguf_bytes, text, tiny_metadata, tiny_weights

MUCH = 1 << 60


def head(version: int = 3, tensors: int = 0, keys: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = b"".join(struct.pack("<Q", size) for size in shape)
    return text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, offset)


HEADS = {
    "another format": (b"PK\3\4" + bytes(60), "is not a GGUF file: it does not start with GGUF"),
    "nothing else": (
        b"GGUF",
        "ends at byte 4, but 4 bytes are needed at 4; the file is truncated: download it again",
    ),
    "version 1": (head(1), "is GGUF version 1; EdgeKit reads versions 2 and 3"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is a big-endian GGUF file"),
    "many keys": (head(keys=MUCH), f"has {MUCH} keys; at most 4096 are supported"),
    "many tensors": (head(tensors=MUCH), f"has {MUCH} tensors; at most 65536 are supported"),
    "more keys than bytes": (
        head(keys=4000),
        "claims 4000 keys, which do not fit into 24 bytes; download the file again",
    ),
    "a long key": (
        head(keys=1) + struct.pack("<Q", MUCH) + bytes(64),
        "a key has 1152921504606846976 bytes; at",
    ),
    "a long text": (
        head(keys=1) + text("a") + struct.pack("<IQ", 8, MUCH),
        f"the value of a has {MUCH} bytes; at most 16777216 are supported",
    ),
    "a long array": (
        head(keys=1) + text("a") + struct.pack("<IIQ", 9, 0, MUCH),
        f"has {MUCH} items in a; at most 2000000 are supported",
    ),
    "an array longer than the file": (
        head(keys=1) + text("a") + struct.pack("<IIQ", 9, 10, 1_000_000),
        "claims 1000000 items in a, which do not fit",
    ),
    "texts longer than the file": (
        head(keys=1) + text("a") + struct.pack("<IIQ", 9, 8, 1_000_000),
        "claims 1000000 items in a, which do not fit",
    ),
    "arrays in arrays": (
        head(keys=1) + text("a") + struct.pack("<IIQ", 9, 9, 1) + bytes(64),
        "a is an array of arrays, which is not supported",
    ),
    "an unknown type": (
        head(keys=1) + text("a") + struct.pack("<I", 77),
        "has type 77, which GGUF does not define",
    ),
    "an array of an unknown type": (
        head(keys=1) + text("a") + struct.pack("<IIQ", 9, 77, 1) + bytes(8),
        "a is an array of type 77, which GGUF does not define",
    ),
    "a key twice": (head(keys=2) + 2 * (text("a") + struct.pack("<II", 4, 1)), "has the key a twice"),
    "no UTF-8": (
        head(keys=1) + struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<II", 4, 1),
        "a key at byte 32 is not valid UTF-8",
    ),
    "an odd alignment": (
        head(keys=1) + text("general.alignment") + struct.pack("<II", 4, 0),
        "its general.alignment is 0, not a power of two from 8 to 1 MB",
    ),
    "many dimensions": (
        head(tensors=1) + text("t") + struct.pack("<I", 1 << 30) + bytes(64),
        "tensor t has 1073741824 dimensions; the format has at most 4",
    ),
    "an unread type": (
        head(tensors=1) + tensor("t", (256,), 16, 0) + bytes(999),
        "tensor t has type IQ2_XXS, which EdgeKit cannot read; use a file of this model with one "
        "of F32, F16,",
    ),
    "an unknown element type": (
        head(tensors=1) + tensor("t", (256,), 4711, 0) + bytes(99),
        "has type number 4711,",
    ),
    "half a block": (
        head(tensors=1) + tensor("t", (33,), 8, 0) + bytes(999),
        "tensor t is [33], which is not a multiple of the Q8_0 block size, 32",
    ),
    "no elements": (
        head(tensors=1) + tensor("t", (0, 4), F32, 0) + bytes(99),
        "tensor t is [4, 0], which is not",
    ),
    "a huge tensor": (
        head(tensors=1) + tensor("t", (1 << 62, 1 << 62, 1 << 62), F32, 0) + bytes(99),
        "; the file is damaged or truncated: download it again",
    ),
    "a far offset": (
        head(tensors=1) + tensor("t", (8,), F32, (1 << 64) - 32) + bytes(99),
        "; the file is damaged or truncated: download it again",
    ),
    "an odd offset": (
        head(tensors=1) + tensor("t", (8,), F32, 3) + bytes(99),
        "; the file is damaged or truncated: download it again",
    ),
    "one over the other": (
        head(tensors=2) + tensor("a", (16,), F32, 0) + tensor("b", (8,), F32, 32) + bytes(199),
        "tensors a and b overlap; download the file again",
    ),
    "a name twice": (
        head(tensors=2) + tensor("a", (8,), F32, 0) + tensor("a", (8,), F32, 32) + bytes(199),
        "has tensor a twice",
    ),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_wrong_head_gives_one_clear_error(tmp_path: Path, case: str) -> None:
    content, message = HEADS[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as raised:
            open_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "no architecture": ({"general.architecture": None}, "has no general.architecture"),
    "another architecture": (
        {"general.architecture": "mamba"},
        "has architecture mamba, which is not supported; supported: gemma2, gemma3, llama, olmoe, phi3,",
    ),
    "a text for a number": ({"llama.block_count": "two"}, "its llama.block_count is not a whole number"),
    "no layers": ({"llama.block_count": 0}, "its layers is 0; it must be 1 to 512"),
    "a million layers": ({"llama.block_count": 1_000_000}, "its layers is 1000000; it must be 1 to 512"),
    "no heads": ({"llama.attention.head_count": 0}, "its heads is 0; it must be 1 to 1024"),
    "heads that can't be shared": (
        {"llama.attention.head_count_kv": 3},
        "its 4 heads are not a multiple of its 3 key-value heads",
    ),
    "an odd head": ({"llama.attention.key_length": 15}, "; the rotary embedding requires an even number"),
    "another width": ({"llama.embedding_length": 128}, "its metadata says [309, 128]"),
    "more layers than tensors": ({"llama.block_count": 3}, "has no tensor blk.2.attn_norm.weight"),
    "no positions": ({"llama.context_length": 0}, "its context_length is 0"),
    "a norm of nothing": ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "its norm_eps is nan"),
    "no rotation": ({"llama.rope.freq_base": 0.0}, "its rope_theta is 0.0, which is not a valid value"),
    "a scaled rotation": ({"llama.rope.scaling.type": "yarn"}, "has a rotary embedding scaled by yarn"),
    "experts": ({"llama.expert_count": 8}, "has a mixture of 8 experts, which is not supported"),
    "half a rotation": ({"llama.rope.dimension_count": 8}, "has a rotary embedding on 8 of 16 elements"),
    "no tokens": ({"tokenizer.ggml.tokens": None}, "has no tokenizer.ggml.tokens"),
    "more tokens than embeddings": (
        {"tokenizer.ggml.tokens": ["x"] * 999},
        "has 999 tokens but 309 embeddings",
    ),
    "the same tokens": ({"tokenizer.ggml.tokens": ["a"] * 309}, "does not join two tokens into a token"),
    "a merge of nothing": (
        {"tokenizer.ggml.merges": ["a"]},
        "its merge 'a' does not join two tokens into a token",
    ),
    "no types": (
        {"tokenizer.ggml.token_type": np.array([1, 2], "<i4")},
        "its tokenizer.ggml.token_type does not have a number for each token",
    ),
    "a stop beyond": ({"tokenizer.ggml.eos_token_id": 5000}, "its eos token is 5000; it has 309 tokens"),
    "another tokenizer": (
        {"tokenizer.ggml.model": "bert"},
        "its tokenizer has kind bert; supported kinds: gpt2 and llama",
    ),
    "unknown splitting": (
        {"tokenizer.ggml.pre": "odd"},
        "its tokenizer uses the pre-tokenizer 'odd'; supported: gpt-2,",
    ),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata_that_can_not_be_gives_one_clear_error(tmp_path: Path, case: str) -> None:
    changed, message = METADATA[case]
    metadata = {key: value for key, value in {**tiny_metadata(), **changed}.items() if value is not None}
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf_bytes(metadata, as_tensors(tiny_weights())))
    with pytest.raises(ModelError) as raised:
        open_gguf_model(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


def test_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = gguf_bytes(tiny_metadata(), as_tensors(tiny_weights()))
    path = tmp_path / "cut.gguf"
    for size in [*range(0, 20_000, 331), len(whole) - 64, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            open_gguf_model(path)


def test_a_file_that_shrinks_while_it_is_open_gives_an_error_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata(), as_tensors(tiny_weights())))
    model = open_gguf_model(path)
    with path.open("r+b") as file:
        file.truncate(20_000)
    with pytest.raises(
        ModelError, match=": was truncated while EdgeKit read it; wait until it is completely written"
    ):
        model.weight("lm_head.weight" if not model.config.tied_embedding else "model.norm.weight")


def test_changed_bytes_give_a_model_or_a_clear_error(tmp_path: Path) -> None:
    """Bytes of the head are replaced at random; whatever opens can be read to its last weight."""
    whole = gguf_bytes(tiny_metadata(), as_tensors(tiny_weights()))
    random, path, opened = np.random.default_rng(3), tmp_path / "changed.gguf", 0
    for _ in range(150):
        changed = bytearray(whole)
        for at in random.integers(0, 16_000, random.integers(1, 4)):
            changed[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, int(random.integers(256))])
        path.write_bytes(changed)
        try:
            model = open_gguf_model(path)
            for name in model.weight_names:
                model.weight(name)
            opened += 1
        except ModelError:
            continue
    assert 0 < opened < 150


def test_a_pipe_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(ModelError, match="cannot be read"):
        open_gguf(tmp_path)


def test_a_head_over_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the bytes, and nobody wants so many of them in memory."""
    path = tmp_path / "m.gguf"
    path.write_bytes(head(keys=1) + text("a") + struct.pack("<IQ", 8, 1 << 21) + bytes(1 << 21))
    monkeypatch.setattr(gguf_file, "HEAD_LIMIT_BYTES", 1 << 20)
    with pytest.raises(ModelError) as caught:
        open_gguf(path)
    assert str(caught.value) == (f"{path}: its metadata is larger than 1 MB, the supported maximum")
