"""The verb ``generate``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    as_json_option,
    bundle_argument,
    engine_option,
    path_option,
    threads_option,
    variant_option,
)
from edgekit.cli.command_group import main
from edgekit.cli.request_options import arguments_of, request_options
from edgekit.errors import UsageError, printable

if TYPE_CHECKING:
    from edgekit.generate import GeneratedText, TextSession

SCHEMA_LIMIT_BYTES = 1 << 20


@main.command(headings={"Advanced": "context speculate strict"})
@bundle_argument
@click.option("-p", "--prompt", required=True, metavar="TEXT", help="Prompt; - reads stdin.")
@click.option("--chat", is_flag=True, help="The prompt is a user's message; the model answers.")
@click.option("--system", metavar="TEXT", help="With --chat: system message.")
@request_options("GenerateOptions")
@path_option("--json-schema", "schema", help="JSON schema that the answer follows.")
@click.option(
    "--context",
    metavar="TOKENS",
    type=click.IntRange(min=1),
    help="Maximum context length in tokens (language models).",
)
@click.option(
    "--speculate",
    type=click.Choice(["auto", "draft", "lookup", "off"]),
    default="auto",
    show_default=True,
    help="Speculative decoding, with the bundle's draft model or from the prompt; auto: only if the "
    "text stays the same and it is faster.",
)
@engine_option
@variant_option
@threads_option
@click.option("--strict", is_flag=True, help="Fail instead of falling back to another variant.")
@as_json_option
def generate(
    bundle: Path,
    prompt: str,
    chat: bool,
    system: str | None,
    schema: Path | None,
    context: int | None,
    speculate: str,
    engine: str | None,
    variant: str | None,
    threads: int | None,
    strict: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Generate text with a language model.

    The text appears on stdout as it is made; what ran, and how fast, on stderr.
    """
    from edgekit.generate import TextSession

    if system is not None and not chat:
        raise UsageError("--system needs --chat")
    options = arguments_of("GenerateOptions", values)
    if schema is not None:
        options["json_schema"] = _schema(schema)
    text = sys.stdin.read() if prompt == "-" else prompt
    with TextSession(
        bundle,
        engine=engine,
        variant=variant,
        strict=strict,
        threads=threads,
        context=context,
        speculate=speculate,
    ) as session:
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages.append({"role": "user", "content": text})
        begun = session.chat(messages, **options) if chat else session.generate(text, **options)
        with begun as stream:
            for piece in stream:
                if not as_json:
                    # A model's text may hold control sequences.
                    click.echo(printable(piece) if sys.stdout.isatty() else piece, nl=False)
                    sys.stdout.flush()
        result = stream.result
        if as_json:
            terminal.answer(True, _as_json(session, result), "")
            return
        click.echo()
        for line in _summary(session, result):
            click.echo(line, err=True)


def _schema(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()[: SCHEMA_LIMIT_BYTES + 1]
        schema = json.loads(content)
    except OSError as problem:
        raise UsageError(f"can't read {path}: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{path} is not valid JSON: {problem}") from None
    if not isinstance(schema, dict) or len(content) > SCHEMA_LIMIT_BYTES:
        raise UsageError(f"{path} is not a JSON schema; give an object of at most {SCHEMA_LIMIT_BYTES} bytes")
    return schema


def _as_json(session: TextSession, result: GeneratedText) -> dict[str, Any]:
    return {
        "text": result.text,
        **result.as_json(),
        "active": session.active._asdict(),
        "fallbacks": [fallback._asdict() for fallback in session.fallbacks],
        "speculation": session.facts()["speculation"],
    }


def _summary(session: TextSession, result: GeneratedText) -> list[str]:
    active = session.active
    lines = [f"  ran       {active.variant} on {active.engine}, {active.device}, {active.precision}"]
    lines += [f"  fallback  {event.from_} -> {event.to}: {event.reason}" for event in session.fallbacks]
    speed = f", then {result.tokens_per_s:.1f} tokens a second" if result.tokens_per_s else ""
    lines.append(
        f"  made      {result.tokens} tokens after {result.prompt_tokens}, end: {result.reason}; "
        f"first after {result.first_token_ms:.0f} ms{speed}"
    )
    if result.proposed:
        lines.append(f"  guessed   {result.proposed} tokens, {result.accepted} right")
    return lines
