"""Folder for a static host with a bundle, a page that checks and runs it, and its engine.

DIR/
    index.html page.css page.js media.js camera.js microphone.js microphone-worklet.js drawing.js timeline.js
                                        the page
    edgekit.js edgekit.d.ts session-worker.js session.js signature.js core.js files.js onnxruntime.js
    litert.js                           an ES module for other pages, its types, and the worker that computes
    edgekit.wasm                        libedgekit
    onnxruntime/ litert/                the engines of its variants: onnxruntime-web, LiteRT.js
    service-worker.js                   keeps these files in the browser
    model.edgekit                       the bundle
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import UsageError
from edgekit.native.support import described, predicts
from edgekit.system.atomic_files import need_empty, new_folder
from edgekit.web.engine import ENGINES, engine_files

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant

PAGE = Path(__file__).parent
FILES = (
    "camera.js",
    "core.js",
    "drawing.js",
    "edgekit.d.ts",
    "edgekit.js",
    "edgekit.wasm",
    "files.js",
    "index.html",
    "litert.js",
    "media.js",
    "microphone-worklet.js",
    "microphone.js",
    "onnxruntime.js",
    "package.json",
    "page.css",
    "page.js",
    "session-worker.js",
    "session.js",
    "signature.js",
    "timeline.js",
)
WORKER, BUNDLE, ADDRESSES = "service-worker.js", "model.edgekit", "files.js"
NOT_LOADED = ("edgekit.d.ts", "package.json")
"""Files that no page loads."""
PROVIDERS = '<meta name="providers" content="wasm">'
PROVIDERS_WITH_WEBGPU = '<meta name="providers" content="webgpu wasm">'
BUNDLE_LIMIT_BYTES = 512 << 20
"""Largest bundle that edgekit.js opens."""


class WebFolder(NamedTuple):
    """Written folder."""

    files: list[Path]
    variants: list[str]
    notes: list[str]


def write_web(
    bundle: Bundle, folder: Path, npm_packages: Sequence[Path] = (), *, webgpu: bool = False
) -> WebFolder:
    """Write the folder, whole or not at all.

    Args:
        bundle: To publish.
        folder: Destination; it must be missing or empty.
        npm_packages: Package files of engines; others come from the cache, or are fetched by npm.
        webgpu: Whether the page tries WebGPU before WebAssembly.

    Raises:
        UsageError: no variant runs in a page, the bundle is too large, the folder is not empty or cannot be
            written to, or a package file is another one.
        BundleError: an entry is damaged.
        MissingDependency: npm is needed and not installed.
        ToolchainError: npm failed.
    """
    running = [variant for variant in bundle.variants if _runs(variant, bundle)]
    variants = [variant.name for variant in running]
    if not variants:
        raise UsageError(
            f"{bundle.name} has no variant that a page runs; it has {described(bundle)}. "
            f"A page needs one for {' or '.join(ENGINES)} with golden vectors and their limits: "
            "build with -t ort. Nothing was written"
        )
    need_empty(folder)
    bundle.verify_entries()
    engines = engine_files(sorted({variant.target for variant in running}), npm_packages, webgpu)
    with new_folder(folder) as root:
        for name in FILES:
            shutil.copyfile(PAGE / name, root / name)
        if webgpu:
            html = (root / "index.html").read_text("utf-8")
            (root / "index.html").write_text(html.replace(PROVIDERS, PROVIDERS_WITH_WEBGPU), "utf-8")
        for name, content in engines.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(content)
        addresses = (root / ADDRESSES).read_text("utf-8").splitlines(keepends=True)
        (root / ADDRESSES).write_text("".join(line for line in addresses if _is_here(root, line)), "utf-8")
        bundle.save(root / BUNDLE)
        if (root / BUNDLE).stat().st_size > BUNDLE_LIMIT_BYTES:
            raise UsageError(
                f"{bundle.name} has more than {BUNDLE_LIMIT_BYTES} bytes, which a page does not open. "
                "Nothing was written"
            )
        cached = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        (root / WORKER).write_text(_worker(root, cached), "utf-8")
    files = [folder / name for name in sorted([*cached, WORKER])]
    return WebFolder(files, variants, list(_notes(bundle, variants)))


def _runs(variant: Variant, bundle: Bundle) -> bool:
    """Return whether a page may run a variant: it has an engine for it, and golden vectors can judge it."""
    accuracy = variant.evidence.get("accuracy")
    limits = accuracy if isinstance(accuracy, Mapping) else {}
    judged = all(isinstance(limits.get(spec.name), Mapping) for spec in bundle.outputs)
    engine = ENGINES.get(variant.target)
    fits = engine is not None and set(variant.files) == {engine.model} and "needs_isa" not in variant.options
    return variant.usable and fits and judged and bool(bundle.manifest["golden"])


def _notes(bundle: Bundle, variants: list[str]) -> Iterable[str]:
    others = [variant.name for variant in bundle.variants if variant.usable and variant.name not in variants]
    if others:
        yield f"not run in a page: {', '.join(others)}"
    if bundle.card is None:
        yield "the bundle has no card: the page checks engines, but predicts nothing"
    elif not predicts(bundle):
        yield "the card's inputs or task are not those of a page: it checks engines, but predicts nothing"


def _is_here(root: Path, line: str) -> bool:
    """Return whether a line of files.js names no file, or one that was written."""
    found = re.search(r"new URL\('\./([^']+)'", line)
    return found is None or (root / found[1]).is_file()


def _worker(folder: Path, names: list[str]) -> str:
    digests = {}
    for name in names:
        if name not in NOT_LOADED:
            digest = hashlib.sha256((folder / name).read_bytes()).digest()
            digests[name] = f"sha256-{base64.b64encode(digest).decode()}"
    version = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16]
    text = (PAGE / WORKER).read_text("utf-8")
    text = text.replace("const VERSION = '';", f"const VERSION = {json.dumps(version)};")
    return text.replace("const FILES = {};", f"const FILES = {json.dumps(digests, indent=2)};")
