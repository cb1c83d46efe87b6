"""Output of ``edgekit build`` and ``edgekit inspect`` about a bundle, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import render_bundle
from edgekit.errors import printable
from edgekit.processing.generation import is_generation
from edgekit.system.cache_folder import cache_folder
from edgekit.system.formats.plain_text import size
from edgekit.target.shape_range import RangeShapes, together
from edgekit.tensor_spec import Signature


def built_text(bundle: Bundle, path: Path, *, quiet: bool, verbose: bool) -> str:
    """Return the output of ``edgekit build``: the report, the files of tracebacks, the bundle's file, and
    the next step if a variant is usable."""
    file = f"  {path}  {size(path.stat().st_size)}  sha256 {bundle.digest[:16]}..."
    file_name = quote(str(path))
    verb = f"generate {file_name} -p Hello" if is_generation(bundle.card) else f"verify {file_name}"
    is_usable = any(variant.usable for variant in bundle.variants)
    following = [f"  next: edgekit {verb}, or copy it to the device"] if is_usable and not quiet else []
    report = render_bundle(bundle.name, bundle.manifest, bundle.variants, verbose=verbose)
    traces = [f"  bug       {f['variant']}  {f['traceback']}: please report it" for f in faults(bundle)]
    return "\n".join([report, "", *traces, file, *following])


def cascade_text(bundle: Bundle, path: Path) -> str:
    lines = [f"  stage     {name}  {_title(bundle.stage(name))}" for name in bundle.stages]
    first = f"  first     {_title(bundle)}"
    file = f"  {path}  {size(path.stat().st_size)}  sha256 {bundle.digest[:16]}..."
    return "\n".join([first, *lines, "", file, f"  next: edgekit verify {quote(str(path))}"])


def _title(bundle: Bundle) -> str:
    return str((bundle.card or {}).get("title", bundle.name))


def faults(bundle: Bundle) -> list[dict[str, str | None]]:
    """Return the variants that a new bundle lost to a bug: ``{variant, error, traceback}``.

    ``traceback`` is a path of this machine; None if it could not be written.
    """
    return [
        {
            "variant": variant.name,
            "error": fault["error"],
            "traceback": str(cache_folder() / fault["traceback"]) if fault["traceback"] else None,
        }
        for variant in bundle.variants
        if (fault := variant.evidence.get("fault"))
    ]


def _further(shapes: Sequence[Signature]) -> list[str]:
    if isinstance(shapes, RangeShapes):
        return [f"every size of {text}" for text in together(shapes)]
    return [", ".join(map(str, specs)) for specs, _ in shapes[-2::-1]]


def inspected_text(bundle: Bundle, path: Path, *, verbose: bool) -> str:
    source, made_by = bundle.manifest["source"], {"edgekit": bundle.manifest["edgekit"]}
    made_by |= bundle.manifest["tools"]
    lines = [
        f"  {path}  sha256 {bundle.digest}",
        f"  from      {source['file']}  opset {source['opset']}, {source['nodes']} nodes  "
        f"sha256 {source['sha256'][:16]}...",
        *([f"  fetched   {printable(str(source['repository']))}"] if "repository" in source else []),
        *(f"  input     {spec}" for spec in bundle.inputs),
        *(f"  or        {text}" for text in _further(bundle.shapes)),
        *(f"  output    {spec}" for spec in bundle.outputs),
        f"  built by  {', '.join(f'{tool} {version}' for tool, version in made_by.items())}",
        "",
        render_bundle(bundle.name, bundle.manifest, bundle.variants, verbose=verbose),
    ]
    for name in bundle.stages:
        stage = bundle.stage(name)
        report = render_bundle(stage.name, stage.manifest, stage.variants, verbose=verbose)
        lines += ["", f"  stage     {name}: {_title(stage)}", "", report]
    return "\n".join(lines)


def bundle_json(bundle: Bundle, path: Path) -> dict[str, Any]:
    """Return a written bundle's path, digest, size and manifest for ``--json``."""
    return {
        "bundle": str(path),
        "sha256": bundle.digest,
        "size_bytes": path.stat().st_size,
        "manifest": bundle.manifest,
    }
