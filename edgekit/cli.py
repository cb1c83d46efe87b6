"""The command line: each verb parses, calls one public function and prints.

Exit codes: 0 done, 1 the answer is no, 2 wrong use or unusable input, 3 a needed engine or tool is missing.
Answers go to stdout, everything else to stderr; with ``--json`` stdout holds one object and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgekit._version import __version__
from edgekit.arguments import IoLayout, NamedFile, ProfileName, Shape, int8_options, need_writable, once
from edgekit.errors import EdgeKitError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.pipeline import Stage

F = TypeVar("F", bound=Callable[..., Any])


class Verbs(click.Group):
    """Turns an error that is the user's to mend into one message and its exit code, without a traceback."""

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
        if "--json" in sys.argv:
            _echo_error(kind, text, found)
        click.echo(f"{click.style('error:', fg='red')} {text}", err=True, color=_colour(sys.stderr))
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
    "--engine", help="The target whose engine to use; the best that works otherwise."
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
    """List engines and profiles: what is installed, and the pip line for what is not."""
    from edgekit import doctor, report

    rows = doctor.targets()
    lines = []
    for row in rows:
        state = row["version"] or (f"missing: {row['install']}" if row["install"] else row["status"])
        lines += [(row["target"], title, profile, state) for profile, title in row["profiles"].items()]
    _answer(as_json, {"targets": rows}, "\n".join(report.table(("target", "device", "-t", "engine"), lines)))


@main.command()
@as_json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Examine this machine: engines made to run, CPU features, memory, clocks."""
    from edgekit import doctor as examine
    from edgekit.report import table

    found = examine.doctor()
    engines = [
        (
            row["target"],
            row["version"] or "",
            row["status"] if not row["install"] else f"missing: {row['install']}",
            f"{row['seconds']:.2f} s" if row["seconds"] is not None else "-",
        )
        for row in found["engines"]
    ]
    machine = f"{found['cpu']}, {found['cores']} cores, {' '.join(found['features']) or 'features unknown'}"
    memory = f"{found['memory_mb']} MiB" if found["memory_mb"] else "unknown"
    lines = [
        *table(("engine", "version", "state", "import"), engines),
        "",
        *(f"  tools     {t['tool']}: {t['found'] or 'missing'}; {t['purpose']}" for t in found["tools"]),
        f"  cpu       {machine}",
        f"  memory    {memory}   governor {found['governor'] or 'unknown'}",
        f"  python    {found['python']} on {found['system']}   edgekit {found['edgekit']}",
        f"  cache     {found['cache']}",
        *(f"  warning   {warning}" for warning in found["warnings"]),
    ]
    _answer(as_json, found, "\n".join(lines))
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
    """Say what will not run or will leave the fast path, node by node, before compiling."""
    from edgekit import check as check_model
    from edgekit.findings import as_lines, errors

    found = check_model(model, list(targets) or None, shapes=once(shapes, "--shape"))
    refused = errors(found)
    lines = []
    for name in dict.fromkeys(f.target for f in found):
        lines += [f"  {name}", *as_lines([f for f in found if f.target == name], indent="    ")]
    if refused:
        blocked = ", ".join(sorted({f.target for f in refused}))
        lines.append(f"  {model.name} can't be built for {blocked}")
    else:
        lines.append(f"  {model.name} can be built" + (f" for {', '.join(targets)}" if targets else ""))
    _answer(as_json, {"ok": not refused, "findings": [f.as_json() for f in found]}, "\n".join(lines))
    ctx.exit(1 if refused else 0)


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@targets_option
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The bundle to write.")
@click.option("--samples", help="Folder or glob of .npz, .npy or, with a card, pictures.")
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
    """Convert MODEL for every target, prove each result by running it, and pack them into one bundle."""
    if not targets:
        raise UsageError(
            "no target is given: use -t once or more, e.g. -t ort -t tflite (edgekit targets lists them)"
        )
    need_writable(output, "the bundle")
    from edgekit import build as build_bundle
    from edgekit.report import size

    bundle = build_bundle(
        model,
        targets=list(targets),
        precision=precision,
        samples=samples,
        card=card,
        shapes=once(shapes, "--shape"),
        io=once(layouts, "--io"),
        **int8,
        progress=(lambda stage: None) if quiet else _show_stage,
    )
    bundle.save(output)
    if not quiet:
        click.echo("", err=True)
    text = f"{bundle.report}\n\n  {output}  {size(output.stat().st_size)}  sha256 {bundle.digest[:16]}..."
    following = f"\n  next: edgekit verify {output}, or copy it to the device"
    _answer(as_json, _bundle_json(bundle, output), text + ("" if quiet else following))
    ctx.exit(
        1 if any(v.status.startswith("rejected") for v in bundle.variants) and precision != "auto" else 0
    )


@main.command()
@bundle_argument
@as_json_option
def inspect(bundle: Path, as_json: bool) -> None:
    """Show a bundle's variants, sizes, evidence and provenance."""
    with _open(bundle) as opened:
        opened.verify_entries()
        source = opened.manifest["source"]
        tools = "  ".join(f"{tool} {version}" for tool, version in opened.manifest["tools"].items())
        lines = [
            f"  {bundle}  sha256 {opened.digest}",
            f"  from      {source['file']}  opset {source['opset']}, {source['nodes']} nodes  "
            f"sha256 {source['sha256'][:16]}...",
            *(f"  input     {spec}" for spec in opened.inputs),
            *(f"  output    {spec}" for spec in opened.outputs),
            f"  made by   edgekit {opened.manifest['edgekit']}  {tools}",
            "",
            opened.report,
        ]
        _answer(as_json, _bundle_json(opened, bundle), "\n".join(lines))


@main.command()
@bundle_argument
@as_json_option
@click.pass_context
def verify(ctx: click.Context, bundle: Path, as_json: bool) -> None:
    """Re-run the golden vectors of BUNDLE on the engines of this machine."""
    from edgekit.golden import verify_bundle
    from edgekit.report import table

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
    _answer(as_json, {"ok": ok, "checks": found}, "\n".join(lines))
    ctx.exit(0 if ok else 3 if not ran else 1)


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
    """Run BUNDLE once. An input is a .npy, an .npz that has it, or, with a card, a picture."""
    from edgekit import running

    if output is not None:
        need_writable(output, "the outputs")
    with _open(bundle) as opened:
        result = running.run_files(opened, once(inputs, "-i"), engine=engine, threads=threads, strict=strict)
    if output is not None:
        running.save_npz(output, result.outputs)
    _answer(as_json, result.as_json(), result.text())


@main.command()
@bundle_argument
@engine_option
@threads_option
@click.option("--seconds", type=float, default=3.0, show_default=True, help="Time for each engine.")
@as_json_option
def bench(bundle: Path, engine: str | None, threads: int | None, seconds: float, as_json: bool) -> None:
    """Time BUNDLE on this machine: load, first run, p50/p95/p99, ratio to the bare engine."""
    from edgekit import bench as benching

    with _open(bundle) as opened:
        results = benching.bench_engines(opened, engine=engine, threads=threads, seconds=seconds)
    _answer(as_json, {"results": results}, benching.render(results))


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
    """Write the raw vendor files of VARIANT, for those who don't use EdgeKit's runtime."""
    from edgekit.export import export_variant

    with _open(bundle) as opened:
        written = export_variant(opened, variant, output, app=app)
    _answer(as_json, {"files": [str(path) for path in written]}, "\n".join(f"  {path}" for path in written))


def _open(path: Path) -> Bundle:
    from edgekit.bundle import Bundle

    return Bundle.open(path)


def _bundle_json(bundle: Bundle, path: Path) -> dict[str, Any]:
    manifest: Mapping[str, Any] = bundle.manifest
    return {
        "bundle": str(path),
        "sha256": bundle.digest,
        "size_bytes": path.stat().st_size,
        "manifest": manifest,
    }


def _show_stage(stage: Stage) -> None:
    """One line a finished stage; on a terminal, the running one is shown until it ends."""
    if stage.seconds is None:
        if sys.stderr.isatty():
            click.echo(f"  {stage.name:<10} {stage.detail[:78]:<78} ...\r", err=True, nl=False)
        return
    click.echo(f"  {stage.name:<10} {stage.detail:<78} {stage.seconds:5.1f} s", err=True)


@contextmanager
def _misuse_in_json() -> Iterator[None]:
    """A flag or argument that does not fit: click prints the usage and ends with 2; the object is ours."""
    try:
        yield
    except click.ClickException as error:
        if "--json" in sys.argv:
            _echo_error("UsageError", error.format_message(), [])
        raise


def _echo_error(kind: str, message: str, found: Sequence[Any]) -> None:
    click.echo(json.dumps({"error": {"kind": kind, "message": message, "findings": found}}, indent=2))


def _answer(as_json: bool, found: Mapping[str, Any], text: str) -> None:
    click.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) if as_json else text)


def _colour(stream: Any) -> bool:
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ
