"""Row of the newcomer's table, and the model that it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.tensor_spec import Array

Sample = Mapping[str, Array] | Sequence[Array]
"""Inputs of one run, by name or in the order of the model's inputs."""


@dataclass(frozen=True, eq=False)
class Made:
    """Model as a newcomer holds it.

    Attributes:
        source: File or folder, or the object of a framework.
        samples: Inputs that the model can mean, at least two: a :data:`Sample` each, or a text.
        answers: Outputs of the original for each sample, in the order of its outputs: arrays, or a text.
        example_inputs: What the user passes to ``edgekit.build`` with an object.
    """

    source: Any
    samples: Sequence[Any]
    answers: Sequence[Sequence[Any]]
    example_inputs: Any = None


@dataclass(frozen=True)
class Row:
    """Model of the table.

    Attributes:
        name: Name for people; unique.
        framework: Framework that it comes from.
        make: Function that makes the model in a folder.
        form: How it reaches EdgeKit, e.g. ``.pt2`` or ``Python``.
        options: What a user who read ``docs/importing.md`` types besides the model and the targets.
        refused: Text that the error has to have, where EdgeKit can't take the model; "" where it can.
        known: Whether the list of 2026-11-23 had the model.
        limit: Greatest difference that is right, over the greatest value of the output.
        targets: Targets that are tried.
        environment: Variables of the environment that the command runs with.
    """

    name: str
    framework: str
    make: Callable[[Path], Made]
    form: str
    options: tuple[str, ...] = ()
    refused: str = ""
    known: bool = False
    limit: float = 1e-4
    targets: tuple[str, ...] = ("ort", "tflite")


def refused_file(name: str, content: bytes) -> Callable[[Path], Made]:
    """Return a maker of a file that has no original here: EdgeKit has to refuse it."""

    def make(folder: Path) -> Made:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return Made(path if path.parent == folder else path.parent, (), ())

    return make
