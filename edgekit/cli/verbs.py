"""The command line: each verb parses, calls one public function and prints.

Exit codes: 0 success, 1 check failed, 2 usage error or invalid input, 3 a required engine or tool is
missing. Results go to stdout, everything else to stderr; with ``--json`` stdout holds one JSON object only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit._version import __version__
from edgekit.cli import terminal
from edgekit.cli.arguments import (
    IoLayout,
    NamedFile,
    as_json_option,
    bundle_argument,
    engine_option,
    int8_options,
    need_writable,
    once,
    shape_option,
    targets_option,
    threads_option,
)
from edgekit.errors import EdgeKitError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

VERBS = ("targets", "doctor", "check", "build", "inspect", "verify", "explain", "run", "bench", "export")
"""In the order of their use, which is that of the help."""
WRITERS = ("build", "export")
"""They write all of their output or none of it, and their error messages say so."""


class Verbs(click.Group):
    """Turns an error that the user can fix into one message and its exit code, without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

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
            goes_on = (
                "; nothing was written; run the same command again to continue"
                if ctx.invoked_subcommand == "build"
                else ""
            )
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


@main.command()
@as_json_option
def targets(as_json: bool) -> None:
    """List engines and device profiles.

    For a missing engine, shows the pip command that installs it.
    """
    from edgekit.commands import doctor

    rows = doctor.targets()
    terminal.answer(as_json, {"targets": rows}, doctor.targets_text(rows))


@main.command()
@as_json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Show this machine's engines, CPU, memory and governor."""
    from edgekit.commands import doctor as examine

    engines = examine.engines()
    found = examine.doctor(engines)
    terminal.answer(as_json, found, examine.doctor_text(found))
    ctx.exit(1 if any(engine.broken for engine in engines) else 0)


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@targets_option
@shape_option
@as_json_option
@click.pass_context
def check(
    ctx: click.Context,
    model: Path,
    targets: tuple[str, ...],
    shapes: tuple[tuple[str, Any], ...],
    as_json: bool,
) -> None:
    """List the nodes of MODEL that a target can't run or runs slowly.

    Nothing is compiled. Without -t, checks every target whose compiler is installed.
    """
    from edgekit import check as check_model
    from edgekit.findings import check_text, errors
    from edgekit.target.installed_profiles import profile_names

    fixed = once(shapes, "--shape")
    found = check_model(model, list(targets) or None, shapes=fixed)
    refused = bool(errors(found))
    text = check_text(model, targets or sorted(set(profile_names().values())), found, fixed)
    terminal.answer(as_json, {"ok": not refused, "findings": [f.as_json() for f in found]}, text)
    ctx.exit(1 if refused else 0)


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@targets_option
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Bundle file to write.")
@click.option(
    "--samples", metavar="PATH", help="Folder or glob of .npz or .npy files or, with a card, images."
)
@click.option(
    "--card", type=click.Path(path_type=Path), help="card.toml: pre- and post-processing of the model."
)
@shape_option
@click.option(
    "--io",
    "layouts",
    type=IoLayout(),
    multiple=True,
    help="Layout of inputs and outputs in the compiled file (tflite): nchw, nhwc or NAME=nhwc. Repeatable.",
)
@int8_options
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@as_json_option
@click.pass_context
def build(
    ctx: click.Context,
    /,
    model: Path,
    targets: tuple[str, ...],
    output: Path,
    precision: str,
    samples: str | None,
    card: Path | None,
    shapes: tuple[tuple[str, Any], ...],
    layouts: tuple[tuple[str, str], ...],
    quiet: bool,
    as_json: bool,
    **int8: Any,
) -> None:
    """Compile and verify MODEL for each target, write one bundle.

    Every variant is run and compared with the source model. Inaccurate or slower variants are rejected, and
    the report says by how much.
    """
    if not targets:
        raise UsageError(
            "no target given: use -t at least once, e.g. -t ort -t tflite (run edgekit targets for a list)"
        )
    need_writable(output, "the bundle")
    from edgekit import build as build_bundle
    from edgekit.cli.bundle_text import built_text

    bundle = build_bundle(
        model,
        targets=list(targets),
        precision=precision,
        samples=samples,
        card=card,
        shapes=once(shapes, "--shape"),
        io=once(layouts, "--io"),
        **int8,
        progress=(lambda stage: None) if quiet else terminal.stage,
    )
    bundle.save(output)
    if not quiet:
        click.echo("", err=True)
    terminal.answer(as_json, _bundle_json(bundle, output), built_text(bundle, output, quiet=quiet))
    ctx.exit(1 if any(v.rejected for v in bundle.variants) and precision != "auto" else 0)


@main.command()
@bundle_argument
@as_json_option
def inspect(bundle: Path, as_json: bool) -> None:
    """Show variants, sizes, evidence and provenance of BUNDLE."""
    from edgekit.cli.bundle_text import inspected_text

    with _open(bundle) as opened:
        opened.verify_entries()
        terminal.answer(as_json, _bundle_json(opened, bundle), inspected_text(opened, bundle))


@main.command()
@bundle_argument
@as_json_option
@click.pass_context
def verify(ctx: click.Context, bundle: Path, as_json: bool) -> None:
    """Run the golden vectors of BUNDLE on this machine's engines.

    Every output is compared with the reference output that is stored in the bundle.
    """
    from edgekit.commands import verify as verify_command

    with _open(bundle) as opened:
        checks = verify_command.verify_bundle(opened)
    ran = any(check.ran for check in checks)
    ok = ran and not any(check.failed for check in checks)
    found = {"ok": ok, "checks": [check.as_json() for check in checks]}
    terminal.answer(as_json, found, verify_command.render(checks))
    ctx.exit(0 if ok else 3 if not ran else 1)


@main.command()
@bundle_argument
@click.argument("target", required=False)
@threads_option
@as_json_option
def explain(bundle: Path, target: str | None, threads: int | None, as_json: bool) -> None:
    """Show time and accuracy loss by node, measured on this machine.

    TARGET is a target, a profile or a variant of BUNDLE. Default: all variants. Uses one thread unless
    --threads is given.
    """
    from edgekit.commands import explain as explain_command

    with _open(bundle) as opened:
        opened.verify_entries()
        found = explain_command.explain(opened, target, threads=threads or 1)
    terminal.answer(as_json, {"variants": found}, explain_command.render(found))


@main.command()
@bundle_argument
@click.option(
    "-i", "--input", "inputs", type=NamedFile(), multiple=True, help="File for an input. Repeatable."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@engine_option
@threads_option
@click.option("--strict", is_flag=True, help="Fail instead of falling back to another variant.")
@as_json_option
def run(
    bundle: Path,
    inputs: tuple[tuple[str, Path], ...],
    output: Path | None,
    engine: str | None,
    threads: int | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Run BUNDLE once, on arrays or an image.

    An input file is a .npy, an .npz with an array of the input's name or, if the bundle has a card, an image.
    """
    from edgekit.commands import run as run_command

    if output is not None:
        need_writable(output, "the outputs")
    with _open(bundle) as opened:
        result = run_command.run_files(
            opened, once(inputs, "-i"), engine=engine, threads=threads, strict=strict
        )
    if output is not None:
        run_command.save_npz(output, result.outputs)
    terminal.answer(as_json, result.as_json(), result.text())


@main.command()
@bundle_argument
@engine_option
@threads_option
@click.option("--seconds", type=float, default=3.0, show_default=True, help="Measuring time for each engine.")
@as_json_option
def bench(bundle: Path, engine: str | None, threads: int | None, seconds: float, as_json: bool) -> None:
    """Measure latency of BUNDLE on this machine.

    Reports load time, first run, p50/p95/p99 latency, and the overhead over calling the engine directly.
    """
    from edgekit.commands import bench as benching

    with _open(bundle) as opened:
        opened.verify_entries()  # a damaged entry is reported as such, not as a variant that does not run
    with _open(bundle) as opened:
        results = benching.bench_engines(opened, engine=engine, threads=threads, seconds=seconds)
    terminal.answer(as_json, {"results": results}, benching.render(results))


@main.command()
@bundle_argument
@click.argument("variant")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder to write into; created if missing.",
)
@click.option(
    "--app", is_flag=True, help="coreml, tflite: embed image input, labels and metadata from the card."
)
@as_json_option
def export(bundle: Path, variant: str, output: Path, app: bool, as_json: bool) -> None:
    """Write the engine files of VARIANT, for use without EdgeKit."""
    from edgekit.commands.export import export_variant

    with _open(bundle) as opened:
        written = export_variant(opened, variant, output, app=app)
    terminal.answer(
        as_json, {"files": [str(path) for path in written]}, "\n".join(f"  {path}" for path in written)
    )


def _open(path: Path) -> Bundle:
    from edgekit.bundle.bundle import Bundle

    return Bundle.open(path)


def _bundle_json(bundle: Bundle, path: Path) -> dict[str, Any]:
    manifest: Mapping[str, Any] = bundle.manifest
    return {
        "bundle": str(path),
        "sha256": bundle.digest,
        "size_bytes": path.stat().st_size,
        "manifest": manifest,
    }


@contextmanager
def _misuse_in_json() -> Iterator[None]:
    """For a usage error click prints the text and exits with 2; with ``--json`` this adds the object."""
    try:
        yield
    except click.ClickException as error:
        if "--json" in sys.argv:
            terminal.error_object("UsageError", error.format_message(), [])
        raise
