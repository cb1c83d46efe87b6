"""Types of the command line's options, and checks made before any work is done."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from edgekit.errors import EdgeKitError, UsageError

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

F = TypeVar("F", bound=Callable[..., Any])


class EngineName(click.ParamType[str]):
    """A target whose engine is asked for, completed by the shell."""

    name = "target"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from edgekit.target.registry import target_names

        return [CompletionItem(name) for name in target_names() if name.startswith(incomplete)]


class VariantName(click.ParamType[str]):
    """A variant of the bundle, or also a target, completed by the shell with those of BUNDLE."""

    name = "variant"

    def __init__(self, also_targets: bool = False) -> None:
        self._also_targets = also_targets

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "[TARGET]" if self._also_targets else "VARIANT"  # click's own choice has the type's name

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        names = EngineName().shell_complete(ctx, param, incomplete) if self._also_targets else []
        try:
            with open_bundle(Path(ctx.params["bundle"] or ctx.args[0])) as bundle:
                variants = [variant.name for variant in bundle.variants]
        except (EdgeKitError, OSError, LookupError, TypeError):  # no bundle yet: nothing to complete
            variants = []
        return [*names, *(CompletionItem(name) for name in variants if name.startswith(incomplete))]


class NamedFile(click.ParamType[tuple[str, Path]]):
    """``NAME=FILE`` or ``FILE`` -> (name, path); without a name it is for the only input."""

    name = "[NAME=]FILE"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name  # click's own choice is all in capitals

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, equals, path = value.partition("=")
        if not equals:
            name, path = "", value
        if not path or bool(name) != bool(equals):
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        return name, Path(path)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class ModelPath(click.Path):
    """Path of a model, or its address ``hf://OWNER/NAME`` on the Hugging Face Hub."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from edgekit.compiler.hub.address import HubAddress, is_hub_address

        return HubAddress(value) if is_hub_address(value) else super().convert(value, param, ctx)


class BundlePath(click.Path):
    """Path of a bundle that is read, or its address ``hf://OWNER/NAME``, whose files are fetched."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or not value.startswith("hf://") or (ctx and ctx.resilient_parsing):
            return super().convert(value, param, ctx)
        from edgekit.compiler.hub.address import HubAddress
        from edgekit.compiler.hub.files import fetch_bundle

        return fetch_bundle(HubAddress(value))


def as_json_option(verb: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout; logs on stderr.")(
        verb
    )


def path_option(*names: str, **settings: Any) -> Callable[[F], F]:
    return click.option(*names, type=click.Path(path_type=Path), **settings)


def path_argument(*names: str, **settings: Any) -> Callable[[F], F]:
    return click.argument(*names, type=click.Path(path_type=Path), **settings)


bundle_argument = click.argument("bundle", type=BundlePath())
engine_option = click.option(
    "--engine", type=EngineName(), help="Use this target's engine. Default: the best one available."
)
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="List every candidate of the int8 search as well."
)
variant_option = click.option(
    "--variant",
    type=VariantName(),
    metavar="VARIANT",
    help="Use this variant of the bundle, e.g. tflite-int8 (edgekit inspect).",
)
accelerator_option = click.option(
    "--accelerator",
    metavar="gpu|npu|NAME",
    help="Run on this processor or interface (edgekit doctor), once it has reproduced the golden vectors.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(min=1), help="Number of threads for one inference."
)


def open_bundle(path: Path) -> Bundle:
    from edgekit.bundle.bundle import Bundle

    return Bundle.open(path)


def need_writable(output: Path, description: str) -> None:
    """Refuse an output before the work is done that would be lost, and one that would replace an input."""
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent} is not a folder; can't write {description} there")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; give a file name for {description}")
    if len(flags := _flags_of(output)) > 1:
        raise UsageError(
            f"{output} is given as {' and as '.join(flags)}; give another name for {description}"
        )
    try:
        with tempfile.TemporaryFile(dir=output.parent):  # what the rights say is not what a file system does
            pass
    except OSError as problem:
        raise UsageError(
            f"can't write to {output.parent}: {problem.strerror}; choose another folder for {description}"
        ) from None


def _flags_of(path: Path) -> list[str]:
    context, flags = click.get_current_context(), []
    for param in context.command.params:
        value = context.params.get(param.name or "")
        files = [
            part[1] if isinstance(part, tuple) else part
            for part in (value if isinstance(value, tuple) else (value,))
        ]
        if any(isinstance(file, Path) and realpath(file) == realpath(path) for file in files):
            flags.append(param.opts[0] if isinstance(param, click.Option) else str(param.name).upper())
    return flags


def need_replaceable(output: Path) -> None:
    """Refuse to replace a file that is not a bundle: a typing error must not cost a model."""
    from edgekit.bundle.bundle import MAGIC

    try:
        with output.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError:  # it does not exist, or can't be read, and writing will report why
        return
    if head and head != MAGIC:
        raise UsageError(f"{output} exists and is not a bundle; give another name, or remove it first")


def below(samples: str | None) -> str:
    """Return the sample source that stands for a folder and all its subfolders."""
    if samples is None or not Path(samples).is_dir():
        raise UsageError(
            f"{samples} is not a folder; --recursive needs --samples FOLDER"
            if samples
            else "--recursive needs --samples FOLDER"
        )
    return str(Path(samples) / "**")


def refuse_others(option: str, *allowed: str) -> None:
    """Refuse what was given on the command line besides an option and what goes with it."""
    others = click.get_current_context().params.keys() - {option, *allowed}
    refuse_given(others, f"does not go with --{option}")


def refuse_given(names: Collection[str], reason: str) -> None:
    context = click.get_current_context()
    for param in context.command.params:
        is_explicit = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if is_explicit and param.name in names:
            raise UsageError(f"{param.opts[0]} {reason}")
