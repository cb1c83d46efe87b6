"""Functions called from Python: a live line on a terminal, and errors in Python's words.

The host side states options as the command line spells them. ``public`` turns ``--max-drop`` into
``max_drop`` if the error leaves a function that a Python program called. A command to paste stays as it is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

from edgekit.errors import EdgeKitError, suggestion
from edgekit.system import progress as events

P = ParamSpec("P")
R = TypeVar("R")
KEYWORDS: Mapping[str, str] = {
    "data": "samples",
    "dataset": "samples",
    "device": "targets",
    "dtype": "precision",
    "model_path": "model",
    "path": "bundle",
    "quantize": "precision",
}
"""Name of an argument in other tools -> ours."""
NAMES = {"adapter": "adapters", "shape": "shapes", "target": "targets"}
"""Option of the command line -> argument, if they differ by more than dashes."""
FLAGS = ("force", "trust_pickle", "trusted")
_COMMAND = r"`[^`]+`|(?:edgekit|optimum-cli|pip|npm|ffmpeg) [a-z-]+(?: (?:(?!: )[^;,)\n])*)?"
_SHAPES = r"(?:--shape (?:[\w.:/-]+=)?\d[\dx]*(?:,\d[\dx]*)*(?:,? (?=--shape \S*\d)|))+"
_TARGETS = r"-t [\w-]+(?: -t [\w-]+)*"
_VALUE = r"--([a-z][a-z-]*)(?:=| )(auto\b|[a-z]*\d[\w%-]*|-\d+%|[A-Z]{3,})"
_OPTION = r"(?<![\w-])--([a-z][a-z-]*)"
_SPOKEN = re.compile(f"({_COMMAND})|({_SHAPES})|({_TARGETS})|{_VALUE}|{_OPTION}")

_on_command_line = False


@contextmanager
def from_command_line() -> Iterator[None]:
    """Run a command: its errors name options, and its own line shows the progress."""
    global _on_command_line
    before, _on_command_line = _on_command_line, True
    try:
        yield
    finally:
        _on_command_line = before


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function fit for a Python program: its live line, its errors, a hint for a wrong argument.

    An argument ``progress`` that is False or a callback leaves the line out.
    """

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        parameters = inspect.signature(function).parameters
        if not any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values()):
            _refuse_unknown(function.__name__, named, parameters)
        with spoken_errors(), _line(named.get("progress", True)):
            return function(*arguments, **named)

    return called


def _refuse_unknown(name: str, named: Mapping[str, object], parameters: Mapping[str, object]) -> None:
    for keyword in named.keys() - parameters.keys():
        if name == "build" and keyword.startswith("out"):
            hint = "; it returns the bundle, which save(path) writes"
        else:
            hint = suggestion(keyword, list(parameters), KEYWORDS)
        raise TypeError(f"{name}() got an unexpected keyword argument {keyword!r}{hint}") from None


@contextmanager
def spoken_errors() -> Iterator[None]:
    """Put the errors of the block into Python's words, unless a command runs."""
    try:
        yield
    except EdgeKitError as problem:
        problem.args = tuple(spoken(text) if isinstance(text, str) else text for text in problem.args)
        raise


def spoken(text: str) -> str:
    """Return a text in the words of its reader: of Python, or of the command line if a command runs."""
    return text if _on_command_line else in_python(text)


def _line(progress: object) -> AbstractContextManager[None]:
    if progress is not True and progress is not events.report:
        return nullcontext()
    if _on_command_line or events.is_heard():
        return nullcontext()
    from edgekit.system.live_line import line_for_python  # here: most calls on a device show none

    return line_for_python()


def in_python(text: str) -> str:
    """Replace options of the command line by arguments of Python, except in whole commands.

    >>> in_python("build with --precision int8 and --samples")
    'build with precision="int8" and samples'
    >>> in_python("add --shape x=1x3 --shape y=4, or run edgekit check m.onnx --shape x=1x3")
    'add shapes={"x": (1, 3), "y": (4,)}, or run edgekit check m.onnx --shape x=1x3'
    """
    return _SPOKEN.sub(_argument, text)


def _argument(match: re.Match[str]) -> str:
    command, shapes, targets, option, value, alone = match.groups()
    if command:
        return command
    if shapes:
        entries = []
        for name, listed in re.findall(r"--shape (?:([\w.:/-]+)=)?([\dx]+(?:,\d[\dx]*)*)", shapes):
            tuples = [tuple(map(int, sizes.split("x"))) for sizes in listed.split(",")]
            entries.append(f'"{name}": {tuples if len(tuples) > 1 else tuples[0]}')
        return f"shapes={{{', '.join(entries)}}}"
    if targets:
        return f"targets={targets.split()[1::2]}".replace("'", '"')
    name = (option or alone).replace("-", "_")
    if name.startswith("no_") and not value:
        return f"{name.removeprefix('no_')}=False"
    name = NAMES.get(name, name)
    if not value:
        return f"{name}=True" if name in FLAGS else name
    return f"{name}={value}" if value.isdecimal() or value.isupper() else f'{name}="{value}"'
