"""A Whisper model from a folder of CTranslate2 (faster-whisper): ``model.bin``, ``config.json`` and
``tokenizer.json``. Attention's q, k and v, or k and v, are one matrix there.

``model.bin`` has named arrays, and may be hostile. Its format: ``Model::load`` of OpenNMT/CTranslate2,
versions 5 and 6. Texts are 2 bytes of length, then so many bytes with a zero at the end.

    uint32 version, text name of the specification, uint32 its revision
    uint32 variables, each: text name, uint8 rank, uint32 per dimension, uint8 type, uint32 bytes, content
    uint32 aliases, each: text alias, text name
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.compiler.model.hugging_face_folder import read_json, read_part
from edgekit.errors import ModelError
from edgekit.generate.host.readers.encoder_decoder.config import (
    ATTENTION,
    EMBEDDING,
    POSITIONS,
    EncoderDecoderConfig,
    check_sizes,
)
from edgekit.generate.host.readers.speech.speech_model import SoundFormat, SpeechModel, special_tokens
from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES
from edgekit.system.regular_file import PlainFile, followed, open_regular
from edgekit.tensor_spec import Array

MODEL, SPECIFICATION = "model.bin", "WhisperSpec"
GELU = 3
"""CTranslate2's ``ActivationType::GELU``."""
NORMS = {
    "self_attn_layer_norm": "self_attention",
    "encoder_attn_layer_norm": "attention",
    "final_layer_norm": "ffn",
}
SUFFIX = {"weight": "gamma", "bias": "beta"}
FILE_LIMIT_BYTES = 8 << 30
VERSIONS = (5, 6)
VARIABLES_LIMIT, RANK_LIMIT, NAME_LIMIT_BYTES = 1 << 16, 4, 512
TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "<u2")
"""Type number -> element type; the last one is bfloat16."""


def is_ctranslate2_folder(folder: Path) -> bool:
    """Return whether a folder has a Whisper model of CTranslate2. Never raises."""
    return specification_of(folder / MODEL) == SPECIFICATION


def open_ctranslate2_folder(folder: Path) -> SpeechModel:
    """Open a folder for which ``is_ctranslate2_folder`` is true.

    Raises:
        ModelError: something is damaged, missing, or of a form that EdgeKit does not run.
    """
    file = open_ctranslate2(folder / MODEL)
    config = _config(file)
    tokenizer = read_part(folder / "tokenizer.json", TOKENIZER_LIMIT_BYTES)
    table = read_json(folder / "config.json", needed=False)
    settings = {
        "suppress_tokens": table.get("suppress_ids"),
        "begin_suppress_tokens": table.get("suppress_ids_begin"),
    }
    start, tokens, rules = special_tokens(tokenizer, settings, config.vocabulary, folder)
    digest = hashlib.sha256(file.content)
    digest.update(tokenizer)
    model = SpeechModel(
        folder.name or "whisper", config, rules, tokenizer, "CTranslate2", digest.hexdigest(),
        lambda name: _read(file, name, config), "Whisper", start, sound=SoundFormat(),
        tokens=tokens,
    )  # fmt: skip
    for name in config.weight_shapes():
        model.weight(name)
    return model


def _config(file: CTranslate2File) -> EncoderDecoderConfig:
    variables = file.variables
    layers = [
        len({name.split("/")[1] for name in variables if name.startswith(f"{part}/layer_")} - {"layer_norm"})
        for part in ("encoder", "decoder")
    ]
    try:
        vocabulary, width = variables["decoder/embeddings/weight"].shape
        mels = variables["encoder/conv1/weight"].shape[1]
        positions = variables["encoder/position_encodings/encodings"].shape[0]
        context = variables["decoder/position_encodings/encodings"].shape[0]
        mlp_width = variables["encoder/layer_0/ffn/linear_0/weight"].shape[0]
    except (KeyError, ValueError, IndexError) as problem:
        raise ModelError(
            f"{file.path}: {problem} is missing or has another shape; download it again"
        ) from None
    config = EncoderDecoderConfig(
        width,
        file.number("encoder/num_heads"),
        mlp_width,
        layers[0],
        layers[1],
        mels,
        positions,
        context,
        vocabulary,
    )
    check_sizes(config, str(file.path))
    if file.number("decoder/num_heads") != config.heads:
        raise ModelError(f"{file.path}: encoder and decoder have different numbers of heads")
    if not file.number("decoder/pre_norm", 1) or file.number("decoder/activation", GELU) != GELU:
        raise ModelError(f"{file.path}: has norms after the layers or another activation: not supported")
    return config


def _read(file: CTranslate2File, name: str, config: EncoderDecoderConfig) -> Array:
    """Read a weight by its name in ``EncoderDecoderConfig.weight_shapes``."""
    part, *rest = name.split(".")
    if name == EMBEDDING:
        return file.read("decoder/embeddings/weight")
    if name.endswith(POSITIONS):
        return file.read(f"{part}/position_encodings/encodings")
    if rest[0].startswith("conv"):
        return file.read(f"{part}/{rest[0]}/{rest[1]}")
    if rest[0] == "layer_norm":
        return file.read(f"{part}/layer_norm/{SUFFIX[rest[1]]}")
    prefix, place = f"{part}/layer_{rest[1]}/", rest[2]
    if place in NORMS:
        return file.read(f"{prefix}{NORMS[place]}/layer_norm/{SUFFIX[rest[3]]}")
    if place in ("fc1", "fc2"):
        return file.read(f"{prefix}ffn/linear_{int(place[2]) - 1}/{rest[3]}")
    number = ATTENTION.index(rest[3])
    if place == "self_attn":
        linear, row = ("linear_1", 0) if rest[3] == "out_proj" else ("linear_0", number)
        prefix += "self_attention/"
    else:
        linear, row = (("linear_0", 0), ("linear_1", 0), ("linear_1", 1), ("linear_2", 0))[number]
        prefix += "attention/"
    whole = file.read(f"{prefix}{linear}/{rest[4]}")
    return whole[row * config.width : (row + 1) * config.width]


BFLOAT16 = 5


class CTranslate2File(NamedTuple):
    """An opened ``model.bin``.

    Attributes:
        variables: Arrays by name, as stored; type bfloat16 as uint16, and listed in ``bfloat16``.
        bfloat16: Names of the arrays that are bfloat16.
    """

    path: Path
    specification: str
    variables: Mapping[str, Array]
    bfloat16: frozenset[str]
    content: bytes

    def read(self, name: str) -> Array:
        """Read an array as float32.

        Raises:
            ModelError: there is no such array, or it is quantized.
        """
        array = self.variables.get(name)
        if array is None:
            raise ModelError(f"{self.path}: has no {name[:80]}, which Whisper models need")
        if name in self.bfloat16:
            return (array.astype(np.uint32) << 16).view(np.float32)
        if array.dtype.kind != "f":
            raise ModelError(
                f"{self.path}: {name[:80]} is {array.dtype}; EdgeKit reads float models: convert the "
                "original with --quantization float16"
            )
        return array.astype(np.float32)

    def number(self, name: str, default: int = 0) -> int:
        """Return a variable that is one number, or the default where it is absent."""
        array = self.variables.get(name)
        return int(array.ravel()[0]) if array is not None and array.size == 1 else default


def specification_of(path: Path) -> str:
    """Return the name of a file's specification, or "" if it is not a CTranslate2 file. Never raises."""
    try:
        with open_regular(followed(path), follow_links=False) as file:
            start = file.read(6 + NAME_LIMIT_BYTES)
        version, length = struct.unpack_from("<IH", start)
        if version not in VERSIONS or not 0 < length <= NAME_LIMIT_BYTES or len(start) < 6 + length:
            return ""
        return start[6 : 6 + length].rstrip(b"\0").decode("ascii")
    except (OSError, ValueError, struct.error):
        return ""


def open_ctranslate2(path: Path) -> CTranslate2File:
    """Open a file.

    Raises:
        ModelError: it cannot be read, is damaged, or is of another version.
    """
    try:
        file, content = PlainFile(str(followed(path)), FILE_LIMIT_BYTES), b""
        while len(content) < file.size:  # a read gives at most 2 GB
            more = file.read(len(content), file.size - len(content))
            if not more:
                raise ModelError(f"{path}: was truncated while EdgeKit read it; wait until it is whole")
            content = content + more if content else more
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None
    except ValueError as problem:
        raise ModelError(f"{path}: {problem}; download it again") from None
    try:
        return _parsed(path, content)
    except (struct.error, ValueError, UnicodeDecodeError) as problem:
        raise ModelError(f"{path}: is damaged ({problem}); download it again") from None


class _Cursor:
    def __init__(self, content: bytes) -> None:
        self.content, self.offset = content, 0

    def number(self, kind: str) -> int:
        value: int = struct.unpack_from(f"<{kind}", self.content, self.offset)[0]
        self.offset += struct.calcsize(f"<{kind}")
        return value

    def text(self) -> str:
        return self.bytes(self.number("H"), NAME_LIMIT_BYTES).rstrip(b"\0").decode("ascii")

    def bytes(self, size: int, limit: int) -> bytes:
        if size > limit or self.offset + size > len(self.content):
            raise ValueError(f"{size} bytes at {self.offset} are beyond the file's end or a limit")
        self.offset += size
        return self.content[self.offset - size : self.offset]


def _parsed(path: Path, content: bytes) -> CTranslate2File:
    cursor = _Cursor(content)
    version = cursor.number("I")
    if version not in VERSIONS:
        raise ModelError(f"{path}: has version {version}; EdgeKit reads {', '.join(map(str, VERSIONS))}")
    specification = cursor.text()
    cursor.number("I")
    variables, narrow = dict[str, Array](), set[str]()
    count = cursor.number("I")
    if count > VARIABLES_LIMIT:
        raise ValueError(f"{count} variables")
    for _ in range(count):
        name, rank = cursor.text(), cursor.number("B")
        if rank > RANK_LIMIT:
            raise ValueError(f"{name[:80]} has {rank} dimensions")
        shape = [cursor.number("I") for _ in range(rank)]
        kind, size = cursor.number("B"), cursor.number("I")
        if kind >= len(TYPES):
            raise ValueError(f"{name[:80]} has type {kind}")
        dtype = np.dtype(TYPES[kind])
        if math.prod(shape) * dtype.itemsize != size or cursor.offset + size > len(content):
            raise ValueError(f"{name[:80]} has {size} bytes for the shape {shape}")
        variables[name] = np.frombuffer(content, dtype, math.prod(shape), cursor.offset).reshape(shape)
        if kind == BFLOAT16:
            narrow.add(name)
        cursor.offset += size
    aliases = cursor.number("I") if cursor.offset < len(content) else 0
    if aliases > VARIABLES_LIMIT:
        raise ValueError(f"{aliases} aliases")
    for _ in range(aliases):
        alias, name = cursor.text(), cursor.text()
        if name not in variables:
            raise ValueError(f"the alias {alias[:80]} names nothing")
        variables[alias] = variables[name]
        if name in narrow:
            narrow.add(alias)
    return CTranslate2File(path, specification, variables, frozenset(narrow), content)
