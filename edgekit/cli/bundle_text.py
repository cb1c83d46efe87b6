"""What ``edgekit build`` and ``edgekit inspect`` print about a bundle, as text and as JSON."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from edgekit.formats.plain_text import size

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle


def built_text(bundle: Bundle, path: Path, *, quiet: bool) -> str:
    """What ``edgekit build`` prints: the report, the file, the next step where there is something to run."""
    file = f"  {path}  {size(path.stat().st_size)}  sha256 {bundle.digest[:16]}..."
    following = f"  next: edgekit verify {quote(str(path))}, or copy it to the device"
    nothing = quiet or not any(variant.usable for variant in bundle.variants)
    return "\n".join([bundle.report, "", file, *([] if nothing else [following])])


def inspected_text(bundle: Bundle, path: Path) -> str:
    """What ``edgekit inspect`` prints."""
    source, made_by = bundle.manifest["source"], {"edgekit": bundle.manifest["edgekit"]}
    made_by |= bundle.manifest["tools"]
    lines = [
        f"  {path}  sha256 {bundle.digest}",
        f"  from      {source['file']}  opset {source['opset']}, {source['nodes']} nodes  "
        f"sha256 {source['sha256'][:16]}...",
        *(f"  input     {spec}" for spec in bundle.inputs),
        *(f"  output    {spec}" for spec in bundle.outputs),
        f"  built by  {', '.join(f'{tool} {version}' for tool, version in made_by.items())}",
        "",
        bundle.report,
    ]
    return "\n".join(lines)


def bundle_json(bundle: Bundle, path: Path) -> dict[str, Any]:
    """The same for ``--json``."""
    return {
        "bundle": str(path),
        "sha256": bundle.digest,
        "size_bytes": path.stat().st_size,
        "manifest": bundle.manifest,
    }
