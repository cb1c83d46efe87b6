"""The command line: each verb parses, calls one public function and prints.

Exit codes: 0 done, 1 the answer is no, 2 wrong use or unusable input, 3 a needed engine or tool is missing.
Answers go to stdout, everything else to stderr; with ``--json`` stdout holds one object and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgekit._version import __version__
from edgekit.cli import terminal
from edgekit.cli.arguments import (
    EngineName,
    IoLayout,
    NamedFile,
    ProfileName,
    Shape,
    int8_options,
    need_writable,
    once,
)
from edgekit.errors import EdgeKitError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle

F = TypeVar("F", bound=Callable[..., Any])


VERBS = ("targets", "doctor", "check", "build", "inspect", "verify", "explain", "run", "bench", "export")
"""In the order of their use, which is that of the help."""
WRITERS = ("build", "export")
"""What they write is there whole, or not at all: an error of theirs says so."""


class Verbs(click.Group):
    """Turns an error that is the user's to mend into one message and its exit code, without a traceback."""

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
                "; nothing was written, the same command goes on" if ctx.invoked_subcommand == "build" else ""
            )
            code, kind, found, text = 130, "KeyboardInterrupt", [], f"stopped{goes_on}"
        except OSError as error:
            code, kind, found = 2, "OSError", []
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if ctx.invoked_subcommand in WRITERS and "nothing was written" not in text.lower():
            text += "\n  nothing was written"
        terminal.fail(kind, text, found, as_json="--json" in sys.argv)
        raise click.exceptions.Exit(code)


def as_json_option(verb: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout; logs on stderr.")(
        verb
    )


bundle_argument = click.argument("bundle", type=click.Path(path_type=Path))
targets_option = click.option(
    "-t",
    "--target",
    "targets",
    type=ProfileName(),
    multiple=True,
    help="A target or a device profile; repeatable.",
)
shape_option = click.option(
    "--shape", "shapes", type=Shape(), multiple=True, help="The static shape of an input; repeatable."
)
engine_option = click.option(
    "--engine", type=EngineName(), help="The target whose engine to use; the best that works otherwise."
)
threads_option = click.option("--threads", type=click.IntRange(min=1), help="Threads for one inference.")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgekit")
def main() -> None:
    """One trained model, verified on every edge engine, in one bundle."""
    # Before numpy is loaded: the quantizer's products are small, and OpenBLAS's other threads spin between.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@main.command()
@as_json_option
def targets(as_json: bool) -> None:
    """List engines and device profiles, and how to get what is missing."""
    from edgekit.commands import doctor

    rows = doctor.targets()
    terminal.answer(as_json, {"targets": rows}, doctor.targets_text(rows))


@main.command()
@as_json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Examine this machine: engines, CPU features, memory, clocks."""
    from edgekit.commands import doctor as examine

    found = examine.doctor()
    terminal.answer(as_json, found, examine.doctor_text(found))
    if any(row["status"].startswith("broken") for row in found["engines"]):
        ctx.exit(1)


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
    """Say what will not run or is slow, node by node, before compiling.

    Without -t every target is asked whose compiler is installed.
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
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The bundle to write.")
@click.option("--samples", metavar="PATH", help="Folder or glob of .npz, .npy or, with a card, pictures.")
@click.option(
    "--card", type=click.Path(path_type=Path), help="card.toml: how pictures go in and answers come out."
)
@shape_option
@click.option(
    "--io",
    "layouts",
    type=IoLayout(),
    multiple=True,
    help="How artifacts store inputs and outputs, for export: nchw, nhwc or NAME=nhwc; repeatable.",
)
@int8_options
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer.")
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
    """Compile MODEL for targets, prove each result, pack one bundle.

    Each result is run and compared with the source model. What is wrong or slower is left out, with the
    figure.
    """
    if not targets:
        raise UsageError(
            "no target is given: use -t once or more, e.g. -t ort -t tflite (edgekit targets lists them)"
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
    ctx.exit(
        1 if any(v.status.startswith("rejected") for v in bundle.variants) and precision != "auto" else 0
    )


@main.command()
@bundle_argument
@as_json_option
def inspect(bundle: Path, as_json: bool) -> None:
    """Show a bundle's variants, sizes, evidence and provenance."""
    from edgekit.cli.bundle_text import inspected_text

    with _open(bundle) as opened:
        opened.verify_entries()
        terminal.answer(as_json, _bundle_json(opened, bundle), inspected_text(opened, bundle))


@main.command()
@bundle_argument
@as_json_option
@click.pass_context
def verify(ctx: click.Context, bundle: Path, as_json: bool) -> None:
    """Run BUNDLE's golden vectors again, on this machine's engines."""
    from edgekit.commands.verify import verify_bundle
    from edgekit.formats.plain_text import table

    with _open(bundle) as opened:
        checks = verify_bundle(opened)
    ran = [c for c in checks if not c.status.startswith("not run")]
    ok = bool(ran) and not any(c.failed for c in ran)
    found = [
        {
            "variant": c.variant,
            "status": c.status,
            "outputs": {name: error.as_json() for name, error in c.outputs.items()},
        }
        for c in checks
    ]
    lines = table(("variant", "on this machine"), [(c.variant, c.status) for c in checks])
    if not ran:
        lines.append("  none of the bundle's engines is installed here (edgekit targets lists the pip lines)")
    terminal.answer(as_json, {"ok": ok, "checks": found}, "\n".join(lines))
    ctx.exit(0 if ok else 3 if not ran else 1)


@main.command()
@bundle_argument
@click.argument("target", required=False)
@threads_option
@as_json_option
def explain(bundle: Path, target: str | None, threads: int | None, as_json: bool) -> None:
    """Say where time and accuracy went, node by node.

    TARGET: a target, a profile or a variant of BUNDLE; all of them without it. Measured on this machine,
    on one thread where --threads does not say more.
    """
    from edgekit.commands import explain as explain_command

    with _open(bundle) as opened:
        opened.verify_entries()
        found = explain_command.explain(opened, target, threads=threads or 1)
    terminal.answer(as_json, {"variants": found}, explain_command.render(found))


@main.command()
@bundle_argument
@click.option("-i", "--input", "inputs", type=NamedFile(), multiple=True, help="An input; repeatable.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@engine_option
@threads_option
@click.option("--strict", is_flag=True, help="Fail where another engine would have answered.")
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
    """Run BUNDLE once, on arrays or a picture.

    An input is a .npy, an .npz that has it, or, with a card, a picture.
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
@click.option("--seconds", type=float, default=3.0, show_default=True, help="Time for each engine.")
@as_json_option
def bench(bundle: Path, engine: str | None, threads: int | None, seconds: float, as_json: bool) -> None:
    """Time BUNDLE on this machine, and what the runtime adds.

    Told are loading, the first run, p50, p95 and p99 of those after it, and the ratio to the bare engine.
    """
    from edgekit.commands import bench as benching

    with _open(bundle) as opened:
        opened.verify_entries()  # a damaged entry is the answer, not a variant that does not run
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
    help="The folder to write into; made if absent.",
)
@click.option("--app", is_flag=True, help="coreml, tflite: image input, labels ... inside, from the card.")
@as_json_option
def export(bundle: Path, variant: str, output: Path, app: bool, as_json: bool) -> None:
    """Write the vendor's files of VARIANT, for use without our runtime."""
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
    """A flag or argument that does not fit: click prints the usage and ends with 2; the object is ours."""
    try:
        yield
    except click.ClickException as error:
        if "--json" in sys.argv:
            terminal.error_object("UsageError", error.format_message(), [])
        raise
