"""An input that is a part of a text: ``kind = "text"`` in a card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from edgekit.errors import CardError
from edgekit.system.formats.strict_tables import choice, get, only, whole_numbers
from edgekit.tensor_spec import Json

Part = Literal["ids", "mask", "types"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "part": ("ids", "mask", "types"),
    "padding": ("right", "left"),
    "dtype": ("int64", "int32"),
}
WITH_IDS = ("tokenizer", "padding", "pad_id", "special_tokens", "pair")
"""Keys of the token ids; the other parts follow them."""
TOKENS_LIMIT = 65_536
PAD_FROM_TOKENIZER = -1
_IN_NAMES = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


@dataclass(frozen=True)
class TextInput:
    """Text input: token ids, mask or types of a text.

    Attributes:
        name: The input's name in the model.
        shape: [1, tokens] or [tokens]. Longer texts are truncated, shorter ones padded.
        part: ``ids`` of the tokens; ``mask``: 1 for a token, 0 for padding; ``types``: 0 for the first text,
            1 for the second of a pair.
        tokenizer: (ids) Required: file in the card's folder, as the ``tokenizers`` package saves it.
        padding: (ids) Padding side.
        pad_id: (ids) Token id for padding. -1 means the tokenizer's own.
        special_tokens: (ids) Whether the tokenizer adds special tokens such as [CLS] and [SEP].
        pair: (ids) Whether the input is a pair of texts; the longer one is truncated first.
        dtype: Data type of the input.
    """

    kind: ClassVar[str] = "text"
    range: ClassVar[None] = None

    name: str
    shape: tuple[int, ...]
    part: Part
    tokenizer: str = ""
    padding: Literal["right", "left"] = "right"
    pad_id: int = PAD_FROM_TOKENIZER
    special_tokens: bool = True
    pair: bool = False
    dtype: str = "int64"

    @property
    def tokens(self) -> int:
        return self.shape[-1]

    def as_json(self) -> dict[str, Json]:
        skipped = ("name", *(() if self.part == "ids" else WITH_IDS), *(() if self.pair else ("pair",)))
        table = {key: value for key, value in asdict(self).items() if key not in skipped}
        return {"kind": "text", **table, "shape": list(self.shape)}


def read_text(name: str, table: dict[str, Json], location: str) -> TextInput:
    """Read the text input of a card's table.

    Raises:
        CardError: it is malformed.
    """
    only(table, ("kind", *(f.name for f in fields(TextInput) if f.name != "name")), location)
    settings: dict[str, Any] = {"shape": whole_numbers(table, "shape", location, minimum=1)}
    for key, allowed in CHOICES.items():
        if key in table or key == "part":
            settings[key] = choice(table, key, allowed, location)
    for key in WITH_IDS:
        if key in table and settings["part"] != "ids":
            raise CardError(f"{location}.{key} is allowed for part = 'ids' only")
    if settings["part"] == "ids":
        settings["tokenizer"] = file = get(table, "tokenizer", str, location)
        if not _IN_NAMES.issuperset(file) or not file.endswith(".json") or file.startswith("."):
            raise CardError(
                f"{location}.tokenizer is {file!r}; it must be a .json file in the card's folder, named with "
                "letters, digits, '.', '_' and '-'"
            )
    for key, kind in (("pad_id", int), ("special_tokens", bool), ("pair", bool)):
        if key in table:
            settings[key] = get(table, key, kind, location)
    if settings.get("pad_id", 0) < PAD_FROM_TOKENIZER:
        raise CardError(
            f"{location}.pad_id is {settings['pad_id']}; it must be from 0, or -1 for the tokenizer's own"
        )
    shape = list(settings["shape"])
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1) or shape[-1] > TOKENS_LIMIT:
        raise CardError(
            f"{location}.shape is {shape}; it must be [1, tokens] or [tokens], at most {TOKENS_LIMIT}"
        )
    return TextInput(name, **settings)


def check_parts(entries: Mapping[str, TextInput], location: str) -> None:
    """Hold the parts of a text to each other.

    Raises:
        CardError: there are no ids, a part twice, or parts of different lengths.
    """
    parts = [entry.part for entry in entries.values()]
    if parts.count("ids") != 1 or len(set(parts)) != len(parts):
        raise CardError(
            f"{location}: the parts of a text are {', '.join(parts)}; exactly one ids is needed, and at most "
            "one mask and one types"
        )
    lengths = {name: entry.tokens for name, entry in entries.items()}
    if len(set(lengths.values())) > 1:
        lengths_text = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise CardError(f"{location}: the parts of a text have different lengths: {lengths_text}")
