"""Meaning of a model's outputs: the ``[task]`` table of a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, fields
from typing import Any

from edgekit.errors import CardError
from edgekit.processing.task_table import find_decoder, find_task, has_task, task_kinds
from edgekit.system.formats.strict_tables import (
    as_lists,
    choice,
    get,
    kind_of,
    numbers,
    only,
    pairs,
    text_list,
    whole_numbers,
)
from edgekit.tensor_spec import Json


@dataclass(frozen=True)
class Task:
    """Task of a model, with the decoder of its outputs.

    Attributes:
        kind: Name of a task in ``edgekit.tasks``, e.g. ``classify`` or ``detect``.
        decode: Name of one of the task's decoders, which fits the form of the outputs.
        outputs: Role of an output in the decoder -> its name in the model.
        labels: Class names by class number; "" for an unused number.
        options: Options of the decoder, e.g. its score threshold.
    """

    kind: str
    decode: str
    outputs: Mapping[str, str]
    labels: tuple[str, ...]
    options: Any

    def as_json(self) -> dict[str, Json]:
        table = {"kind": self.kind, "decode": self.decode, "outputs": dict(self.outputs)}
        return {**table, "labels": list(self.labels), **as_lists(asdict(self.options))}


def read_task(table: dict[str, Json], location: str) -> Task:
    """Read the task of a card's table.

    Raises:
        CardError: it is malformed.
    """
    kind: Any = table.get("kind")
    if not has_task(kind):
        kind = choice(table, "kind", task_kinds(), location)
    decode = choice(table, "decode", tuple(find_task(kind).decoders), location)
    decoder = find_decoder(kind, decode)
    options = {f.name: f for f in fields(decoder.options)}
    only(table, ("kind", "decode", "outputs", "labels", *options), location)
    outputs = get(table, "outputs", dict, location)
    only(outputs, (*decoder.roles, *decoder.optional_roles), f"{location}.outputs")
    roles = (*decoder.roles, *(role for role in decoder.optional_roles if role in outputs))
    names = {role: get(outputs, role, str, f"{location}.outputs") for role in roles}
    labels = get(table, "labels", list, location) if "labels" in table else []
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise CardError(f"{location}.labels[{index}] must be a text, not {kind_of(label)}")
    settings = {key: _option(table, key, options[key], location) for key in options if key in table}
    try:
        return Task(kind, decode, names, tuple(labels), decoder.options(**settings))
    except ValueError as problem:
        raise CardError(f"{location}.{problem}") from None


def _option(table: dict[str, Json], key: str, option: Field[Any], location: str) -> Any:
    """Read an option with the type of its field. A tuple holds texts, pairs or numbers."""
    if str(option.type) in TUPLES:
        return TUPLES[str(option.type)](table, key, location)
    return get(table, key, type(option.default), location)


TUPLES: Mapping[str, Callable[[dict[str, Json], str, str], Any]] = {
    "tuple[float, ...]": numbers,
    "tuple[int, ...]": whole_numbers,
    "tuple[str, ...]": text_list,
    "tuple[tuple[int, int], ...]": pairs,
}
"""Annotation of an option -> how it is read."""
