"""The command ``edgekit``: what holds for all of its verbs.

Exit codes: 0 success, 1 check failed, 2 usage error or invalid input, 3 a required engine or tool is
missing. Results go to stdout, everything else to stderr; with ``--json`` stdout holds one JSON object only.

Optional packages of the extras: a verb that needs a missing one ends with its pip line and exit code 3.

Most places that import one say so themselves, with what needs it (``errors.need_package``). This is for all
others: an import that fails anywhere below a verb.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from edgekit._version import __version__
from edgekit.cli import terminal
from edgekit.cli.request_options import Verb
from edgekit.errors import EdgeKitError, MissingDependency, UnsupportedError
from edgekit.system.python_calls import from_command_line

RUNNING = "edgekit.cli.running"
"""Key of `ctx.meta`: the command that runs, which may be in a group."""
SECTIONS = {
    "Machines and devices": ("targets", "doctor", "devices"),
    "Build a bundle": ("check", "build"),
    "Inspect and measure a bundle": ("inspect", "verify", "evaluate", "explain", "bench", "report"),
    "Use a bundle": ("run", "generate", "serve", "export"),
    "Groups (edgekit GROUP --help)": (
        "model",
        "bundle",
        "batch",
        "release",
        "store",
    ),
}
"""The first page of the help: verbs by the work that they belong to, and groups of verbs."""


class Verbs(click.Group):
    """Commands in the order of their definition; `ctx.meta` holds the one that runs."""

    command_class = Verb
    commands: dict[str, click.Command]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        resolved = super().resolve_command(ctx, args)
        ctx.meta[RUNNING] = resolved[1]
        return resolved


class FirstPage(Verbs):
    """Turns an error that the user can fix into one message and its exit code, without a traceback."""

    group_class = Verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in SECTIONS.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        column = max(map(len, self.commands))
        width = formatter.width - 6 - column
        for section, names in SECTIONS.items():
            with formatter.section(section):
                rows = [(name.ljust(column), self.commands[name].get_short_help_str(width)) for name in names]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # `publish` without its group is answered with `release publish`.
            full_names = {verb.split()[-1]: verb for verb in all_verbs()} | {
                name: name for name in self.commands
            }
            close = click.NoSuchCommand(args[0], possibilities=list(full_names), ctx=ctx)
            error.possibilities = [full_names[name] for name in close.possibilities or []]  # type: ignore[misc]
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _misuse_in_json():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with from_command_line(), _misuse_in_json():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader, e.g. head, has seen enough: click ends quietly
            raise
        except (EdgeKitError, ImportError) as problem:
            error = _user_error(ctx, problem)
            code, text, kind = error.exit_code, str(error), type(error).__name__
            findings = [f.as_json() for f in error.findings] if isinstance(error, UnsupportedError) else []
        except KeyboardInterrupt:
            # What a search measured is in the cache, and files are written whole or not at all.
            left = getattr(ctx.meta.get(RUNNING), "left", "")
            goes_on = f"; {left}; run the same command again to continue" if left else ""
            code, kind, findings, text = 130, "KeyboardInterrupt", [], f"stopped{goes_on}"
        except OSError as error:
            code, kind, findings = 2, "OSError", []
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if getattr(ctx.meta.get(RUNNING), "writes", False) and "nothing was written" not in text.lower():
            text += "\n  nothing was written"
        terminal.fail(kind, text, findings, as_json="--json" in sys.argv)
        raise click.exceptions.Exit(code)


def _user_error(ctx: click.Context, problem: EdgeKitError | ImportError) -> EdgeKitError:
    """Return the error; that of a failed import if it is of an optional package. Others are bugs."""
    if isinstance(problem, EdgeKitError):
        return problem

    running = ctx.meta.get(RUNNING)
    words = next((words for words, command in all_verbs().items() if command is running), "")
    missing = missing_package(problem, f"edgekit {words}".rstrip())
    if missing is None:
        raise problem
    return missing


@click.group(cls=FirstPage, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgekit")
def main() -> None:
    """Package one trained model for many inference engines, with each variant verified.

    Exit codes: 0 success, 1 check failed, 2 usage error or invalid input, 3 a required engine or tool is
    missing.
    """
    # Before numpy is loaded: the quantizer's products are small, and OpenBLAS's other threads spin between.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def all_verbs() -> dict[str, click.Command]:
    """Return every verb by its words after ``edgekit``, in the order of the help."""
    verbs: dict[str, click.Command] = {}
    for name in main.list_commands(click.Context(main)):
        command = main.commands[name]
        grouped = command.commands.items() if isinstance(command, click.Group) else ()
        verbs |= {f"{name} {verb}": verb_command for verb, verb_command in grouped} or {name: command}
    return verbs


@contextmanager
def _misuse_in_json() -> Iterator[None]:
    """Print a usage error that the block raises as an object if ``--json`` is set; click prints the text and
    exits with 2."""
    try:
        yield
    except click.ClickException as error:
        if "--json" in sys.argv:
            terminal.error_object("UsageError", error.format_message(), [])
        raise


EXTRAS = {
    "build": "flatbuffers onnx onnx_ir onnxruntime PIL tomli",
    "native": "ziglang",
    "labels": "globox pycocotools",
    "mqtt": "paho",
    "report": "vl_convert",
    "text": "jinja2 llguidance tokenizers",
    "devices": "packaging pip",
    "browser": "segno",
    "mlflow": "alembic mlflow sqlalchemy",
    "wandb": "wandb",
    "train": "onnxscript torch",
    "catalogue": "fsspec",
    "hub": "huggingface_hub",
    "dask": "distributed",
    "ray": "ray",
    "serve": "google grpc httptools orjson starlette uvicorn uvloop websockets",
    "frigate": "zmq",
    "traces": "opentelemetry",
    "trust": "cryptography",
    "update": "securesystemslib tuf zstandard",
    "wyoming": "wyoming",
    "samples": "aiohttp cv2",
}
"""Extra -> modules of its packages, without the engines', which their targets import and name."""
PACKAGES = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "grpc": "grpcio",
    "mlflow": "mlflow-skinny",
    "opentelemetry": "opentelemetry-sdk",
    "paho": "paho-mqtt",
    "vl_convert": "vl-convert-python",
    "zmq": "pyzmq",
}
"""Module -> its package, if the package has another name."""


def missing_package(problem: ImportError, verb: str) -> MissingDependency | None:
    """Return the error of a failed import; None if the module is not one of an optional package."""
    module = (problem.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules.split()), None)
    if extra is None:
        return None
    package = PACKAGES.get(module, module.replace("_", "-"))
    return MissingDependency(package, verb, extra=extra)
