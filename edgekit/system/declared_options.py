"""Options of a command, declared once as the fields of a frozen dataclass.

One declaration gives the keyword arguments and the docstring of a Python function (``called_with``), click's
options (``edgekit/cli/request_options.py``), the message to a child process (``plain_arguments``), and the
options in a manifest (``stored_options``).
"""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin

P = ParamSpec("P")
Request = TypeVar("Request")
Result = TypeVar("Result")
Models = Literal["any", "graph", "kind"]
Method = TypeVar("Method", bound=Callable[..., Any])
DOCSTRING_COLUMNS = 100


class Option(NamedTuple):
    """Declaration of an option: its description, its spelling on the command line, and where it is stored.

    Attributes:
        doc: Paragraph in the docstring of the function. The command line's help is its first sentence.
        default: Default in words, if the field's own does not say it.
        python_only: Whether it is an argument of the function, and not an option of the command line.
        flags: Spellings on the command line; none: ``--name-of-the-field``.
        metavar: Placeholder of the value in the help.
        heading: Heading above it in the help of a command with many options.
        parse: Text of the command line -> value. Raises ValueError with the end of the message.
        repeatable: Whether it may be given several times. ``by name``: as NAME=VALUE, for a mapping.
        choices: Allowed values.
        completions: Function that returns the values of the shell's completion.
        minimum: Minimum of a number.
        folder: Whether a path is that of a folder.
        kind: Type of a value on the command line and in a file. None means the first type of the annotation.
        models: Models that it applies to: any, graphs, or only those of a kind. A kind lists its options,
            which may be those of graphs too.
        stored: Whether the manifest of a bundle holds it, for ``edgekit bundle rebuild``.
        rebuild: Whether it is an option of ``edgekit bundle rebuild``, because a manifest can't hold it.
        local: Whether it stays in this process, and does not go to its child.
    """

    doc: str
    default: str = ""
    python_only: bool = False
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    heading: str = "Common"
    parse: Callable[[str], Any] | None = None
    repeatable: Literal["", "values", "by name"] = ""
    choices: Sequence[str] = ()
    completions: Callable[[], Iterable[str]] | None = None
    minimum: int | None = None
    folder: bool = False
    kind: type | None = None
    models: Models = "graph"
    stored: bool = True
    rebuild: bool = False
    local: bool = False

    @property
    def help(self) -> str:
        """Return the first sentence of the description, with its default, for the command line."""
        sentence = re.split(r"(?<=\.)\s+(?=[A-Z])", self.doc, maxsplit=1)[0].replace("``", "")
        repeated = " Repeatable." if self.repeatable else ""
        return sentence + repeated + (f"  [default: {self.default}]" if self.default else "")


class Declared(NamedTuple):
    """One field of a request.

    Attributes:
        name: Name of the field and of the argument in Python.
        kind: Type of a value; ``object``: one of Python alone.
        default: Its default; ``dataclasses.MISSING`` for an argument that must be given.
        option: Description, spelling and storage of the option.
    """

    name: str
    kind: type
    default: Any
    option: Option

    @property
    def flags(self) -> tuple[str, ...]:
        """Its spelling on the command line; a flag that is on by default is given to turn it off."""
        off = "no-" if self.default is True else ""
        return self.option.flags or (f"--{off}{self.name.replace('_', '-')}",)

    @property
    def is_needed(self) -> bool:
        """Return whether it is required, because it has no default."""
        return self.default is MISSING

    @property
    def shown(self) -> str:
        """Its name in an error message."""
        return self.name if self.option.python_only else self.flags[-1]

    def is_given(self, request: object) -> bool:
        """Return whether a request has another value than the default, and not an empty one."""
        value = getattr(request, self.name)
        if isinstance(value, bool | int | float):
            return bool(value != self.default)
        empty = isinstance(value, Sequence | Mapping) and not value
        return value is not None and not empty and value is not self.default


def option(doc: str, **more: Any) -> Mapping[str, Option]:
    """Return the metadata of a field, as :class:`Option` describes it."""
    return {"option": Option(doc, **more)}


def same(request: type, name: str, **changed: Any) -> Mapping[str, Option]:
    """Return the metadata of another request's field, changed in these attributes."""
    (attributes,) = (entry.option for entry in declared(request) if entry.name == name)
    return {"option": attributes._replace(**changed)}


def declared(request: type) -> list[Declared]:
    """Return the fields of a request in their order, the positional one first."""
    return [
        Declared(item.name, attributes.kind or _kind(item.type), item.default, attributes)
        for item in sorted(fields(request), key=lambda item: item.kw_only is True)
        if (attributes := item.metadata.get("option")) is not None
    ]


def _kind(annotation: Any) -> type:
    """Return the first type of an annotation; a quoted one is of names that only type checkers load."""
    if isinstance(annotation, str):
        return object
    types = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    first = next(member for member in types if member is not NoneType)
    origin = get_origin(first) or first
    if not isinstance(origin, type):
        return object
    return list if issubclass(origin, Sequence) and origin is not str else origin


def plain_arguments(request: object) -> dict[str, Any]:
    """Return the arguments of a request that go to another process, as what pickle and JSON have."""
    return {
        entry.name: _plain(getattr(request, entry.name))
        for entry in declared(type(request))
        if not entry.option.local
    }


def _plain(value: Any) -> Any:
    """Return any mapping as a dict, and any sequence but a tuple as a list."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | tuple):
        return [_plain(item) for item in value]
    return value


def stored_options(request: object) -> dict[str, Any]:
    """Return the options of a request that its manifest holds, as JSON, without defaults."""
    return {
        entry.name: _json(getattr(request, entry.name))
        for entry in declared(type(request))
        if entry.option.stored and entry.is_given(request)
    }


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_json(item) for item in value]
    return os.fspath(value) if isinstance(value, Path) else value


def called_with(
    request: Callable[P, Request],
) -> Callable[[Callable[[Request], Result]], Callable[P, Result]]:
    """Give a function of a request the arguments of the request, with their signature and documentation.

    Type checkers see the arguments of the dataclass; ``inspect.signature`` and ``help`` show them.
    """

    def decorator(work: Callable[[Request], Result]) -> Callable[P, Result]:
        @wraps(work)
        def function(*arguments: P.args, **named: P.kwargs) -> Result:
            try:
                signature.bind(*arguments, **named)
            except TypeError as problem:
                named_only = (p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY)
                hint = f": write {next(named_only)}=..." if "positional" in str(problem) else ""
                raise TypeError(f"{work.__name__}() {problem}{hint}") from None
            return work(request(*arguments, **named))

        returned = work.__annotations__["return"]
        signature = inspect.signature(request).replace(return_annotation=returned)
        types = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        function.__signature__ = signature  # type: ignore[attr-defined]
        function.__annotations__ = {**types, "return": returned}
        function.__doc__ = _documented(inspect.getdoc(work) or "", declared(request))  # type: ignore[arg-type]
        return function

    return decorator


def passing_options(request: type) -> Callable[[Method], Method]:
    """Show the options of a request in signature and documentation of a function that takes them as
    ``**options``, described as "Fields of" the request."""

    def decorator(function: Method) -> Method:
        signature, row = inspect.signature(function), f"    options: Fields of ``{request.__name__}``."
        before = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
        options = inspect.signature(request).parameters.values()
        function.__signature__ = signature.replace(parameters=[*before, *options])  # type: ignore[attr-defined]
        rows = "\n".join(_rows(declared(request)))
        function.__doc__ = (inspect.getdoc(function) or "").replace(row, rows)
        return function

    return decorator


def _documented(text: str, declared: Iterable[Declared]) -> str:
    """Return a docstring with the arguments before its section ``Returns:``."""
    before, section, after = text.partition("Returns:")
    return before + "\n".join(["Args:", *_rows(declared), "", ""]) + section + after


def _rows(declared: Iterable[Declared]) -> list[str]:
    return [
        textwrap.fill(
            f"{entry.name}: {entry.option.doc}"
            + (f" Default: {entry.option.default}." if entry.option.default else ""),
            DOCSTRING_COLUMNS,
            initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False,
        )
        for entry in declared
    ]  # fmt: skip
