"""The card: how a photograph becomes a model's inputs, and its outputs become an answer. Data, no code.

A card is written as TOML (docs/cards.md), travels as JSON in the bundle, and is read strictly: what it does
not know it refuses, because a misspelt key would change answers in silence.

    title = "YOLOX-nano"
    [inputs.images]
    kind = "image"
    shape = [1, 3, 416, 416]
    layout = "NCHW"
    colour = "BGR"
    resize = "letterbox"
    pad = 114
    [task]
    kind = "detect"
    decode = "yolox"
    labels = "coco80.txt"
    outputs = { predictions = "output" }
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgekit.cards.decoders import DECODERS
from edgekit.cards.latency_contract import Latency, read_latency
from edgekit.cards.resize import Interpolation
from edgekit.errors import CardError
from edgekit.formats.strict_tables import choice, get, kind_of, numbers, only, texts, whole_numbers
from edgekit.formats.toml_files import load_toml
from edgekit.system.regular_file import read_plain
from edgekit.tensors import Json, TensorSpec

Layout = Literal["NCHW", "NHWC"]
Colour = Literal["RGB", "BGR", "GREY"]
Resize = Literal["stretch", "letterbox", "center-crop"]
Place = Literal["top-left", "center"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "layout": ("NCHW", "NHWC"),
    "colour": ("RGB", "BGR", "GREY"),
    "resize": ("stretch", "letterbox", "center-crop"),
    "place": ("top-left", "center"),
    "interpolation": ("linear", "cubic"),
    "dtype": ("float32", "float16", "uint8", "int8"),
}
ABOUT = ("author", "license", "version", "description")
REQUIRED = ("layout", "colour", "resize")
"""What a card has to say: a wrong guess would cost accuracy in silence."""
CARD_LIMIT_BYTES, LABELS_LIMIT_BYTES = 1 << 20, 4 << 20
ONLY_WITH: Mapping[str, str] = {"place": "letterbox", "pad": "letterbox", "crop": "center-crop"}
"""A key that means something with one resize mode only, and is refused with the others."""


@dataclass(frozen=True)
class ImageInput:
    """An input that is one picture.

    Attributes:
        name: The input's name in the model.
        shape: Static, with a batch of 1; it freezes what the model leaves open.
        layout: What the four dimensions are.
        colour: What the model was trained on.
        resize: ``stretch`` to the input's size; ``letterbox``: at its proportions, the rest is ``pad``;
            ``center-crop``: the middle, of the input's proportions.
        place: Letterbox: where the picture goes.
        pad: Letterbox: value of the rest, 0 to 255, before ``mean`` and ``std``.
        crop: Center-crop: how much of the largest possible part is used, e.g. 0.875.
        interpolation: Between pixels; the tests hold it to OpenCV's, or with ``antialias`` to Pillow's.
        antialias: Whether the filter widens when the picture shrinks.
        mean: By channel, in the model's colour order; input = (pixel - mean) / std, pixels 0 to 255.
        std: By channel.
        dtype: Of the input; integers are rounded and clipped.
    """

    name: str
    shape: tuple[int, ...]
    layout: Layout
    colour: Colour
    resize: Resize
    place: Place = "top-left"
    pad: int = 0
    crop: float = 1.0
    interpolation: Interpolation = "linear"
    antialias: bool = False
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    dtype: str = "float32"

    @property
    def channels(self) -> int:
        return self.shape[1 if self.layout == "NCHW" else 3]

    @property
    def height(self) -> int:
        return self.shape[2 if self.layout == "NCHW" else 1]

    @property
    def width(self) -> int:
        return self.shape[3 if self.layout == "NCHW" else 2]

    @property
    def plain(self) -> bool:
        """Whether pixels go in as they are."""
        return not any(self.mean) and all(std == 1 for std in self.std) and self.dtype != "int8"

    @property
    def range(self) -> tuple[float, float]:
        """Least and greatest value that a picture can give."""
        ends = [(x - mean) / std for mean, std in zip(self.mean, self.std, strict=True) for x in (0, 255)]
        low, high = min(ends), max(ends)
        if np.dtype(self.dtype).kind in "iu":
            info = np.iinfo(self.dtype)
            low, high = max(round(low), info.min), min(round(high), info.max)
        return float(low), float(high)

    def as_json(self) -> dict[str, Json]:
        skipped = {key for key, mode in ONLY_WITH.items() if mode != self.resize} | {"name"}
        table = {key: value for key, value in asdict(self).items() if key not in skipped}
        return {"kind": "image", **_lists(table)}


@dataclass(frozen=True)
class TensorInput:
    """An input that is an array, given as it is.

    Attributes:
        name: The input's name in the model.
        shape: Static; it freezes what the model leaves open.
        range: Least and greatest value that it takes, for random samples; None where the card does not say.
    """

    name: str
    shape: tuple[int, ...]
    range: tuple[float, float] | None = None

    def as_json(self) -> dict[str, Json]:
        table: dict[str, Json] = {"kind": "tensor", "shape": list(self.shape)}
        return table if self.range is None else {**table, "range": list(self.range)}


@dataclass(frozen=True)
class Task:
    """What the outputs mean.

    Attributes:
        kind: ``classify`` or ``detect``.
        decode: The form of the outputs, a name in ``edgekit.cards.decoders.DECODERS``.
        outputs: What an output is to the decoder -> its name in the model.
        labels: Name by class number; "" where a number is unused.
        options: The decoder's own, e.g. its score threshold.
    """

    kind: str
    decode: str
    outputs: Mapping[str, str]
    labels: tuple[str, ...]
    options: Any

    def as_json(self) -> dict[str, Json]:
        table = {"kind": self.kind, "decode": self.decode, "outputs": dict(self.outputs)}
        return {**table, "labels": list(self.labels), **_lists(asdict(self.options))}


@dataclass(frozen=True)
class Card:
    """How a model's inputs are made, its outputs read, and what an answer may take.

    ``about``: who made it (ABOUT). ``states``: an input -> the output that it is at the next call.
    """

    title: str
    inputs: Mapping[str, ImageInput | TensorInput] = field(default_factory=dict)
    task: Task | None = None
    latency: Latency | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Static shape by input name."""
        return {name: entry.shape for name, entry in self.inputs.items()}

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Least and greatest value by input name, for those the card says it of."""
        return {name: entry.range for name, entry in self.inputs.items() if entry.range is not None}

    def image_input(self) -> ImageInput:
        """The one image that goes in.

        Raises:
            CardError: the inputs are not one image.
        """
        entries = list(self.inputs.values())
        if len(entries) == 1 and isinstance(entries[0], ImageInput):
            return entries[0]
        kinds = ", ".join(f"{e.name} ({e.as_json()['kind']})" for e in entries)
        raise CardError(f"{self.title}: a frame needs a card with one input, an image; this one has {kinds}")

    def as_json(self) -> dict[str, Json]:
        """The card as ``parse_card`` takes it."""
        table: dict[str, Json] = {"title": self.title}
        table["inputs"] = {name: entry.as_json() for name, entry in self.inputs.items()}
        if self.task is not None:
            table["task"] = self.task.as_json()
        if self.latency is not None:
            table["latency"] = self.latency.as_json()
        more = {"about": dict(self.about), "states": dict(self.states)}
        return {**table, **{key: value for key, value in more.items() if value}}

    def check(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Hold the card to a model's signature.

        Raises:
            CardError: an input or output does not exist, or its shape or dtype is another.
        """
        specs = {spec.name: spec for spec in inputs}
        for name, entry in self.inputs.items():
            if name not in specs:
                raise CardError(f"{self.title}: the model has no input {name}; it has {', '.join(specs)}")
            spec = specs[name]
            if entry.shape != spec.shape:
                raise CardError(
                    f"{self.title}: input {name} is {_by(entry.shape)} in the card "
                    f"and {_by(spec.shape)} in the model"
                )
            if isinstance(entry, ImageInput) and entry.dtype != spec.dtype:
                raise CardError(
                    f"{self.title}: input {name} is {entry.dtype} in the card and {spec.dtype} in the model"
                )
        given = {spec.name: (spec.shape, spec.dtype) for spec in outputs}
        for name, output in self.states.items():
            if name not in self.inputs or given.get(output) != (specs[name].shape, specs[name].dtype):
                raise CardError(
                    f"{self.title}: states.{name} is {output!r}, and that is no output like {name}"
                )
        for role, name in self.task.outputs.items() if self.task else ():
            if name not in given:
                raise CardError(
                    f"{self.title}: task.outputs.{role} is {name!r}, "
                    f"and the model's outputs are {', '.join(given)}"
                )


def load_card(path: str | os.PathLike[str]) -> Card:
    """Read a card from a TOML file. ``labels`` may name a text file in its folder, one label a line: a
    regular one and no link, since a card from elsewhere must not carry off another file of the machine.

    Raises:
        CardError: it can't be read, is not TOML, or is no card.
    """
    path = Path(path)
    table = load_toml(_text(path, "a card", CARD_LIMIT_BYTES), str(path), CardError)
    task = table.get("task")
    if isinstance(task, dict) and isinstance(name := task.get("labels"), str):
        if Path(name).name != name:  # a card from elsewhere reads no other files
            raise CardError(f"{path}: task.labels is {name!r}; it must be a list or a file in its folder")
        lines = _text(path.parent / name, "labels", LABELS_LIMIT_BYTES, follow=False)
        task["labels"] = [line.strip() for line in lines.splitlines()]
    return parse_card(table, where=str(path))


def _text(path: Path, what: str, limit_bytes: int, *, follow: bool = True) -> str:
    try:
        return read_plain(path, limit_bytes, follow=follow).decode("utf-8")
    except FileNotFoundError:
        raise CardError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise CardError(f"{path} can't be read as {what}: {why}") from None


def parse_card(
    table: Mapping[str, Json],
    inputs: Sequence[TensorSpec] | None = None,
    outputs: Sequence[TensorSpec] | None = None,
    *,
    where: str = "card",
) -> Card:
    """Read a card from what TOML or JSON gives.

    Args:
        table: The card.
        inputs, outputs: The model's, to hold the card to; None where there is no model.
        where: Begins every error's text.

    Raises:
        CardError: it is malformed, or does not describe the model.
    """
    only(table, ("title", "inputs", "task", "latency", "about", "states"), where)
    title = get(table, "title", str, where)
    entries = get(table, "inputs", dict, where)
    if not entries:
        raise CardError(f"{where}: inputs is empty; a card describes at least one input")
    parsed = {name: _input(name, entry, f"{where}: inputs.{name}") for name, entry in entries.items()}
    task = _task(get(table, "task", dict, where), f"{where}: task") if "task" in table else None
    latency = read_latency(table["latency"], f"{where}: latency") if "latency" in table else None
    about, states = texts(table, "about", ABOUT, where), texts(table, "states", tuple(parsed), where)
    card = Card(title, parsed, task, latency, about, states)
    if task is not None:
        card.image_input()  # a task answers about a frame
    if inputs is not None or outputs is not None:
        card.check(inputs or (), outputs or ())
    return card


def _input(name: str, table: Json, where: str) -> ImageInput | TensorInput:
    if not isinstance(table, dict):
        raise CardError(f"{where} must be a table, not {kind_of(table)}")
    return INPUTS[choice(table, "kind", tuple(INPUTS), where)](name, table, where)


def _tensor(name: str, table: dict[str, Json], where: str) -> TensorInput:
    only(table, ("kind", "shape", "range"), where)
    shape = whole_numbers(table, "shape", where, least=1)
    if "range" not in table:
        return TensorInput(name, shape)
    limits = numbers(table, "range", where)
    if len(limits) != 2 or limits[0] > limits[1]:
        raise CardError(f"{where}.range is {list(limits)}; it must be [least, greatest]")
    return TensorInput(name, shape, (limits[0], limits[1]))


def _image(name: str, table: dict[str, Json], where: str) -> ImageInput:
    only(table, ("kind", *(f.name for f in fields(ImageInput) if f.name != "name")), where)
    found: dict[str, Any] = {"shape": whole_numbers(table, "shape", where, least=1)}
    for key, allowed in CHOICES.items():
        if key in table or key in REQUIRED:
            found[key] = choice(table, key, allowed, where)
    for key, kind in (("pad", int), ("crop", float), ("antialias", bool)):
        if key in table:
            found[key] = get(table, key, kind, where)
    for key, mode in ONLY_WITH.items():
        if key in table and found["resize"] != mode:
            raise CardError(f"{where}.{key} goes with resize = {mode!r}, and resize is {found['resize']!r}")
    if not 0 <= found.get("pad", 0) <= 255:
        raise CardError(f"{where}.pad is {found['pad']}; it must be from 0 to 255")
    if not 0 < found.get("crop", 1.0) <= 1:
        raise CardError(f"{where}.crop is {found['crop']:g}; it must be above 0 and at most 1")
    shape, colour, layout = list(found["shape"]), found["colour"], found["layout"]
    if len(shape) != 4 or shape[0] != 1:
        raise CardError(f"{where}.shape is {shape}; an image is one picture: 4 dimensions, the first is 1")
    channels, at = 1 if colour == "GREY" else 3, layout.index("C")
    if shape[at] != channels:
        raise CardError(f"{where}.shape is {shape}; {colour} in {layout} has {channels} at dimension {at}")
    for key, default in (("mean", 0.0), ("std", 1.0)):
        found[key] = numbers(table, key, where) if key in table else (default,) * channels
        if len(found[key]) != channels:
            raise CardError(f"{where}.{key} has {len(found[key])} numbers; {colour} has {channels} channels")
    if min(found["std"]) <= 0:
        raise CardError(f"{where}.std is {list(found['std'])}; pixels are divided by it: it must be above 0")
    if (255 + max(map(abs, found["mean"]))) / min(found["std"]) > float(np.finfo(np.float32).max):
        raise CardError(f"{where}: (pixel - mean) / std is beyond float32; correct mean or std")
    return ImageInput(name, **found)


Reader = Callable[[str, dict[str, Json], str], ImageInput | TensorInput]
INPUTS: Mapping[str, Reader] = {"image": _image, "tensor": _tensor}
"""Kind of input -> how its table is read. Other kinds (text, audio) get their line here."""


def _task(table: dict[str, Json], where: str) -> Task:
    kind = choice(table, "kind", tuple(DECODERS), where)
    decode = choice(table, "decode", tuple(DECODERS[kind]), where)
    decoder = DECODERS[kind][decode]
    options = {f.name: f.default for f in fields(decoder.options)}
    only(table, ("kind", "decode", "outputs", "labels", *options), where)
    outputs = get(table, "outputs", dict, where)
    only(outputs, decoder.roles, f"{where}.outputs")
    names = {role: get(outputs, role, str, f"{where}.outputs") for role in decoder.roles}
    labels = get(table, "labels", list, where) if "labels" in table else []
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise CardError(f"{where}.labels[{index}] must be a text, not {kind_of(label)}")
    given = {key: _option(table, key, options[key], where) for key in options if key in table}
    try:
        return Task(kind, decode, names, tuple(labels), decoder.options(**given))
    except ValueError as problem:
        raise CardError(f"{where}.{problem}") from None


def _option(table: dict[str, Json], key: str, default: Any, where: str) -> Any:
    """An option has the type of its default; a tuple is one of whole numbers."""
    if isinstance(default, tuple):
        return whole_numbers(table, key, where)
    return get(table, key, type(default), where)


def _lists(table: Mapping[str, Any]) -> dict[str, Json]:
    """Tuples as JSON knows them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in table.items()}


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
