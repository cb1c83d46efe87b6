"""The verb that puts bundles behind HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli.arguments import as_json_option, refuse_given
from edgekit.cli.command_group import main
from edgekit.cli.request_options import Verb, arguments_of, request_options

if TYPE_CHECKING:
    from edgekit.serve.served_models import ServedModels


@main.command(cls=Verb)
@click.argument("bundles", metavar="[BUNDLE]...", nargs=-1, type=click.Path())
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of this machine only; the same as --listen 127.0.0.1:PORT.",
)
@request_options("ServeRequest")
@as_json_option
def serve(port: int | None, as_json: bool, **options: Any) -> None:
    """Serve bundles over HTTP and gRPC.

    Both are the Open Inference Protocol v2.

    BUNDLE is a file, or NAME=FILE. If --listen or --grpc lets other machines in, give TLS (--tls-cert and
    --tls-key), or --behind-proxy if a proxy has it. Clients then need a token (of --token-file, or a random
    one that is shown), or by --tls-clients a certificate. Models are then loaded and unloaded with the token
    of --admin-token-file only. Two bundles of one model, one built with a larger batch size, are served as
    one, in batches if these are faster. After SIGTERM or Ctrl-C, the server completes accepted requests.
    """
    if port is not None:
        refuse_given(["listen"], "does not go with --port")
        options["listen"] = f"127.0.0.1:{port}"
    from edgekit.serve.server import serve as serve_bundles

    def announce(url: str, grpc: str | None, token: str | None, models: ServedModels) -> None:
        if as_json:
            rows = [{"name": m.name, "version": m.version, **m.session.active._asdict()} for m in models]
            click.echo(json.dumps({"url": url, "grpc": grpc, "token": token, "models": rows}))
            return
        for line in model_lines(models):
            click.echo(line, err=True)
        if token is not None:
            click.echo(f"  token     {token}", err=True)
        click.echo(f"  serving   {url}{'/v2' * url.startswith('http')}", err=True)
        if url.startswith("http"):
            click.echo(f"  try       {url}/ in a browser", err=True)
        if grpc is not None:
            click.echo(f"  gRPC      {grpc}", err=True)
        if options["wyoming"]:
            click.echo(f"  Wyoming   {options['wyoming']}", err=True)

    serve_bundles(**arguments_of("ServeRequest", options), announce=announce)


def model_lines(models: Iterable[Any]) -> list[str]:
    """Describe the served models for the terminal."""
    lines = []
    for model in models:
        active = model.session.active
        lines.append(
            f"  {model.name} {model.version}  {active.variant} on {active.engine}, {active.precision}"
        )
        if missing := getattr(model, "missing", ""):  # language models have failed to load without it
            lines.append(f"  not ready {model.name} {model.version}  {missing}")
    return lines
