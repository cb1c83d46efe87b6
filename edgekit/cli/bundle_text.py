"""Output of ``edgekit build`` and ``edgekit inspect`` about a bundle, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from edgekit.bundle.advice import advice_lines
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import (
    NOT_PROVED,
    checked_evidence,
    kept_of,
    model_notes,
    render_bundle,
    shared_notes,
)
from edgekit.errors import printable
from edgekit.processing.generation import is_generation
from edgekit.system.cache_folder import cache_folder
from edgekit.system.formats.plain_text import duration, size
from edgekit.target.shape_range import RangeShapes, together
from edgekit.tensor_spec import Signature


def built_text(bundle: Bundle, path: Path, seconds: float, *, quiet: bool, verbose: bool) -> str:
    """Return the output of ``edgekit build``: what to use for each target, the files of tracebacks, the
    bundle's file, and commands to paste if a variant is usable. ``verbose`` adds the report."""
    file_name, bugs = quote(str(path)), faults(bundle)
    with checked_evidence(bundle.name):
        lines = advice_lines(bundle.variants)
        of_variants = shared_notes(kept_of(bundle.variants))
        unproved = {note: names for note, names in of_variants.items() if note.startswith(NOT_PROVED)}
        notes = len([*model_notes(bundle.manifest), *of_variants]) - len(unproved)
        away = sum(variant.usable and not variant.verified for variant in bundle.variants)
    rejected = sum(variant.rejected for variant in bundle.variants)
    counted = ((rejected, "rejected"), (away, "not run here"), (notes, "note" if notes == 1 else "notes"))
    if verbose or not lines:
        report = render_bundle(bundle.name, bundle.manifest, bundle.variants, verbose=verbose)
        lines += [*([""] if lines else []), report]
    else:
        lines += [f"  note      {', '.join(names)}  {note}" for note, names in unproved.items()]
        if counts := [f"{n} {what}" for n, what in counted if n]:
            lines.append(f"  {', '.join(counts)}: edgekit inspect {file_name}")
    if no_int8 := bundle.manifest["options"].get("no_int8"):
        lines.append(f"  skipped   int8: {no_int8}")
    lines += ["", *(f"  bug       {f['variant']}  {f['traceback']}: please report it" for f in bugs)]
    took = f"in {duration(seconds)}"
    lines.append(f"  {path}  {size(path.stat().st_size)}  {took}  sha256 {bundle.digest[:16]}...")
    is_usable = any(variant.usable for variant in bundle.variants)
    return "\n".join([*lines, *(_commands(bundle, path) if is_usable and not quiet else [])])


def _commands(bundle: Bundle, path: Path) -> list[str]:
    """Return commands that try the bundle, show it, and check it on a device."""
    name, page, card = quote(str(path)), quote(str(path.with_suffix(".html"))), bundle.card or {}
    kinds = {entry.get("kind") for entry in card.get("inputs", {}).values()} if card.get("task") else set()
    tried = f"bench {name}"
    if is_generation(card):
        tried = f"generate {name} -p Hello"
    elif "image" in kinds:
        tried = f"run {name} -i photo.jpg --draw drawn.jpg"
    elif "audio" in kinds:
        tried = f"run {name} -i recording.wav"
    commands = {"try": tried, "show": f"report {name} -o {page}", "ship": f"verify {name}"}
    if not any(variant.verified for variant in bundle.variants):
        del commands["try"]
    notes = {"ship": "  on the device, once it is copied there"}
    return [
        f"  {key}:{'':{6 - len(key)}} edgekit {command}{notes.get(key, '')}"
        for key, command in commands.items()
    ]


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
    with checked_evidence(bundle.name):
        advised = advice_lines(bundle.variants)
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
        *([*advised, ""] if advised else []),
        render_bundle(bundle.name, bundle.manifest, bundle.variants, verbose=verbose),
    ]
    for name in bundle.stages:
        stage = bundle.stage(name)
        report = render_bundle(stage.name, stage.manifest, stage.variants, verbose=verbose)
        lines += ["", f"  stage     {name}: {_title(stage)}", "", report]
    return "\n".join(lines)


def bundle_json(bundle: Bundle, path: Path) -> dict[str, Any]:
    """Return a written bundle's path, digest, size and manifest for ``--json``. The path may be a package."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {
        "bundle": str(path),
        "sha256": bundle.digest,
        "size_bytes": sum(file.stat().st_size for file in files),
        "manifest": bundle.manifest,
    }
