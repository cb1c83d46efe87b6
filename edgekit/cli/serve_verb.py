"""The verb that puts bundles behind HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli.arguments import as_json_option, engine_option
from edgekit.cli.command_group import main

if TYPE_CHECKING:
    from edgekit.serve.served_models import ServedModels


@main.command()
@click.argument("bundles", metavar="[BUNDLE]...", nargs=-1)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on.  [default: 127.0.0.1:8080, this machine only]",
)
@click.option("--grpc", metavar="HOST:PORT", help="Address for gRPC, e.g. 127.0.0.1:8081.")
@click.option(
    "--repository", type=click.Path(path_type=Path, file_okay=False), help="Folder of bundles to load from."
)
@click.option(
    "--memory-mb", type=int, help="Memory limit of loaded models; the least recently used ones are unloaded."
)
@click.option("--workers", type=int, default=1, show_default=True, help="Number of worker processes.")
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="File with the token that clients must send."
)
@click.option(
    "--admin-token-file",
    type=click.Path(path_type=Path),
    help="File with the token for loading and unloading models.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate (PEM) for TLS.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Private key (PEM) of the certificate.")
@click.option(
    "--tls-clients",
    type=click.Path(path_type=Path),
    help="Certificate authority (PEM); clients need a certificate from it.",
)
@click.option(
    "--deadline-ms",
    type=float,
    default=1000,
    show_default=True,
    help="Deadline of a request in milliseconds.",
)
@click.option(
    "--queue", type=int, default=64, show_default=True, help="Maximum number of queued requests per model."
)
@click.option(
    "--connections",
    type=int,
    default=1024,
    show_default=True,
    help="Maximum number of connections per process.",
)
@click.option(
    "--address-share",
    type=float,
    default=0.5,
    show_default=True,
    help="Maximum share of connections and request memory for one address; use 1 behind a proxy.",
)
@click.option(
    "--request-memory-mb",
    type=int,
    help="Memory limit of all requests.  [default: a quarter of the free memory]",
)
@engine_option
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Number of threads for one inference.  [default: the cores, shared among the workers]",
)
@as_json_option
def serve(
    bundles: tuple[str, ...],
    listen: str | None,
    grpc: str | None,
    repository: Path | None,
    memory_mb: int | None,
    workers: int,
    token_file: Path | None,
    admin_token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_clients: Path | None,
    deadline_ms: float,
    queue: int,
    connections: int,
    address_share: float,
    request_memory_mb: int | None,
    engine: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Serve bundles over HTTP and gRPC.

    Both are the Open Inference Protocol v2.

    BUNDLE is a file, or NAME=FILE. Where --listen or --grpc lets others in, they need a token (of
    --token-file, or one that is made and shown), or by --tls-clients a certificate. Two bundles of one model,
    one built with a larger batch size, are served as one, in batches where these are faster. Where clients
    need a token, models are loaded and unloaded with the token of --admin-token-file only. SIGTERM and Ctrl-C
    answer what was accepted, then end.
    """
    from edgekit.errors import UsageError
    from edgekit.serve.bundle_names import bundles_by_name
    from edgekit.serve.request_memory import ServingLimits
    from edgekit.serve.served_model import ServeOptions
    from edgekit.serve.server import address_of, need_packages, read_token, token_for
    from edgekit.serve.server import serve as serve_bundles
    from edgekit.serve.tls import tls_of

    if not 0 < deadline_ms < float("inf") or queue < 1:
        raise UsageError("--deadline-ms must be above 0, and --queue at least 1")
    if not bundles and repository is None:
        raise UsageError("give bundles, or a folder of them (--repository)")
    if memory_mb is not None and memory_mb < 1:
        raise UsageError("--memory-mb must be at least 1")
    if connections < 8 or not 0 < address_share <= 1:
        raise UsageError("--connections must be at least 8, and --address-share above 0 and at most 1")
    if request_memory_mb is not None and request_memory_mb < 16 * workers:
        raise UsageError("--request-memory-mb must be at least 16 for each worker")
    need_packages(grpc is not None)
    address, second = address_of(listen), None if grpc is None else address_of(grpc, "--grpc")
    tls = tls_of(tls_cert, tls_key, tls_clients)
    token = token_for(address if second is None or second.loopback else second, token_file, tls)
    options = ServeOptions(engine, threads, deadline_ms, queue)

    def announce(url: str, target: str | None, models: ServedModels) -> None:
        from edgekit.serve.app import model_lines

        rows = [{"name": m.name, "version": m.version, **m.session.active._asdict()} for m in models]
        made = token if token_file is None else None
        if as_json:
            click.echo(json.dumps({"url": url, "grpc": target, "token": made, "models": rows}))
            return
        for line in model_lines(models):
            click.echo(line, err=True)
        if made is not None:
            click.echo(f"  token     {made}", err=True)
        click.echo(f"  serving   {url}/v2", err=True)
        if target is not None:
            click.echo(f"  gRPC      {target}", err=True)

    serve_bundles(
        bundles_by_name(bundles),
        address,
        options,
        repository=repository,
        memory_bytes=None if memory_mb is None else memory_mb << 20,
        grpc=second,
        tls=tls,
        token=token,
        admin_token=None if admin_token_file is None else read_token(admin_token_file),
        workers=workers,
        limits=ServingLimits(
            connections,
            address_share,
            None if request_memory_mb is None else (request_memory_mb << 20) // max(1, workers),
        ),
        announce=announce,
    )
