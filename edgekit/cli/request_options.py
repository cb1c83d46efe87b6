"""Options of click from the fields of a request (edgekit/system/declared_options.py).

They are made when a verb is used: the list of all verbs needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.system.declared_options import Declared

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")
REQUESTS = {
    "BuildRequest": "edgekit.compiler.pipeline.build_request",
    "ShrinkRequest": "edgekit.compiler.pipeline.shrink_request",
    "DistilRequest": "edgekit.compiler.pipeline.distil_request",
    "DraftRequest": "edgekit.compiler.pipeline.distil_request",
    "ServeRequest": "edgekit.serve.serve_request",
    "GenerateOptions": "edgekit.generate.device.options",
}
"""Class -> its module, which is imported when a verb is used."""
OPENING = ("shapes", "trust_pickle", "trusted")
"""Fields of a build that every verb has which opens a model."""
COMMON = "Common"
MANY = 10
"""With more options, the help has headings."""
PLACEHOLDERS = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}
"""Type of an option's value -> its placeholder in the help, unless the option declares one."""


def request_class(name: str) -> type:
    """Return the class of a request or of options, of which :data:`REQUESTS` has the module."""
    loaded: type = getattr(import_module(REQUESTS[name]), name)
    return loaded


class Verb(click.Command):
    """A command that makes the options of its request when they are first used, and shows what runs.

    Args:
        writes: Whether it writes all of its output or none, which its error messages state.
        left: State of the output after Ctrl-C, if the same command continues from there.
        headings: Heading in the help -> names of options; others have that of their request, or Common.
    """

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.params.get("as_json") or ctx.params.get("quiet"):
            return super().invoke(ctx)
        from edgekit.system.live_line import live_line

        with live_line():
            return super().invoke(ctx)

    _params: list[click.Parameter]

    def __init__(
        self,
        *args: Any,
        writes: bool = False,
        left: str = "",
        headings: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.writes, self.left = writes, left
        self.headings = {name: heading for heading, names in headings.items() for name in names.split()}

    @property
    def params(self) -> list[click.Parameter]:
        expanded: list[click.Parameter] = []
        for param in self._params:
            expanded += param.options() if isinstance(param, RequestOptions) else [param]
        for option in expanded:
            if isinstance(option, click.Option) and option.metavar is None and not option.is_flag:
                option.metavar = PLACEHOLDERS.get(option.type.name)
        self._params = expanded
        return expanded

    @params.setter
    def params(self, parameters: list[click.Parameter]) -> None:
        self._params = parameters

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._refuse_repeated(ctx, list(args))
        return super().parse_args(ctx, args)

    def _refuse_repeated(self, ctx: click.Context, args: list[str]) -> None:
        """Refuse a second value of an option that takes one, of which click would silently drop the first."""
        single = [
            param.name
            for param in self.make_parser(ctx).parse_args(args)[2]
            if isinstance(param, click.Option) and not (param.multiple or param.is_flag or param.count)
        ]
        for param in self.params:
            if single.count(param.name) > 1:
                raise click.UsageError(f"{param.opts[0]} is given more than once", ctx)

    def headed_options(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the rows of the help by heading; ten options or fewer have one heading."""
        rows_by_heading: dict[str, list[tuple[str, str]]] = {}
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        for option in options:
            heading = self.headings.get(option.name or "", getattr(option, "heading", COMMON))
            record = option.get_help_record(ctx)
            if record is not None:
                rows_by_heading.setdefault(heading if len(options) > MANY else "Options", []).append(record)
        return dict(sorted(rows_by_heading.items(), key=lambda option: option[0] != COMMON))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, rows in self.headed_options(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows)


class RequestOptions(click.Option):
    """Place of a request's options among those of a verb."""

    def __init__(self, *_: Any, options: Callable[[], Iterator[click.Option]]) -> None:
        super().__init__(["--request"])
        self.options = options


def request_options(
    request: str,
    *,
    only: Collection[str] = (),
    for_rebuild: bool = False,
    required: bool = True,
) -> Callable[[F], F]:
    """Return a decorator that gives a verb the options of a request.

    Args:
        request: A key of :data:`REQUESTS`.
        only: Fields to take; none: all that have an option.
        for_rebuild: Whether to take the options of ``edgekit bundle rebuild``: what a manifest does not hold.
        required: Whether an argument without a default must be given.
    """

    def options() -> Iterator[click.Option]:
        from edgekit.system.declared_options import declared

        for field in declared(request_class(request)):
            shown = field.option.rebuild if for_rebuild else not field.option.python_only
            if shown and (not only or field.name in only):
                yield _option(field, required and not for_rebuild)

    return click.option("--request", cls=RequestOptions, options=options)


def _option(field: Declared, required: bool) -> click.Option:
    option, more = field.option, dict[str, Any]()
    if field.kind is bool:
        more = {"is_flag": True} if not field.default else {"flag_value": False, "default": True}
    else:
        more = {"type": _type(field), "multiple": bool(option.repeatable), "metavar": option.metavar}
        if isinstance(field.default, str | int | float) and field.default != "":
            more |= {"default": field.default, "show_default": True}
    required = required and field.is_needed and not option.repeatable
    click_option = click.Option([*field.flags, field.name], help=option.help, required=required, **more)
    click_option.heading = option.heading  # type: ignore[attr-defined]
    return click_option


class Parsed(click.ParamType[Any]):
    """Text that a field parses itself, or completes."""

    def __init__(self, field: Declared) -> None:
        self.field = field
        self.name = field.option.metavar or "text"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name  # click's own choice is all in capitals

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self.field.option.parse is None or not isinstance(value, str):
            return value
        try:
            return self.field.option.parse(value)
        except ValueError as problem:
            self.fail(f"{value!r} is not of the form {self.name}{problem}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = self.field.option.completions or tuple
        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


def _type(field: Declared) -> Any:
    option = field.option
    if option.parse or option.completions:
        return Parsed(field)
    if option.choices:
        return click.Choice(option.choices)
    if option.metavar == "PATH" and field.kind is str:  # a glob or a path
        return click.Path()
    if field.kind is Path:
        return click.Path(path_type=Path, file_okay=not option.folder)
    if field.kind is int:
        return click.INT if option.minimum is None else click.IntRange(option.minimum)
    return field.kind


def arguments_of(request: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request from the values that click has for its options.

    One that was not given is left to its default.
    """
    from edgekit.system.declared_options import declared

    arguments = {}
    for field in declared(request_class(request)):
        if (value := options.get(field.name)) is not None:
            if field.option.repeatable == "by name":
                value = once(value, field.flags[0])
            arguments[field.name] = list(value) if field.option.repeatable == "values" else value
    return arguments


def given_beside(request: str, other: str, options: Mapping[str, Any]) -> list[str]:
    """Return the flags that were given and that another request has, not this one."""
    from edgekit.system.declared_options import declared

    names = {field.name for field in declared(request_class(request))}
    beside = [field for field in declared(request_class(other)) if field.name not in names]
    return [field.shown for field in beside if options.get(field.name)]


def once(pairs: Sequence[tuple[str, V]], flag: str) -> dict[str, V]:
    """Return the values of a repeatable flag by name."""
    names = [name for name, _ in pairs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        for_what = f" for {', '.join(repeated)}" if any(repeated) else "; say which input each is for"
        raise UsageError(f"{flag} is given more than once{for_what}")
    return dict(pairs)
