"""The card: how the world becomes a model's inputs, and its outputs an answer. Data, not code.

One card serves calibration, verification and the device, so that all three see the same pixels. It is written
as TOML beside the model and travels as JSON in the bundle. ``docs/cards.md`` explains every key.

    title = "CenterFace"
    [inputs."input.1"]
    shape = [1, 3, 480, 640]
    resize = "letterbox"
    [task]
    kind = "detect"
    decoder = "centerface"
    labels = ["face"]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from edgekit.errors import CardError
from edgekit.profile import load_toml
from edgekit.target import TensorSpec

T = TypeVar("T")


@dataclass(frozen=True)
class ImageInput:
    """How a photograph becomes one input: resized, coloured, then ``(x - mean) / std`` per channel.

    Attributes:
        shape: The input's static shape; also freezes dynamic or stale dimensions.
        layout: ``NCHW`` or ``NHWC``.
        colour: Channel order the model wants, ``RGB``, ``BGR`` or ``GRAY``.
        resize: ``stretch`` to the size; ``letterbox`` keeps the aspect and fills the rest with ``pad_value``;
            ``crop`` takes the centre square of ``crop_fraction`` of the short side.
        anchor: Where a letterboxed picture lies, ``top-left`` or ``centre``.
        pad_value: 0 to 255, of a letterbox's border.
        crop_fraction: Side of the crop, as a part of the picture's short side.
        interpolation: ``linear`` or ``cubic``, between pixels of 8 bits.
        antialias: Whether the filter widens when a picture shrinks, as Pillow's does and OpenCV's does not.
        mean: Per channel, in units of 0 to 255; one value is for all.
        std: Per channel, in units of 0 to 255.
    """

    shape: tuple[int, ...]
    layout: str = "NCHW"
    colour: str = "RGB"
    resize: str = "stretch"
    anchor: str = "top-left"
    pad_value: int = 0
    crop_fraction: float = 1.0
    interpolation: str = "linear"
    antialias: bool = False
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return (self.shape[2], self.shape[3]) if self.layout == "NCHW" else (self.shape[1], self.shape[2])

    @property
    def channels(self) -> int:
        return self.shape[1] if self.layout == "NCHW" else self.shape[3]

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value that a photograph can give."""
        ends = [(v - m) / s for m, s in zip(self.mean, self.std, strict=True) for v in (0.0, 255.0)]
        return min(ends), max(ends)


@dataclass(frozen=True)
class ArrayInput:
    """An input that is no photograph (a state, a sampling rate): given as an array.

    Attributes:
        shape: The input's static shape; None leaves it to the model.
        range: Smallest and largest value of random samples.
        value: Where set, ``predict`` feeds this value everywhere.
    """

    shape: tuple[int, ...] | None = None
    range: tuple[float, float] | None = None
    value: float | None = None


@dataclass(frozen=True)
class ClassifyTask:
    """Outputs become labels with scores.

    Attributes:
        output: Name of the output [1, N]; None where the model has one.
        activation: ``softmax`` or ``sigmoid`` where the output is logits, ``none`` where it is scores.
        top: How many answers.
        labels: Name of each class; empty: its number.
    """

    output: str | None = None
    activation: str = "none"
    top: int = 5
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class DetectTask:
    """Outputs become boxes with scores and classes.

    Attributes:
        decoder: How: one of ``edgekit.runtime.detect.DECODERS``.
        outputs: What the decoder calls an output -> its name in the model.
        score: Smallest score of an answer.
        iou: Boxes of one class that overlap more than this are one; the better score stays.
        most: Largest number of answers.
        strides: Of a grid decoder, in pixels.
        first_class: Number of the first label; COCO's older tables start at 1.
        labels: Name of each class; empty: its number.
    """

    decoder: str
    outputs: Mapping[str, str]
    score: float = 0.3
    iou: float = 0.5
    most: int = 300
    strides: tuple[int, ...] = (8, 16, 32)
    first_class: int = 0
    labels: tuple[str, ...] = ()


INPUT_KINDS = {"image": ImageInput, "array": ArrayInput}
TASK_KINDS = {"classify": ClassifyTask, "detect": DetectTask}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "layout": ("NCHW", "NHWC"),
    "colour": ("RGB", "BGR", "GRAY"),
    "resize": ("stretch", "letterbox", "crop"),
    "anchor": ("top-left", "centre"),
    "interpolation": ("linear", "cubic"),
    "activation": ("none", "softmax", "sigmoid"),
    "decoder": ("centerface", "ssd", "yolox"),
}
DECODER_OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "centerface": ("heatmap", "scale", "offset", "landmarks"),
    "ssd": ("boxes", "scores"),
    "yolox": ("raw",),
}
"""What each decoder calls the outputs it reads."""


@dataclass(frozen=True)
class Card:
    """A parsed card.

    Attributes:
        title: For people.
        inputs: By the model's input name. Inputs that are not named here are given as arrays.
        task: What the outputs become, or None: then ``predict`` gives the arrays.
    """

    title: str
    inputs: Mapping[str, ImageInput | ArrayInput]
    task: ClassifyTask | DetectTask | None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Static shapes by input name."""
        return {name: given.shape for name, given in self.inputs.items() if given.shape is not None}

    def ranges(self) -> dict[str, tuple[float, float]]:
        """The range of random samples by input name."""
        return {name: given.range for name, given in self.inputs.items() if given.range is not None}

    @property
    def picture_input(self) -> tuple[str, ImageInput] | None:
        """The input that a photograph goes into."""
        return next(((n, i) for n, i in self.inputs.items() if isinstance(i, ImageInput)), None)

    def check(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        """Refuse a card that is of another model.

        Raises:
            CardError: it names an input or output the model has not, or a picture does not fit the input.
        """
        specs = {spec.name: spec for spec in inputs}
        for name, given in self.inputs.items():
            if name not in specs:
                raise CardError(f"card: inputs.{name} is no input of the model; it has {', '.join(specs)}")
            kind = specs[name].dtype
            if isinstance(given, ImageInput) and kind not in ("float32", "float16", "uint8", "int8"):
                raise CardError(f"card: inputs.{name} is an image, and the model wants {kind}")
        names = [spec.name for spec in outputs]
        for key, name in self._named_outputs():
            if name not in names:
                raise CardError(
                    f"card: task.{key} is {name!r}, no output of the model; it has {', '.join(names)}"
                )
        if isinstance(self.task, ClassifyTask) and self.task.output is None and len(names) > 1:
            raise CardError(f"card: task.output must say which of {', '.join(names)} has the scores")

    def as_json(self) -> dict[str, Any]:
        """What ``parse_card`` reads back to an equal card."""
        inputs = {
            name: {"kind": _kind(given, INPUT_KINDS), **_plain(given)} for name, given in self.inputs.items()
        }
        task = None if self.task is None else {"kind": _kind(self.task, TASK_KINDS), **_plain(self.task)}
        return {"title": self.title, "inputs": inputs} | ({} if task is None else {"task": task})

    def _named_outputs(self) -> list[tuple[str, str]]:
        if isinstance(self.task, DetectTask):
            return [(f"outputs.{role}", name) for role, name in self.task.outputs.items()]
        if isinstance(self.task, ClassifyTask) and self.task.output is not None:
            return [("output", self.task.output)]
        return []


def load_card(path: str | Path) -> Card:
    """Read ``card.toml``.

    Raises:
        CardError: there is no such file, it is not TOML, or not a card.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise CardError(f"card {path} can't be read: {problem}") from None
    return parse_card(load_toml(text, f"card {path}", CardError))


def parse_card(table: Mapping[str, Any]) -> Card:
    """Read a card from what TOML or JSON gives.

    Raises:
        CardError: a key is unknown, missing or of a wrong type or value; the text names it.
    """
    _known_keys(table, ("title", "inputs", "task"), "card")
    title = table.get("title", "")
    inputs = table.get("inputs", {})
    if not isinstance(title, str) or not isinstance(inputs, Mapping):
        raise CardError("card: title must be text, and inputs a table")
    parsed: dict[str, ImageInput | ArrayInput] = {}
    for name, given in inputs.items():
        where = f"inputs.{name}"
        kind = _chosen(given, where, INPUT_KINDS, "image")
        parsed[name] = (
            _image(_read(ImageInput, given, where), where) if kind is ImageInput else _array(given, where)
        )
    if sum(isinstance(given, ImageInput) for given in parsed.values()) > 1:
        raise CardError("card: more than one input is an image; predict() takes one frame")
    task = None
    if table.get("task") is not None:
        kind = _chosen(table["task"], "task", TASK_KINDS, None)
        task = _task(_read(kind, table["task"], "task"))
    return Card(title, parsed, task)


def _image(given: ImageInput, where: str) -> ImageInput:
    """Check an image input, and repeat a single mean or std for every channel."""
    if len(given.shape) != 4 or given.channels not in (1, 3) or given.shape[0] != 1:
        raise CardError(
            f"card: {where}.shape must be 1 picture of 1 or 3 channels in {given.layout}, not {given.shape}"
        )
    if (given.channels == 1) != (given.colour == "GRAY"):
        raise CardError(f"card: {where}.colour {given.colour} does not go with {given.channels} channels")
    if not 0 <= given.pad_value <= 255:
        raise CardError(f"card: {where}.pad_value must be 0 to 255, not {given.pad_value}")
    if not 0 < given.crop_fraction <= 1:
        raise CardError(
            f"card: {where}.crop_fraction must be above 0 and at most 1, not {given.crop_fraction}"
        )
    if 0.0 in given.std:
        raise CardError(f"card: {where}.std must not be 0")
    per_channel = {}
    for key in ("mean", "std"):
        values = getattr(given, key)
        if len(values) not in (1, given.channels):
            raise CardError(f"card: {where}.{key} needs 1 or {given.channels} numbers, not {len(values)}")
        per_channel[key] = values * given.channels if len(values) == 1 else values
    return replace(given, **per_channel)


def _array(given: Mapping[str, Any], where: str) -> ArrayInput:
    read = _read(ArrayInput, given, where)
    if read.range is not None and (len(read.range) != 2 or read.range[0] > read.range[1]):
        raise CardError(f"card: {where}.range must be [smallest, largest], not {list(read.range)}")
    return read


def _task(task: ClassifyTask | DetectTask) -> ClassifyTask | DetectTask:
    if isinstance(task, ClassifyTask):
        if task.top < 1:
            raise CardError(f"card: task.top must be 1 or more, not {task.top}")
        return task
    roles = DECODER_OUTPUTS[task.decoder]
    if set(task.outputs) != set(roles):
        raise CardError(
            f"card: task.outputs of {task.decoder} are {', '.join(roles)}; given {', '.join(task.outputs)}"
        )
    for key in ("score", "iou"):
        if not 0 <= getattr(task, key) <= 1:
            raise CardError(f"card: task.{key} must be 0 to 1, not {getattr(task, key)}")
    if task.most < 1 or not task.strides or min(task.strides) < 1:
        raise CardError("card: task.most and task.strides must be 1 or more")
    return task


def _chosen(given: Any, where: str, kinds: Mapping[str, type], default: str | None) -> type:
    if not isinstance(given, Mapping):
        raise CardError(f"card: {where} must be a table")
    kind = given.get("kind", default)
    if kind not in kinds:
        raise CardError(f"card: {where}.kind must be one of {', '.join(kinds)}, not {kind!r}")
    return kinds[kind]


def _read(kind: type[T], given: Mapping[str, Any], where: str) -> T:
    """A dataclass from a table; the types of its fields are the types that the keys must have."""
    known = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    _known_keys(given, ("kind", *known), where)
    values = {}
    for key, value in given.items():
        if key == "kind":
            continue
        if key in CHOICES and value not in CHOICES[key]:
            raise CardError(f"card: {where}.{key} must be one of {', '.join(CHOICES[key])}, not {value!r}")
        values[key] = _converted(value, known[key], f"{where}.{key}")
    missing = [f.name for f in fields(kind) if f.name not in values and f.default is MISSING]  # type: ignore[arg-type]
    if missing:
        raise CardError(f"card: {where} needs {', '.join(missing)}")
    return kind(**values)


def _converted(value: Any, wanted: str, where: str) -> Any:
    """Check a value against the text of a field's type, and make tuples of lists."""
    if value is None and wanted.endswith("| None"):
        return None
    wanted = wanted.removesuffix(" | None")
    element = {"tuple[int, ...]": int, "tuple[float, ...]": float, "tuple[float, float]": float}.get(wanted)
    if element is not None and isinstance(value, list | tuple) and all(_is(v, element) for v in value):
        return tuple(element(v) for v in value)
    if (
        wanted == "tuple[str, ...]"
        and isinstance(value, list | tuple)
        and all(isinstance(v, str) for v in value)
    ):
        return tuple(value)
    if wanted == "Mapping[str, str]" and isinstance(value, Mapping):
        if all(isinstance(v, str) for v in value.values()):
            return dict(value)
    elif wanted in ("int", "float") and _is(value, {"int": int, "float": float}[wanted]):
        return float(value) if wanted == "float" else value
    elif (wanted == "str" and isinstance(value, str)) or (wanted == "bool" and isinstance(value, bool)):
        return value
    raise CardError(f"card: {where} must be {wanted}, not {value!r}")


def _is(value: Any, kind: type) -> bool:
    """Whether a number is of a kind: TOML's 1 is a good float, its true is no number, its nan no mean."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (kind is float and isinstance(value, float) and math.isfinite(value))


def _known_keys(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise CardError(
            f"card: {where} has {', '.join(unknown)}, which it does not know; there are {', '.join(known)}"
        )


def _kind(thing: object, kinds: Mapping[str, type]) -> str:
    return next(name for name, kind in kinds.items() if isinstance(thing, kind))


def _plain(thing: Any) -> dict[str, Any]:
    found = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(thing).items()}
    return {key: value for key, value in found.items() if value is not None}
