"""A cascade: one model finds things in a frame, others look at each of them, e.g. lines of text.

It is written as TOML (docs/cascades.md) and travels as JSON in the bundle, next to the bundles of its stages:

    [[stages]]
    name = "detect"
    bundle = "detector.edgekit"

    [[stages]]
    name = "read"
    bundle = "reader.edgekit"
    crop = "text"

The first stage sees the frame. Each other one sees the crops of what the first has found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from edgekit.errors import CardError
from edgekit.system.formats.strict_tables import as_lists, choice, get, only
from edgekit.tensor_spec import Json

CROPS = ("box", "corners", "text")
OF_BOXES = ("margin", "square")
"""Keys that mean something with crop = "box" only."""
STAGES_LIMIT = 8
NAME_LIMIT_CHARS = 40


@dataclass(frozen=True)
class CascadeStage:
    """Stage of a cascade: a model that runs on each object of the first stage.

    Attributes:
        name: Name of the stage, and of its predictions in results.
        crop: ``box``: the object's box; ``corners``: its four corners, made upright; ``text``: the same, and
            a vertical line of text is rotated to horizontal.
        margin: Box: margin added on each side, as a share of the box's longer side.
        square: Box: whether the shorter side grows to the longer one. Beyond the frame the crop is black.
        classes: Labels of the objects to process; empty for all.
        score: Minimum score of the objects to process.
        most: Maximum number of objects to process, best scores first.
        turn: Label of this stage's best class -> degrees anticlockwise by which the crop is turned for the
            stages after it, a multiple of 90, e.g. ``{"upside down" = 180}``.
        turn_score: Minimum score of that class; below it the crop is not turned.
    """

    name: str
    crop: str = "box"
    margin: float = 0.0
    square: bool = False
    classes: tuple[str, ...] = ()
    score: float = 0.0
    most: int = 32
    turn: Mapping[str, int] = field(default_factory=dict)
    turn_score: float = 0.5

    def as_json(self) -> dict[str, Json]:
        table = as_lists(asdict(self))
        return {key: value for key, value in table.items() if self.crop == "box" or key not in OF_BOXES}


def read_stages(table: Json, location: str) -> tuple[CascadeStage, ...]:
    """Read the stages after the first from parsed TOML or JSON.

    Raises:
        CardError: they are malformed.
    """
    if not isinstance(table, list) or not 1 <= len(table) < STAGES_LIMIT:
        raise CardError(f"{location} must be a list of 2 to {STAGES_LIMIT} stages, the first one included")
    stages = tuple(_stage(entry, f"{location}[{index + 1}]") for index, entry in enumerate(table))
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise CardError(f"{location}: two stages are called {name!r}")
    return stages


def stage_name(table: Mapping[str, Json], location: str) -> str:
    """Return the name of a stage: a word.

    Raises:
        CardError: it is not valid.
    """
    name = get(table, "name", str, location)
    if not (name.replace("-", "_").isidentifier() and name.isascii() and len(name) <= NAME_LIMIT_CHARS):
        raise CardError(
            f"{location}.name is {name[:60]!r}; it must be a word of letters, digits, '_' and '-', at most "
            f"{NAME_LIMIT_CHARS} characters"
        )
    return str(name)


def _stage(table: Json, location: str) -> CascadeStage:
    only(table, [f.name for f in fields(CascadeStage)], location)
    settings: dict[str, Any] = {"name": stage_name(table, location)}
    if "crop" in table:
        settings["crop"] = choice(table, "crop", CROPS, location)
    for key, kind in (
        ("margin", float),
        ("square", bool),
        ("score", float),
        ("most", int),
        ("turn_score", float),
    ):
        if key in table:
            settings[key] = get(table, key, kind, location)
    if "classes" in table:
        settings["classes"] = _labels(get(table, "classes", list, location), location)
    if "turn" in table:
        settings["turn"] = _angles(get(table, "turn", dict, location), location)
    stage = CascadeStage(**settings)
    for key in OF_BOXES:
        if key in table and stage.crop != "box":
            raise CardError(f"{location}.{key} needs crop = 'box', but crop is {stage.crop!r}")
    if not 0 <= stage.margin <= 1:
        raise CardError(f"{location}.margin is {stage.margin:g}; it must be from 0 to 1")
    for key, score in (("score", stage.score), ("turn_score", stage.turn_score)):
        if not 0 <= score <= 1:
            raise CardError(f"{location}.{key} is {score:g}; it must be from 0 to 1")
    if not 1 <= stage.most <= 1024:
        raise CardError(f"{location}.most is {stage.most}; it must be from 1 to 1024")
    return stage


def _angles(table: Mapping[str, Json], location: str) -> dict[str, int]:
    for label, degrees in table.items():
        if degrees not in (0, 90, 180, 270) or isinstance(degrees, bool):
            raise CardError(f"{location}.turn.{label} is {degrees!r}; it must be 0, 90, 180 or 270 degrees")
    return {label: int(degrees) for label, degrees in table.items()}


def _labels(labels: Sequence[Json], location: str) -> tuple[str, ...]:
    for label in labels:
        if not isinstance(label, str):
            raise CardError(f"{location}.classes is {list(labels)}; it must be a list of labels")
    return tuple(labels)
