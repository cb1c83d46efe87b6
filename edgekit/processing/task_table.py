"""The installed tasks, found by the name in a card.

A task is a folder of ``edgekit/tasks``, or a package of another distribution with an entry point in the group
``edgekit.tasks``. Only the task that a card names is imported, and of it only the decoder.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from edgekit.processing.task_spec import TaskSpec

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from edgekit.processing.task_decoder import Decoder

TASKS = "edgekit.tasks"


def find_task(kind: str) -> TaskSpec:
    """Return the task of this kind.

    Raises:
        KeyError: none is installed.
    """
    task = _task(kind)
    if task is None:
        raise KeyError(kind)
    return task


def has_task(kind: object) -> bool:
    """Return whether a task of this kind is installed."""
    return isinstance(kind, str) and _task(kind) is not None


def all_tasks() -> list[TaskSpec]:
    """Return every installed task, sorted by kind."""
    return [find_task(kind) for kind in task_kinds()]


def task_kinds() -> tuple[str, ...]:
    """Return the names of the installed tasks, sorted."""
    from pkgutil import iter_modules  # here: a device that reads a card looks for one name

    folders = import_module(TASKS).__path__
    packages = {module.name.replace("_", "-") for module in iter_modules(folders) if module.ispkg}
    return tuple(sorted({*packages, *_entry_points()}))


def find_decoder(kind: str, decode: str) -> Decoder:
    """Return a decoder of a task.

    Raises:
        KeyError: there is none of this name.
    """
    task = find_task(kind)
    decoder: Decoder = task.load(task.decoders[decode]).DECODERS[decode]
    return decoder


def has_decoder(kind: str, decode: str) -> bool:
    """Return whether a task has a decoder for outputs of this form."""
    return has_task(kind) and decode in find_task(kind).decoders


@cache
def _task(kind: str) -> TaskSpec | None:
    """Return the task of this kind: from a folder of this package, else from an entry point."""
    folder = kind.replace("-", "_")
    if not folder.isidentifier():  # a card from elsewhere may contain any text
        return None
    try:
        spec: TaskSpec | None = getattr(import_module(f"{TASKS}.{folder}"), "TASK", None)
    except ModuleNotFoundError as problem:
        if problem.name != f"{TASKS}.{folder}":
            raise
        spec = None
    if spec is not None and spec.kind == kind:
        return spec
    if kind not in _entry_points():
        return None
    task = _entry_points()[kind].load()
    if not isinstance(task, TaskSpec) or task.kind != kind:
        raise TypeError(f"the entry point {kind} of edgekit.tasks names no TaskSpec of this kind: {task!r}")
    return task


@cache
def _entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # here: it costs 15 ms, and imports socket

    return {point.name: point for point in entry_points(group="edgekit.tasks")}
