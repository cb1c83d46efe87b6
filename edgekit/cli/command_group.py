"""The command ``edgekit``: what holds for all of its verbs.

Exit codes: 0 success, 1 check failed, 2 usage error or invalid input, 3 a required engine or tool is
missing. Results go to stdout, everything else to stderr; with ``--json`` stdout holds one JSON object only.
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
from edgekit.errors import EdgeKitError, UnsupportedError

SECTIONS = {
    "This machine": ("targets", "doctor", "toolchain", "devices"),
    "Prepare a model": ("import", "card", "check", "shrink", "distil"),
    "Build bundles": ("build", "build-all", "rebuild", "cascade", "defer"),
    "Use a bundle": ("inspect", "verify", "explain", "run", "generate", "bench", "report", "log", "drift",
                     "export", "serve"),
    "Release": ("sign", "provenance", "publish", "fleet"),
    "On a device": ("update", "install", "status", "commit", "rollback"),
}  # fmt: skip
"""The verbs by the work that they belong to, in the order of their use, which is that of the help."""
VERBS = tuple(verb for verbs in SECTIONS.values() for verb in verbs)
WRITERS = ("import", "card", "shrink", "distil", "build", "cascade", "defer", "report", "drift", "export",
           "sign", "provenance")  # fmt: skip
"""They write all of their output or none of it, and their error messages say so."""


class Verbs(click.Group):
    """Turns an error that the user can fix into one message and its exit code, without a traceback."""

    command_class = Verb

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        column = max(map(len, VERBS))
        width = formatter.width - 6 - column
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                rows = [(verb.ljust(column), self.commands[verb].get_short_help_str(width)) for verb in verbs]
                formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _misuse_in_json():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _misuse_in_json():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader, e.g. head, has seen enough: click ends quietly
            raise
        except EdgeKitError as error:
            code, text, kind = error.exit_code, str(error), type(error).__name__
            found = [f.as_json() for f in error.findings] if isinstance(error, UnsupportedError) else []
        except KeyboardInterrupt:
            # What a search measured is in the cache, and files are written whole or not at all.
            goes_on = {
                "build": "; nothing was written; run the same command again to continue",
                "build-all": "; what was built is kept; run the same command again to continue",
            }.get(ctx.invoked_subcommand or "", "")
            code, kind, found, text = 130, "KeyboardInterrupt", [], f"stopped{goes_on}"
        except OSError as error:
            code, kind, found = 2, "OSError", []
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if ctx.invoked_subcommand in WRITERS and "nothing was written" not in text.lower():
            text += "\n  nothing was written"
        terminal.fail(kind, text, found, as_json="--json" in sys.argv)
        raise click.exceptions.Exit(code)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgekit")
def main() -> None:
    """Package one trained model for many inference engines, with each variant verified.

    Exit codes: 0 success, 1 check failed, 2 usage error or invalid input, 3 a required engine or tool is
    missing.
    """
    # Before numpy is loaded: the quantizer's products are small, and OpenBLAS's other threads spin between.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@contextmanager
def _misuse_in_json() -> Iterator[None]:
    """For a usage error click prints the text and exits with 2; with ``--json`` this adds the object."""
    try:
        yield
    except click.ClickException as error:
        if "--json" in sys.argv:
            terminal.error_object("UsageError", error.format_message(), [])
        raise
