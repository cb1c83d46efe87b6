"""The page of the command line: every verb with its help, arguments and options, as click has them."""

from __future__ import annotations

import click

from edgekit.cli.command_group import all_verbs
from edgekit.cli.request_options import Verb

INTRODUCTION = """# Commands

Made from the commands themselves: what `edgekit VERB --help` prints.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | a check failed: the answer is no |
| 2 | usage error or invalid input |
| 3 | a required engine or tool is missing |
| 130 | stopped with Ctrl-C |

Results go to stdout, everything else to stderr. With `--json` stdout holds one JSON object only.
[Errors](errors.md) has an example of each error and what to do.
"""


def prose(text: str) -> str:
    """Text of the terminal as Markdown that shows the same characters."""
    for mark in "\\`*_[]":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("&", "&amp;").replace("<", "&lt;")


def described(term: str, text: str) -> str:
    """One row of a definition list."""
    return f"`{term}`\n:   {prose(' '.join(text.split()))}\n"


def verb_section(verb: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"edgekit {verb}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    paragraphs = [prose(" ".join(part.split())) for part in (command.help or "").split("\n\n")]
    assert isinstance(command, Verb)
    rows = []
    for heading, records in command.headed_options(context).items():
        rows += [f"**{heading}**\n", *(described(*record) for record in records)]
    return "\n".join([f"## {verb}\n", f"```text\n{usage}\n```\n", "\n\n".join(paragraphs) + "\n", *rows])


def commands_page() -> str:
    return "\n".join([INTRODUCTION, *(verb_section(*each) for each in all_verbs().items())])
