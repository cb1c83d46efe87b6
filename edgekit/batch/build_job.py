"""One build on a worker: this process, another one, or another machine.

What it needs travels by path or URL, what it made lies in the catalogue's folder when it returns, and it
returns one row of the catalogue, whatever happened: exceptions do not travel.

The key of a build is a hash of everything that it depends on. The same key gives the same bundle, except
measured times. Times are stored on the machine that measured them (docs/decisions/0006).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypedDict

from edgekit._version import __version__
from edgekit.batch.matrix import MatrixBuild
from edgekit.batch.stored_files import (
    Folder,
    fetch_card,
    fetch_model,
    fetch_samples,
    model_files,
    sample_files,
)
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import parse_status
from edgekit.compiler.sandbox import public
from edgekit.compiler.sandbox.limits import MEMORY_MB
from edgekit.errors import BundleError, EdgeKitError, UsageError, reason_of
from edgekit.system.formats import strict_json
from edgekit.system.formats.json_schema import (
    Check,
    ManifestError,
    exactly,
    list_of,
    nothing_or,
    record,
    text,
    text_that,
    whole,
)
from edgekit.system.regular_file import sha256_of
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Json

RECORDS = ".records"
"""Folder of the catalogue that says which key each bundle was built from."""
ENDED = "its process was killed by SIGKILL"
"""Said of a model's process that somebody else ended: the system, if memory is short."""


class Job(NamedTuple):
    """Build job for a worker.

    Attributes:
        output: Folder or URL of the catalogue, absolute.
        tools: Required package versions of the worker: other versions produce other bytes.
        memory_mb: Memory limit of the model's process in MB. None means a limit by the model's size.
    """

    build: MatrixBuild
    key: str
    output: str
    tools: Mapping[str, str]
    memory_mb: float | None = None


class VariantRow(TypedDict):
    """A variant in the catalogue's table."""

    name: str
    status: str
    size_bytes: int
    p50_ms: float | None


class CatalogueRow(TypedDict):
    """A build in the catalogue's table.

    Attributes:
        state: ``built``, ``kept`` from an earlier run, ``failed``, or ``lost``: worth another try.
        error: Its kind and text, or None.
    """

    name: str
    model: str
    targets: list[str]
    precision: str
    samples: str
    key: str
    state: str
    bundle: str | None
    sha256: str
    size_bytes: int
    variants: list[VariantRow]
    seconds: float
    error: dict[str, str] | None


def run_job(job: Job) -> CatalogueRow:
    """Build, write the bundle and then its record into the catalogue, and say what came out."""
    started = time.monotonic()
    row = empty_row(job.build, job.key)
    try:
        with TemporaryDirectory(prefix="edgekit-") as folder, _memory_limit(job.memory_mb):
            _need_tools(job.tools)
            bundle = _built(job.build, Path(folder))
            bundle_path = bundle.save(Path(folder) / "made.edgekit")
            name = row["bundle"] = f"{job.build.name}.edgekit"
            row["sha256"], row["size_bytes"] = sha256_of(bundle_path), bundle_path.stat().st_size
            row["variants"] = variant_rows(bundle)
            row["seconds"] = round(time.monotonic() - started, 1)
            row["state"] = "built"
            output = Folder(job.output)
            output.take(name, bundle_path)
            output.write(record_name(job.key), strict_json.encode(dict(row)))
    except EdgeKitError as problem:
        kind = type(problem).__name__
        return failed_row(job, kind, str(problem), "lost" if ENDED in str(problem) else "failed")
    except Exception as problem:  # a bug, or a store's own error: one build's, and not the catalogue's
        return failed_row(job, type(problem).__name__, reason_of(problem))
    return row


def failed_row(job: Job, kind: str, message: str, state: str = "failed") -> CatalogueRow:
    """Return the row of a build that produced no bundle."""
    return {**empty_row(job.build, job.key), "state": state, "error": {"kind": kind, "message": message}}


def empty_row(build: MatrixBuild, key: str) -> CatalogueRow:
    return {
        "name": build.name, "model": build.model.name, "targets": list(build.targets),
        "precision": build.precision, "samples": build.samples, "key": key, "state": "failed",
        "bundle": None, "sha256": "", "size_bytes": 0, "variants": [], "seconds": 0.0, "error": None,
    }  # fmt: skip


def record_name(key: str) -> str:
    return f"{RECORDS}/{key}.json"


def variant_rows(bundle: Bundle) -> list[VariantRow]:
    return [
        {
            "name": variant.name,
            "status": variant.status,
            "size_bytes": int(variant.evidence.get("size_bytes") or 0),
            "p50_ms": (variant.evidence.get("timing") or {}).get("p50_ms"),
        }
        for variant in bundle.variants
    ]


def _built(build: MatrixBuild, folder: Path) -> Bundle:
    card = build.model.card
    options: dict[str, Any] = dict(build.options)
    return public.build(
        fetch_model(build.model.source, folder / "model"),
        targets=list(build.targets),
        precision=build.requested,
        samples=None if build.source is None else fetch_samples(build.source, folder / "samples"),
        card=None if card is None else fetch_card(card, folder / "card"),
        shapes=dict(build.model.shapes) or None,
        **options,
    )


def _need_tools(expected: Mapping[str, str]) -> None:
    """Check that the installed tool versions are those of the machine that requested the catalogue. Raises
    UsageError if they differ."""
    installed = tool_versions()
    other = [
        f"{name} {installed.get(name, 'missing')} instead of {expected.get(name, 'none')}"
        for name in sorted({*installed, *expected})
        if installed.get(name) != expected.get(name)
    ]
    if other:
        raise UsageError(
            f"this worker would build different bytes: it has {', '.join(other)}; install the same versions"
        )


@contextlib.contextmanager
def _memory_limit(memory_mb: float | None) -> Iterator[None]:
    before = os.environ.get(MEMORY_MB)
    if memory_mb is not None:
        os.environ[MEMORY_MB] = f"{memory_mb:g}"
    try:
        yield
    finally:
        if before is not None:
            os.environ[MEMORY_MB] = before
        elif memory_mb is not None:
            os.environ.pop(MEMORY_MB, None)


def _number(value: Json, location: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise ManifestError(f"{location} is not a number of milliseconds or seconds")


def _is_file_name(name: str) -> bool:
    return bool(name) and not set(name) & {"/", "\\", "\0"} and name not in (".", "..")


def _is_status(status: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(parse_status(status))
    return False


_RECORD: Check = record(
    {
        "name": text, "model": text, "targets": list_of(text, 1000), "precision": text, "samples": text,
        "key": text, "state": exactly("built"), "bundle": text_that(_is_file_name, "the name of a file"),
        "sha256": text, "size_bytes": whole(0), "seconds": _number, "error": exactly(None),
        "variants": list_of(record({
            "name": text, "status": text_that(_is_status, "a status"), "size_bytes": whole(0),
            "p50_ms": nothing_or(_number),
        }), 10_000),
    }
)  # fmt: skip
"""A row that :func:`run_job` wrote. The catalogue's folder may be one that others write to."""


def parse_record(content: bytes | None, key: str) -> CatalogueRow | None:
    """Return the row that an earlier run recorded for a key, or None if the record is missing, malformed or
    of another key."""
    if content is None:
        return None
    try:
        entry: Json = strict_json.decode(content, "record", len(content))
    except strict_json.JsonError:
        return None
    try:
        _RECORD(entry, "record")
    except ManifestError:
        return None
    if entry["key"] != key:
        return None
    row: CatalogueRow = entry
    return row


def need_bundle(row: CatalogueRow, output: Folder) -> None:
    """Check that the bundle of a worker's row exists in the output and is what the worker wrote. Raises
    BundleError if it is not."""
    assert row["bundle"] is not None
    if not output.holds(row["bundle"], row["size_bytes"], row["sha256"]):
        raise BundleError(
            f"{output.path(row['bundle'])} is not what the worker wrote; use an output that workers and this "
            "machine share: a URL, or a folder on a shared disk"
        )


FORMAT = 1
"""Rises when what goes into a key changes."""


class ContentKeys:
    """Keys of builds; each file is read once."""

    def __init__(self) -> None:
        self._model = lru_cache(None)(_model_digest)
        self._card = lru_cache(None)(_card_digest)
        self._samples = lru_cache(None)(_samples_digest)
        self._tools = tool_versions()

    def key(self, build: MatrixBuild) -> str:
        facts: Json = [
            FORMAT,
            __version__,
            self._tools,
            self._model(build.model.source),
            None if build.model.card is None else self._card(build.model.card),
            None if build.source is None else self._samples(build.source),
            [find_profile(target).as_json() for target in build.targets],
            build.requested,
            {name: list(shape) for name, shape in build.model.shapes.items()},
            dict(build.options),
        ]
        return hashlib.sha256(strict_json.encode(facts)).hexdigest()


def tool_versions() -> dict[str, str]:
    """Return the versions of all packages that can change a bundle's bytes."""
    from edgekit.compiler.pipeline import bundle_contents  # here: it loads the whole host side

    return bundle_contents.tool_versions()


def _model_digest(source: str) -> Json:
    with TemporaryDirectory(prefix="edgekit-") as folder:
        path = fetch_model(source, Path(folder))
        top = path if path.is_dir() else path.parent
        return [path.name, {str(file.relative_to(top)): sha256_of(file) for file in model_files(path)}]


def _card_digest(source: str) -> Json:
    from edgekit.processing.card import load_card

    with TemporaryDirectory(prefix="edgekit-") as folder:
        card = load_card(fetch_card(source, Path(folder)))
    files = {name: hashlib.sha256(content).hexdigest() for name, content in card.files.items()}
    return [card.as_json(), files]


def _samples_digest(source: str) -> str:
    digest = hashlib.sha256()
    with TemporaryDirectory(prefix="edgekit-") as folder:
        for file in sample_files(fetch_samples(source, Path(folder))):
            digest.update(f"{sha256_of(file)}  {file.name}\n".encode())
    return digest.hexdigest()
