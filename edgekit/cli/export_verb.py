"""The verb ``export``: a bundle's files for others' programs."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option, bundle_argument, open_bundle, path_option
from edgekit.cli.command_group import main
from edgekit.errors import UsageError


@main.command(writes=True)
@bundle_argument
@click.argument("variant", required=False)
@path_option("-o", "--output", help="Folder to write into; created if missing.")
@path_option(
    "--triton",
    metavar="DIR",
    help="Write a model repository for NVIDIA Triton, with VARIANT or all that Triton can run.",
)
@path_option(
    "--package",
    metavar="DIR",
    help="Write a model package for ONNX Runtime, which runs the variant that the build advises.",
)
@path_option(
    "--deepstream",
    metavar="DIR",
    help="Write a detector and its configuration for NVIDIA DeepStream's Gst-nvinfer.",
)
@path_option(
    "--web",
    metavar="DIR",
    help="Write a folder for a static host: a page that checks the bundle and runs it in the browser.",
)
@path_option(
    "--npm-package",
    "npm_packages",
    multiple=True,
    metavar="FILE",
    help="With --web: package file of an engine, instead of the one that npm fetches. Repeatable.",
)
@click.option(
    "--webgpu", is_flag=True, help="With --web: try the GPU by WebGPU first. The folder has 27 MB more."
)
@click.option(
    "--app",
    type=click.Choice(["android", "ios", "cpp"]),
    help="Write a project that runs the bundle by libedgekit, for Android Studio, Xcode or CMake.",
)
@click.option(
    "--metadata", is_flag=True, help="coreml, tflite: embed image input, labels and metadata from the card."
)
@click.option(
    "--npu",
    "npus",
    multiple=True,
    metavar="CHIP",
    help="tflite: compile for a phone's NPU too. Example: 'Qualcomm SM8650'. Repeatable.",
)
@as_json_option
def export(
    bundle: Path,
    variant: str | None,
    output: Path | None,
    triton: Path | None,
    package: Path | None,
    deepstream: Path | None,
    web: Path | None,
    npm_packages: tuple[Path, ...],
    webgpu: bool,
    app: str | None,
    metadata: bool,
    npus: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write engine files, an app, a web page or a server's files.

    Engine files are for use without EdgeKit, named by model and variant. A README beside them has the
    settings that they were verified with, where the engine's defaults compute something else.
    """
    from edgekit.release.export.export import README, export_variant

    if [output, triton, package, deepstream, web].count(None) != 4:
        raise UsageError("give one of -o DIR, --triton DIR, --package DIR, --deepstream DIR and --web DIR")
    if (app is not None or metadata) and (output is None or (app is not None and metadata)):
        raise UsageError("--app and --metadata go with -o, one of them")
    if npus and (output is None or app is not None):
        raise UsageError("--npu goes with -o, and not with --app")
    if (npm_packages or webgpu) and web is None:
        raise UsageError("--npm-package and --webgpu go with --web")
    if web is not None:
        if variant is not None:
            raise UsageError("--web takes no VARIANT: the page chooses one, as a device does")
        _export_web(bundle, web, npm_packages, webgpu, as_json)
        return
    if package is not None:
        if variant is not None:
            raise UsageError("--package takes no VARIANT: the engine chooses among all")
        _export_package(bundle, package, as_json)
        return
    if deepstream is not None:
        if variant is None:
            raise UsageError("--deepstream writes one variant; give VARIANT (edgekit inspect lists them)")
        _export_deepstream(bundle, variant, deepstream, as_json)
        return
    if triton is not None:
        from edgekit.release.export.export_triton import export_triton

        with open_bundle(bundle) as opened:
            files = [str(path) for path in export_triton(opened, triton, [variant] if variant else [])]
        terminal.answer(as_json, {"files": files}, "\n".join(f"  {path}" for path in files))
        return
    if app is not None and output is not None:
        _export_app(bundle, app, output, variant, as_json)
        return
    if variant is None or output is None:
        raise UsageError(
            "no variant given; give VARIANT, or --triton DIR for all (edgekit inspect lists them)"
        )
    with open_bundle(bundle) as opened:
        written = [
            str(path) for path in export_variant(opened, variant, output, metadata=metadata, npus=npus)
        ]
    readme = next((path for path in written if path.endswith(README)), None)
    lines = [f"  {path}" for path in written]
    if readme is not None:
        lines += ["", f"  note      verified with settings that are not the engine's defaults: see {readme}"]
    terminal.answer(as_json, {"files": written, "readme": readme}, "\n".join(lines))


def _export_package(bundle: Path, folder: Path, as_json: bool) -> None:
    from edgekit.release.export.export_package import export_package

    with open_bundle(bundle) as opened:
        written = export_package(opened, folder)
    size = sum(path.stat().st_size for path in written.files)
    first, *others = written.variants
    lines = [f"  {folder}   {len(written.files)} files, {size / 1e6:.1f} MB"]
    lines += [f"  order     {first} first, which ONNX Runtime runs; then {', '.join(others) or 'none'}"]
    lines += [f"  note      {name} is left out: {reason}" for name, reason in written.left_out.items()]
    lines += ["", f"  next: edgekit release sign {folder} --private-key KEY.pem"]
    document = {
        "files": [str(path) for path in written.files],
        "variants": written.variants,
        "left_out": written.left_out,
    }
    terminal.answer(as_json, document, "\n".join(lines))


def _export_deepstream(bundle: Path, variant: str, folder: Path, as_json: bool) -> None:
    from edgekit.release.export.export_deepstream import export_deepstream

    with open_bundle(bundle) as opened:
        files, notes = export_deepstream(opened, variant, folder)
    lines = [f"  {path}" for path in files] + [f"  note      {note}" for note in notes]
    lines += ["", "  next: set config-file-path of nvinfer to config_infer.txt; it was not run on DeepStream"]
    terminal.answer(as_json, {"files": [str(path) for path in files], "notes": notes}, "\n".join(lines))


def _export_app(bundle: Path, platform: str, folder: Path, variant: str | None, as_json: bool) -> None:
    from edgekit.native.project import write_project

    with open_bundle(bundle) as opened:
        project = write_project(opened, platform, folder, variant)
    lines = [f"  {folder}   {len(project.files)} files", f"  runs      {', '.join(project.variants)}"]
    lines += [f"  note      {note}" for note in project.notes]
    lines += ["", f"  next: {project.next_step}"]
    document = {
        "files": [str(path) for path in project.files],
        "variants": project.variants,
        "notes": project.notes,
    }
    terminal.answer(as_json, document, "\n".join(lines))


def _export_web(
    bundle: Path, folder: Path, npm_packages: tuple[Path, ...], webgpu: bool, as_json: bool
) -> None:
    from edgekit.web.folder import write_web

    with open_bundle(bundle) as opened:
        web = write_web(opened, folder, npm_packages, webgpu=webgpu)
    size = sum(path.stat().st_size for path in web.files)
    lines = [
        f"  {folder}   {len(web.files)} files, {size / 1e6:.1f} MB",
        f"  runs      {', '.join(web.variants)}",
    ]
    lines += [f"  note      {note}" for note in web.notes]
    lines += ["", f"  next: python -m http.server -d {folder}, and open http://localhost:8000"]
    document = {"files": [str(path) for path in web.files], "variants": web.variants, "notes": web.notes}
    terminal.answer(as_json, document, "\n".join(lines))
