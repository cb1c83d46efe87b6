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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import CardError, UsageError
from edgekit.processing.inputs.image import ImageInput, read_image
from edgekit.processing.inputs.tensor import TensorInput, read_tensor
from edgekit.processing.latency_contract import Latency, read_latency
from edgekit.processing.task import Task, read_task
from edgekit.system.formats.strict_tables import choice, get, kind_of, load_toml, only, texts
from edgekit.system.regular_file import followed, read_plain
from edgekit.tensor_spec import Array, Json, TensorSpec

if TYPE_CHECKING:
    from typing import TypeAlias

    from edgekit.processing.inputs.audio import AudioInput
    from edgekit.processing.inputs.text import TextInput
    from edgekit.processing.schedule import Schedule

    Input: TypeAlias = ImageInput | TensorInput | AudioInput | TextInput

ABOUT = ("author", "license", "version", "description")
CARD_LIMIT_BYTES, LABELS_LIMIT_BYTES = 1 << 20, 4 << 20


@dataclass(frozen=True)
class Card:
    """Model card: preprocessing of the inputs, decoding of the outputs, and latency limits.

    ``about``: authorship (keys: ABOUT). ``states``: input -> the output that is fed to it at the next call.
    ``files``: contents of the files that the card names, e.g. a tokenizer. They are stored next to the card.
    """

    title: str
    inputs: Mapping[str, Input] = field(default_factory=dict)
    task: Task | None = None
    latency: Latency | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    schedule: Schedule | None = None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the static shape of each input, by name."""
        return {name: entry.shape for name, entry in self.inputs.items()}

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Return the minimum and maximum value of each input that has a range in the card, by name."""
        return {name: entry.range for name, entry in self.inputs.items() if entry.range is not None}

    def image_input(self) -> ImageInput:
        """Return the only image input. The other inputs are constants.

        Raises:
            CardError: the inputs are not one image.
        """
        entries = self.fed_inputs()
        if len(entries) == 1 and isinstance(entries[0], ImageInput):
            return entries[0]
        raise CardError(
            f"{self.title}: a frame needs a card with a single image input; this one has {_kinds(entries)}"
        )

    def sources(self) -> Sequence[Input]:
        """Return the inputs that are computed from the caller's data: one image, one recording, or the parts
        of one text.

        Raises:
            CardError: the inputs are something else.
        """
        entries = self.fed_inputs()
        kinds = {entry.kind for entry in entries}
        if (len(entries) == 1 and kinds <= {"image", "audio"}) or kinds == {"text"}:
            return entries
        raise CardError(
            f"{self.title}: a prediction needs one image, one sound or one text, in addition to constants "
            f"and states; this card has {_kinds(entries)}"
        )

    def fed_inputs(self) -> list[Input]:
        """Return the inputs that are neither a constant nor a state."""
        entries = (entry for name, entry in self.inputs.items() if name not in self.states)
        return [e for e in entries if not (isinstance(e, TensorInput) and e.value is not None)]

    @property
    def carries(self) -> bool:
        """Return whether a run depends on the previous one, through states or audio context."""
        return bool(self.states) or any(getattr(entry, "context", 0) for entry in self.inputs.values())

    def check_steps(self) -> None:
        """Refuse to prepare, run and decode apart if one run leaves something to the next.

        Raises:
            UsageError: it does.
        """
        if self.carries:
            raise UsageError(
                f"{self.title} keeps states between runs, so its steps cannot run separately: use predict() "
                "or listen(), or run() with your own states"
            )

    def constants(self) -> dict[str, Array]:
        """Return the inputs that are the same for every frame, by name. For a state, the value is its initial
        one."""
        constant = (e for e in self.inputs.values() if isinstance(e, TensorInput) and e.value is not None)
        return {entry.name: entry.constant() for entry in constant}

    def initial_states(self, inputs: Sequence[TensorSpec]) -> dict[str, Array]:
        """Return the states before the first call, by name: zeros, or the card's value."""
        zeros = {spec.name: spec.zeros() for spec in inputs if spec.name in self.states}
        return {**zeros, **{name: value for name, value in self.constants().items() if name in zeros}}

    def as_json(self) -> dict[str, Json]:
        """Return the card in the form that ``parse_card`` reads."""
        table: dict[str, Json] = {"title": self.title}
        table["inputs"] = {name: entry.as_json() for name, entry in self.inputs.items()}
        if self.task is not None:
            table["task"] = self.task.as_json()
        if self.latency is not None:
            table["latency"] = self.latency.as_json()
        if self.schedule is not None:
            table["schedule"] = self.schedule.as_json()
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
                raise CardError(
                    f"{self.title}: the model has no input {name}; its inputs are {', '.join(specs)}"
                )
            spec = specs[name]
            if entry.shape != spec.shape:
                raise CardError(
                    f"{self.title}: input {name} is {_shape_text(entry.shape)} in the card "
                    f"but {_shape_text(spec.shape)} in the model"
                )
            typed = not isinstance(entry, TensorInput) or entry.value is not None
            if typed and entry.dtype != spec.dtype:
                raise CardError(
                    f"{self.title}: input {name} is {entry.dtype} in the card but {spec.dtype} in the model"
                )
        signature = {spec.name: (spec.shape, spec.dtype) for spec in outputs}
        for name, output in self.states.items():
            if name not in self.inputs or signature.get(output) != (specs[name].shape, specs[name].dtype):
                raise CardError(
                    f"{self.title}: states.{name} is {output!r}, which is not an output with the "
                    f"shape and dtype of {name}"
                )
        for role, name in self.task.outputs.items() if self.task else ():
            if name not in signature:
                raise CardError(
                    f"{self.title}: task.outputs.{role} is {name!r}, but the model's outputs are "
                    f"{', '.join(signature)}"
                )


def load_card(path: str | os.PathLike[str]) -> Card:
    """Read a card from a TOML file. ``labels`` may name a text file in its folder, one label a line, and
    ``tokenizer`` a .json file: regular ones, and no links but those of a Hugging Face cache, since a card
    from elsewhere must not carry off another file of the machine.

    Raises:
        CardError: it cannot be read, is not TOML, or is not a card.
    """
    path = Path(path)
    table = load_toml(_text(path, "a card", CARD_LIMIT_BYTES), str(path), CardError)
    task = table.get("task")
    if isinstance(task, dict) and isinstance(name := task.get("labels"), str):
        if Path(name).name != name:  # a card from elsewhere reads no other files
            raise CardError(f"{path}: task.labels is {name!r}; it must be a list or a file in its folder")
        lines = _text(path.parent / name, "labels", LABELS_LIMIT_BYTES, follow_links=False)
        task["labels"] = [line.strip() for line in lines.splitlines()]
    return parse_card(table, location=str(path), files=lambda file: _tokenizer(path.parent / file))


def _tokenizer(path: Path) -> bytes:
    from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES

    return _content(path, "a tokenizer", TOKENIZER_LIMIT_BYTES, follow_links=False)


def _text(path: Path, description: str, limit_bytes: int, *, follow_links: bool = True) -> str:
    try:
        return _content(path, description, limit_bytes, follow_links=follow_links).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise CardError(f"{path} can't be read as {description}: {problem}") from None


def _content(path: Path, description: str, limit_bytes: int, *, follow_links: bool) -> bytes:
    try:
        file = path if follow_links else followed(path)
        return read_plain(file, limit_bytes, follow_links=follow_links)
    except FileNotFoundError:
        raise CardError(f"{path}: file not found") from None
    except OSError as problem:
        raise CardError(f"{path} can't be read as {description}: {problem.strerror or problem}") from None


def parse_card(
    table: Mapping[str, Json],
    inputs: Sequence[TensorSpec] | None = None,
    outputs: Sequence[TensorSpec] | None = None,
    *,
    location: str = "card",
    files: Callable[[str], bytes] | None = None,
) -> Card:
    """Read a card from what TOML or JSON gives.

    Args:
        inputs, outputs: Inputs and outputs of the model, to check against; None without a model.
        files: Reads a file that the card names, by name. None means that a text can't be prepared.

    Raises:
        CardError: it is malformed, or does not describe the model.
    """
    only(table, ("title", "inputs", "task", "latency", "schedule", "about", "states"), location)
    title = get(table, "title", str, location)
    entries = get(table, "inputs", dict, location)
    if not entries:
        raise CardError(f"{location}: inputs is empty; a card must describe at least one input")
    parsed = {name: _input(name, entry, f"{location}: inputs.{name}") for name, entry in entries.items()}
    task = read_task(get(table, "task", dict, location), f"{location}: task") if "task" in table else None
    latency = read_latency(table["latency"], f"{location}: latency") if "latency" in table else None
    schedule = _schedule(table["schedule"], f"{location}: schedule") if "schedule" in table else None
    about, states = texts(table, "about", ABOUT, location), texts(table, "states", tuple(parsed), location)
    named = _check_texts(parsed, location)
    if tokenizer := getattr(task.options, "tokenizer", "") if task is not None else "":
        if Path(tokenizer).name != tokenizer:  # a card from elsewhere reads no other files
            raise CardError(f"{location}: task.tokenizer is {tokenizer!r}; it must be a file beside the card")
        named.append(tokenizer)
    contents = {name: files(name) for name in named} if files is not None else {}
    card = Card(title, parsed, task, latency, about, states, contents, schedule)
    if task is not None:
        card.sources()  # a task answers about something
    if inputs is not None or outputs is not None:
        card.check(inputs or (), outputs or ())
    return card


def _schedule(table: Json, location: str) -> Schedule:
    from edgekit.processing.schedule import read_schedule  # here: most cards have none

    return read_schedule(table, location)


def _input(name: str, table: Json, location: str) -> Input:
    if not isinstance(table, dict):
        raise CardError(f"{location} must be a table, not {kind_of(table)}")
    return READERS[choice(table, "kind", tuple(READERS), location)](name, table, location)


def _read_audio(name: str, table: dict[str, Json], location: str) -> Input:
    from edgekit.processing.inputs.audio import read_audio  # here: most cards have none

    return read_audio(name, table, location)


def _read_text(name: str, table: dict[str, Json], location: str) -> Input:
    from edgekit.processing.inputs.text import read_text

    return read_text(name, table, location)


def _check_texts(inputs: Mapping[str, Input], location: str) -> list[str]:
    """Check that the parts of a text fit each other, and return the names of the files that they use."""
    if all(entry.kind != "text" for entry in inputs.values()):
        return []
    from edgekit.processing.inputs.text import TextInput, check_parts

    parts = {name: entry for name, entry in inputs.items() if isinstance(entry, TextInput)}
    check_parts(parts, f"{location}: inputs")
    return [entry.tokenizer for entry in parts.values() if entry.tokenizer]


READERS: Mapping[str, Callable[[str, dict[str, Json], str], Input]] = {
    "image": read_image,
    "tensor": read_tensor,
    "audio": _read_audio,
    "text": _read_text,
}
"""Kind of input -> how its table is read."""


def _kinds(entries: Sequence[Input]) -> str:
    return ", ".join(f"{entry.name} ({entry.kind})" for entry in entries) or "no other input"


def _shape_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
