"""The verbs that take a bundle."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    NamedFile,
    VariantName,
    accelerator_option,
    as_json_option,
    bundle_argument,
    engine_option,
    need_writable,
    open_bundle,
    path_option,
    refuse_given,
    threads_option,
    variant_option,
    verbose_option,
)
from edgekit.cli.command_group import main
from edgekit.cli.device_verbs import device_options, need_device, on_device, sound_answer, verified_text
from edgekit.cli.release_group import need_documents, need_signature, signature_options
from edgekit.cli.request_options import once
from edgekit.errors import UsageError
from edgekit.system.formats.plain_text import size


@main.command()
@bundle_argument
@verbose_option
@as_json_option
def inspect(bundle: Path, verbose: bool, as_json: bool) -> None:
    """Show variants, sizes, evidence and provenance of a bundle."""
    from edgekit.cli.bundle_text import bundle_json, inspected_text

    with open_bundle(bundle) as opened:
        opened.verify_entries()
        text = inspected_text(opened, bundle, verbose=verbose)
        terminal.answer(as_json, bundle_json(opened, bundle), text)


@main.command()
@bundle_argument
@signature_options
@path_option(
    "--provenance",
    "documents",
    multiple=True,
    help="With --key: signed provenance of BUNDLE, from edgekit provenance; repeatable.",
)
@device_options
@as_json_option
@click.pass_context
def verify(
    ctx: click.Context,
    bundle: Path,
    keys: tuple[Path, ...],
    signature: Path | None,
    documents: tuple[Path, ...],
    device: str | None,
    merge: bool,
    as_json: bool,
) -> None:
    """Check a bundle's golden vectors, here or on a device.

    Every output is compared with the reference output that is stored in the bundle.
    """
    from edgekit.compiler.evaluate import verify_bundle as verify_command

    need_device(device, merge, {})
    signed = need_signature(bundle, keys, signature)
    need_documents(documents, keys, signed)
    if device is not None:
        measured = on_device(bundle, device, merge, "verify", {})
        rows = measured.results
        with sound_answer(device):
            device_text = verified_text(device, rows)
        words = [str(row["status"]).split(":")[0].split(" ")[0] for row in rows]
        ok = "verified" in words and "failed" not in words
        terminal.answer(as_json, {"ok": ok, "device": measured.device, "checks": rows}, device_text)
        ctx.exit(0 if ok else 1 if "failed" in words else 3)
    with open_bundle(bundle) as opened:
        checks = verify_command.verify_bundle(opened)
    ran = any(check.ran for check in checks)
    ok = ran and not any(check.failed for check in checks)
    document = {"ok": ok, "checks": [check.as_json() for check in checks]}
    text = verify_command.render(checks)
    if signed is not None:
        document["signed"] = {"key": signed.key.hint, "sha256": signed.sha256}
        text = f"  signed    by {signed.key.name}, key {signed.key.hint[:12]}\n\n{text}"
    terminal.answer(as_json, document, text)
    ctx.exit(0 if ok else 3 if not ran else 1)


@main.command()
@bundle_argument
@click.argument("target", required=False, type=VariantName(also_targets=True))
@variant_option
@threads_option
@path_option(
    "--against",
    "base",
    metavar="OTHER",
    help="Compare with this bundle. Shows what is slower or less accurate in BUNDLE.",
)
@path_option("--overlay", metavar="DIR", help="Also write node data for Model Explorer to this empty folder.")
@accelerator_option
@device_options
@as_json_option
def explain(
    bundle: Path,
    target: str | None,
    variant: str | None,
    threads: int | None,
    base: Path | None,
    overlay: Path | None,
    accelerator: str | None,
    device: str | None,
    merge: bool,
    as_json: bool,
) -> None:
    """Measure latency and accuracy loss by node.

    TARGET is a target, a profile or a variant of BUNDLE; --variant is a variant alone. Default: all
    variants. Uses one thread unless --threads is given. Nodes have the names of the source model.
    --accelerator shows its verdict, which nodes it runs, and which are wrong.
    """
    if target is not None and variant is not None:
        raise UsageError(f"give {target} or --variant {variant}, not both")
    from edgekit.compiler.explain import text as explain_text
    from edgekit.compiler.explain.diff import explain_diff
    from edgekit.compiler.explain.explain import explain as explained
    from edgekit.compiler.explain.overlay import write_overlays
    from edgekit.system.atomic_files import need_empty

    need_device(device, merge, {"--against": base, "--accelerator": accelerator, "--overlay": overlay})
    if base is not None and (accelerator is not None or overlay is not None):
        flag = "--overlay" if accelerator is None else "--accelerator"
        raise UsageError(f"{flag} does not combine with --against")
    if overlay is not None:
        need_empty(overlay)
    if device is not None:
        options = {"name": target, "variant": variant, "threads": threads or 1}
        measured = on_device(bundle, device, merge, "explain", options)
        with sound_answer(device):
            device_text = explain_text.render(measured.results)
        terminal.answer(as_json, {"device": measured.device, "variants": measured.results}, device_text)
        return
    with open_bundle(bundle) as opened:
        opened.verify_entries()
        if accelerator is not None:
            from edgekit.compiler.explain import accelerated

            copies = accelerated.explain_accelerated(
                opened, accelerator, target, variant=variant, threads=threads or 1
            )
            if overlay is not None:
                write_overlays(opened, overlay, copies)
            terminal.answer(as_json, {"copies": copies}, accelerated.render_accelerated(copies))
            return
        if base is None:
            explanations = explained(opened, target, variant=variant, threads=threads or 1)
            if overlay is not None:
                write_overlays(opened, overlay, explanations)
            terminal.answer(as_json, {"variants": explanations}, explain_text.render(explanations))
            return
        with open_bundle(base) as other:
            other.verify_entries()
            changes = explain_diff(other, opened, target, variant=variant, threads=threads or 1)
        text = explain_text.render_diff(changes, str(base), str(bundle))
        terminal.answer(as_json, {"base": str(base), "variants": changes}, text)


def _note(text: str) -> None:
    click.echo(f"  note      {text}", err=True)


@main.command()
@bundle_argument
@click.option(
    "-i", "--input", "inputs", type=NamedFile(), multiple=True, help="File for an input. Repeatable."
)
@click.option("--text", help="Text input, instead of -i, for a bundle whose card takes text.")
@path_option("-o", "--output", help="Write the outputs to this .npz file.")
@path_option(
    "--draw",
    "drawing",
    help="Write the image with its prediction to this .jpg, .png or .webp file; a video to this .mp4 file.",
)
@click.option(
    "--show",
    "shows",
    is_flag=True,
    help="Show the predictions in a window. Without a display, a video is written to drawn.mp4.",
)
@engine_option
@variant_option
@accelerator_option
@threads_option
@click.option("--strict", is_flag=True, help="Fail instead of falling back to another variant.")
@as_json_option
def run(
    bundle: Path,
    inputs: tuple[tuple[str, Path], ...],
    text: str | None,
    output: Path | None,
    drawing: Path | None,
    shows: bool,
    engine: str | None,
    variant: str | None,
    accelerator: str | None,
    threads: int | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Run a bundle on an image, a video, sound, texts or arrays.

    An input file is a .npy, an .npz with an array of the input's name or, if the bundle has a card, an image,
    a .wav or a .txt with one text a line. A model with one input needs no NAME. With -i - a speech model
    transcribes standard input while it comes: raw int16 samples, mono, at the model's rate. A video, or
    -i 0 for the first camera, needs --show or --draw FILE.mp4.
    """
    from edgekit.compiler.evaluate import run_bundle as run_command
    from edgekit.compiler.evaluate.live_sound import STANDARD_INPUT, run_live
    from edgekit.processing.drawing import check_drawing

    if ("", STANDARD_INPUT) in inputs:
        if len(inputs) > 1:
            raise UsageError("-i - is the only input of a run; leave the others out")
        refuse_given({"text", "output", "drawing", "accelerator"}, "does not go with -i -")
        with open_bundle(bundle) as opened:
            write = partial(click.echo, nl=False, err=as_json)
            live = run_live(opened, write, engine=engine, variant=variant, threads=threads, strict=strict)
        terminal.answer(as_json, live, run_command.ran_text(live["active"], live["fallbacks"]))
        return
    from edgekit.compiler.evaluate import live_pictures

    filmed = [path for _, path in inputs if live_pictures.is_live(path)]
    is_picture = drawing is not None and drawing.suffix.lower() != live_pictures.WRITTEN
    if filmed and (shows or (drawing is not None and not is_picture)):
        if len(inputs) > 1 or (shows and drawing is not None):
            raise UsageError("a video or a camera is the only input of a run; use --show or --draw FILE.mp4")
        refuse_given({"text", "output"}, "does not go with a video or a camera")
        if drawing is not None:
            need_writable(drawing, "the video")
        options: dict[str, Any] = {
            "engine": engine, "variant": variant, "threads": threads, "device": accelerator or "cpu",
        }  # fmt: skip
        with open_bundle(bundle) as opened:
            frames = live_pictures.run_frames(
                opened, filmed[0], drawing, _note, strict=strict or accelerator is not None, **options
            )
        terminal.answer(as_json, frames.as_json(), frames.text())
        return
    if filmed:
        raise UsageError(f"{filmed[0]} is a video or a camera: add --show, or --draw FILE.mp4 to write one")
    if shows:
        raise UsageError(
            "--show is for a video or a camera (-i film.mp4, -i 0); --draw FILE.jpg draws an image"
        )
    if output is not None:
        run_command.check_output(output)
        need_writable(output, "the outputs")
    if drawing is not None:
        check_drawing(drawing)
        need_writable(drawing, "the picture")
    with open_bundle(bundle) as opened:
        result = run_command.run_files(
            opened,
            once(inputs, "-i"),
            engine=engine,
            variant=variant,
            threads=threads,
            device=accelerator or "cpu",
            strict=strict or accelerator is not None,
            allow_split=not strict,
            text=text,
        )
    if output is not None:
        run_command.save_npz(output, result.outputs)
    if drawing is not None:
        run_command.draw_answer(drawing, result)
    terminal.answer(as_json, result.as_json(), result.text())


@main.command(writes=True)
@bundle_argument
@path_option("-o", "--output", required=True, help="HTML file to write.")
@click.option(
    "--samples",
    metavar="PATH",
    type=click.Path(),
    help="Folder or glob of images, recordings, texts or arrays: show the predictions of the variants.",
)
@path_option("--labelled", metavar="DIR", help="Folder of labelled samples: show the accuracy on them.")
@click.option("--explain", is_flag=True, help="Also measure latency and accuracy by node on this machine.")
@accelerator_option
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@as_json_option
def report(
    bundle: Path,
    output: Path,
    samples: str | None,
    labelled: Path | None,
    explain: bool,
    accelerator: str | None,
    opens: bool,
    as_json: bool,
) -> None:
    """Write a self-contained HTML report.

    What to use where and what it costs, every variant and candidate measured, and where it is from. The page
    needs no network. --accelerator shows its verdict, and which processor runs each node.
    """
    from edgekit.bundle.advice import advice
    from edgekit.report.page import need_page, write_report

    need_page(output)
    need_writable(output, "the page")
    with open_bundle(bundle) as opened:
        write_report(
            opened, output, samples=samples, labelled=labelled, explain=explain, accelerator=accelerator
        )
        first = advice(opened.manifest, opened.variants)
    text = "\n".join(
        [*(f"  {sentence}" for sentence in first), "", f"  {output}  {size(output.stat().st_size)}"]
    )
    terminal.answer(as_json, {"report": str(output), "advice": first}, text)
    if opens:
        import webbrowser  # here: takes 8 ms

        if webbrowser.open(output.resolve().as_uri()):
            return
        click.echo(f"no browser was found here; open {output} in one", err=True)
