"""The bundle: variants of one model, their evidence and their provenance in one file.

    offset 0    header, 64 bytes: magic, version, sizes, sha256 of the manifest
    offset 64   manifest: UTF-8 JSON (edgekit/bundle/manifest.py)
    then        entries, uncompressed, each at a multiple of 64 bytes

docs/bundle-format.md specifies it. This module reads with the standard library and numpy only, an entry when
it is asked for, and hands it out only after the sha256 of what was read was found right.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np

from edgekit._version import __version__
from edgekit.bundle import manifest as schema
from edgekit.bundle.manifest import aligned
from edgekit.bundle.variant import Variant
from edgekit.errors import BundleError, ModelError, UsageError, need_package, no_attribute, suggestion
from edgekit.system.atomic_files import write_atomically
from edgekit.system.closing import Closing
from edgekit.system.formats.json_schema import ManifestError
from edgekit.system.formats.npy import NpyError, parse_npy
from edgekit.system.formats.npy import npy_bytes as npy_bytes
from edgekit.system.interrupts import pass_on
from edgekit.system.python_calls import spoken, spoken_errors
from edgekit.system.regular_file import PlainFile, Readable, Section
from edgekit.tensor_spec import Array, Content, Json, Signature, TensorSpec

if TYPE_CHECKING:
    from edgekit.bundle.report import Report

MAGIC = b"EDGEKIT\0"
HEADER = struct.Struct("<8sIIQQ32s")
"""magic, version, zero, bytes of the manifest, bytes of the file, sha256 of the manifest; 64 bytes."""
FILE_LIMIT_BYTES = 64 << 30
PACKAGES, PACKAGE_MANIFEST = "edgekit.compiler.sandbox.packages", "manifest.json"
COPIED_BYTES = 1 << 20
"""Piece of an entry that is read and hashed at a time."""

HABITS = {
    "bench": "edgekit.bench(bundle) times it",
    "benchmark": "edgekit.bench(bundle) times it",
    "predict": "edgekit.open(bundle) opens a session, which predicts",
    "run": "edgekit.open(bundle) opens a session, which runs it",
    "info": "report",
    "session": "edgekit.open(bundle) opens one",
    "summary": "report",
    "targets": "{variant.target for variant in bundle.variants} are its targets",
    "verify": "edgekit.verify(bundle) runs its golden vectors",
    "write": "save",
}
"""Names that people try on a bundle -> ours."""
_AGAIN = "copy or download it again from where it was built"
_REBUILD = "it was not written by edgekit; build it again with `edgekit build`"


class Bundle(Closing):
    """An opened bundle, ``Bundle(path)``, or one just made, ``Bundle.create(manifest, entries)``.

    Its header and manifest are read and checked; entries are read when asked for. ``bundle["ort-int8"]`` is
    the variant of this name. An open file should be replaced (as ``save`` does) and not changed in place. If
    it is changed all the same, entries read from then on are damaged ones: a BundleError, or their old
    content.

    The path may also be a model package of an engine, which is a folder: it is judged once, and its bundle is
    kept in the cache (docs/model-packages.md). This needs the host's packages.

    Raises:
        BundleError: the file does not exist, or it is damaged, hostile or of another version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fsdecode(path)
        try:
            file = PlainFile(_file_of(name), FILE_LIMIT_BYTES)
        except FileNotFoundError:
            raise BundleError(f"{name}: file not found") from None
        except (OSError, ValueError, OverflowError) as problem:
            pass_on(problem)
            reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            error = _not_a_bundle(name, f"it cannot be read: {reason}", "give the path of a readable file")
            error.blame = "machine" if isinstance(problem, OSError) else error.blame
            raise error from None
        try:
            self._parse(name, file)
        except OSError as problem:
            file.close()
            pass_on(problem)
            error = _not_a_bundle(name, f"it cannot be read: {problem.strerror or problem}", _AGAIN)
            error.blame = "machine"
            raise error from None
        except BaseException:
            file.close()
            raise

    def _hold(self, name: str, manifest_bytes: bytes, parts: Mapping[str, memoryview] | Readable) -> None:
        """Take the manifest; ``parts`` holds every entry. Raises ManifestError."""
        self.manifest: dict[str, Any] = schema.decode_manifest(manifest_bytes)
        self.digest: str = hashlib.sha256(manifest_bytes).hexdigest()
        self.name = name
        self._manifest_bytes = manifest_bytes
        self._parts: Mapping[str, memoryview] | Readable | None = parts
        self._start = aligned(HEADER.size + len(manifest_bytes))
        self._entries: dict[str, dict[str, Any]] = {e["name"]: e for e in self.manifest["entries"]}

    # --- making ------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, manifest: Mapping[str, Json], entries: Mapping[str, Content]) -> Bundle:
        """Make a bundle in memory.

        Args:
            manifest: The keys of docs/bundle-format.md; ``format``, ``version``, ``edgekit`` and ``entries``
                are filled in, and what is absent and may be empty: tools, options, samples, card, profiles,
                passes, golden.
            entries: Entry name -> content. Their order does not matter.

        Raises:
            BundleError: the manifest or a name does not fit the format; the text says what and where.
        """
        table, offset = [], 0
        for name in sorted(entries):
            content = entries[name]
            digest = hashlib.sha256(content).hexdigest()
            table.append({"name": name, "offset": offset, "size": len(content), "sha256": digest})
            offset = aligned(offset + len(content))
        empty: dict[str, Json] = {"tools": {}, "options": {}, "samples": {}, "card": None}
        empty |= {"profiles": {}, "passes": [], "golden": [], "edgekit": __version__}
        fixed = {"format": schema.FORMAT, "version": schema.VERSION, "entries": table}
        try:
            encoded = schema.encode_manifest({**empty, **manifest, **fixed})
            parts = {name: memoryview(content).toreadonly() for name, content in entries.items()}
            bundle = cls.__new__(cls)
            bundle._hold("new bundle", encoded, parts)
            return bundle
        except ManifestError as problem:
            raise BundleError(
                f"the bundle cannot be made\n  {problem}\n  nothing was written; fix the fields listed above"
            ) from None

    def save(self, path: str | os.PathLike[str], mode: int = 0o666) -> Path:
        """Write the file atomically: a temporary file in the same folder, flushed to disk, then renamed.

        Args:
            mode: Its permissions, less those of the umask.

        Raises:
            BundleError: it cannot be written, or an entry of this bundle is damaged; ``path`` is untouched.
        """
        path = Path(path)
        try:
            write_atomically(path, self.pieces(), mode)
        except OSError as problem:
            raise BundleError(
                f"{path} cannot be written\n  {problem.strerror or problem}\n"
                f"  nothing was written; choose another place or make room"
            ) from None
        return path

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file. Raises BundleError at the first entry that is damaged."""
        start, entries = self._start, self.manifest["entries"]
        end = start + (entries[-1]["offset"] + entries[-1]["size"] if entries else 0)
        digest = bytes.fromhex(self.digest)
        yield HEADER.pack(MAGIC, schema.VERSION, 0, len(self._manifest_bytes), end, digest)
        yield self._manifest_bytes
        position = HEADER.size + len(self._manifest_bytes)
        for entry in entries:
            yield bytes(start + entry["offset"] - position)
            yield from self._content(entry["name"])
            position = start + entry["offset"] + entry["size"]
        if not entries:
            yield bytes(start - position)

    # --- opening -----------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Open a bundle, as ``Bundle(path)`` does."""
        return cls(path)

    def _parse(self, name: str, file: Readable) -> None:
        head = file.read(0, HEADER.size)
        if head and not MAGIC.startswith(start := head[: len(MAGIC)]):
            raise _not_a_bundle(
                name,
                f"header: it starts with {start!a}; a bundle starts with {MAGIC!a}",
                "pass a .edgekit file; edgekit build makes one from a model",
            )
        if len(head) < HEADER.size:
            raise _not_a_bundle(name, f"header: the file has {len(head)} of {HEADER.size} bytes", _AGAIN)
        _, version, zero, manifest_size, file_size, digest = HEADER.unpack(head)
        if version != schema.VERSION:
            raise _not_a_bundle(
                name,
                f"header: it has format version {version}; edgekit {__version__} reads {schema.VERSION}",
                "install an edgekit-sdk that reads it, or build it again with this one",
            )
        if zero != 0:
            raise _not_a_bundle(name, f"header: bytes 12 to 15 must be zero and are {zero}", _REBUILD)
        if file_size != file.size:
            raise _not_a_bundle(
                name, f"header: it declares {file_size} bytes, and the file has {file.size}", _AGAIN
            )
        if manifest_size > schema.MANIFEST_LIMIT_BYTES:
            raise _not_a_bundle(
                name,
                f"header: a manifest of {manifest_size} bytes; the limit is {schema.MANIFEST_LIMIT_BYTES}",
                _REBUILD,
            )
        manifest_end = HEADER.size + manifest_size
        first = aligned(manifest_end)
        if first > file.size:
            raise _not_a_bundle(
                name, f"header: a manifest of {manifest_size} bytes, and the file has {file.size}", _AGAIN
            )
        manifest_bytes = file.read(HEADER.size, manifest_size)
        if hashlib.sha256(manifest_bytes).digest() != digest:
            raise _not_a_bundle(name, "manifest: its sha256 is not the one in the header", _AGAIN)
        try:
            self._hold(name, manifest_bytes, file)
        except ManifestError as problem:
            raise _not_a_bundle(name, str(problem), _REBUILD) from None
        entries = self.manifest["entries"]
        end = first + (entries[-1]["offset"] + entries[-1]["size"] if entries else 0)
        if end != file.size:
            raise _not_a_bundle(
                name, f"entries: they end at byte {end}, and the file has {file.size}", _REBUILD
            )

    def close(self) -> None:
        """Let go of the file. Arrays and views that were handed out stay as they are."""
        self.__dict__.pop("golden", None)
        self._parts = None  # and not closed: another thread may be reading it

    # --- what it holds -----------------------------------------------------------------------------------

    @cached_property
    def variants(self) -> list[Variant]:
        """Every variant, rejected ones too, in the order of the build."""
        return [Variant(**variant) for variant in self.manifest["variants"]]

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.variants)

    def __getitem__(self, name: str) -> Variant:
        """Return the variant of this name. Raises UsageError: there is none."""
        names = [variant.name for variant in self.variants]
        if name not in names:
            hint = suggestion(str(name), names) or f"; available: {', '.join(names) or 'none'}"
            raise UsageError(f"{self.name} has no variant {name!r}{hint}")
        return self.variants[names.index(name)]

    @cached_property
    def shapes(self) -> tuple[Signature, ...]:
        """Inputs and outputs at each shape, smallest first; the last are ``inputs`` and ``outputs``."""
        return schema.signatures_of(self.manifest)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self.shapes[-1].inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.shapes[-1].outputs

    @property
    def card(self) -> dict[str, Json] | None:
        """Return how inputs are prepared and outputs decoded: the input of ``cards.card.parse_card``."""
        card: dict[str, Json] | None = self.manifest["card"]
        return card

    @cached_property
    def golden(self) -> list[tuple[dict[str, Array], dict[str, Array]]]:
        """Golden vectors: (feeds, outputs of the reference), read when first asked for; read-only arrays.

        Raises BundleError: an entry is damaged, or is not the array that the manifest declares."""
        return [
            (self._arrays(pair["inputs"], self.inputs), self._arrays(pair["outputs"], self.outputs))
            for pair in self.manifest["golden"]
        ]

    def golden_of(self, variant: Variant) -> list[tuple[dict[str, Array], dict[str, Array]]]:
        """Return golden vectors of the model that a variant computes, then those of its further shapes."""
        if variant.shrunk is None:
            if not variant.has_shapes:
                return self.golden
            from edgekit.bundle.shape_entries import with_further

            return with_further(self.golden, self.manifest, self.shapes, self._arrays)
        golden = [self._arrays(outputs, self.outputs) for outputs in variant.shrunk["golden"]]
        return [(feeds, outputs) for (feeds, _), outputs in zip(self.golden, golden, strict=bool(golden))]

    def read(self, entry: str) -> memoryview:
        """Read and hash the content of an entry, read-only; it starts at a multiple of 64 bytes.

        Raises:
            BundleError: there is no such entry, or its sha256 is wrong, or the bundle is closed.
        """
        size = self.size_bytes(entry)
        buffer = np.empty(size + schema.ALIGNMENT_BYTES, np.uint8)
        skipped = -buffer.ctypes.data % schema.ALIGNMENT_BYTES
        content, position = buffer[skipped : skipped + size].data, 0
        for piece in self._content(entry):
            content[position : position + len(piece)] = piece
            position += len(piece)
        return content.toreadonly()

    def copy_to(self, entry: str, file: BinaryIO) -> None:
        """Write an entry's content to a file. What is hashed is what is written, in one go over it.

        Raises BundleError: as ``read``; what was written is then not the entry. OSError: it can't be written.
        """
        for piece in self._content(entry):
            file.write(piece)

    def _part(self, entry: str) -> memoryview | Readable:
        if entry not in self._entries:
            raise BundleError(f"{self.name} has no entry {entry!r}; `edgekit inspect` lists what it has")
        if self._parts is None:
            raise BundleError(f"{self.name} is closed; open it again to read {entry!r}")
        return self._parts[entry] if isinstance(self._parts, Mapping) else self._parts

    def _content(self, entry: str) -> Iterator[bytes | memoryview]:
        """Yield the content of an entry in pieces. Raises BundleError after the last piece if the content is
        not what the manifest declares."""
        part, size = self._part(entry), self._entries[entry]["size"]
        start, digest, pos = self._start + self._entries[entry]["offset"], hashlib.sha256(), 0
        while pos < size:
            count = min(COPIED_BYTES, size - pos)
            try:
                piece = part[pos:][:count] if isinstance(part, memoryview) else part.read(start + pos, count)
            except OSError as problem:
                pass_on(problem)
                raise self._damaged(entry, f"it cannot be read: {problem.strerror or problem}") from None
            if not piece:
                reason = f"the file ends {size - pos} bytes too early; it was changed since it was opened"
                raise self._damaged(entry, reason)
            digest.update(piece)
            yield piece
            pos += len(piece)
        if digest.hexdigest() != self._entries[entry]["sha256"]:
            raise self._damaged(entry, "its sha256 is not the one in the manifest")

    def _damaged(self, entry: str, reason: str) -> BundleError:
        return BundleError(f"{self.name} is damaged\n  entry {entry}: {reason}\n  {_AGAIN}")

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of a cascade's later stages, in their order; empty if it is one model."""
        return tuple(stage["name"] for stage in self.manifest.get("cascade", {}).get("stages", ()))

    def stage(self, name: str) -> Bundle:
        """Return a later stage of a cascade. Raises BundleError: it is absent or damaged, or this closed."""
        if name not in self.stages:
            raise BundleError(f"{self.name} has no stage {name!r}; it has {', '.join(self.stages) or 'none'}")
        declared = self.manifest["cascade"]["bundles"][name]
        part, size = self._part(declared["entry"]), self.size_bytes(declared["entry"])
        offset = self._entries[declared["entry"]]["offset"]
        start = 0 if isinstance(part, memoryview) else self._start + offset
        bundle = Bundle.__new__(Bundle)
        bundle._parse(f"{self.name}, stage {name}", Section(part, start, size))
        if bundle.digest != declared["digest"]:
            raise self._damaged(declared["entry"], "its digest is not the one in the manifest")
        return bundle

    def sha256(self, entry: str) -> str:
        """Return the sha256 that the manifest declares for an entry, in hexadecimal."""
        return str(self._entries[entry]["sha256"])

    def size_bytes(self, entry: str) -> int:
        """Return the size of an entry."""
        self._part(entry)
        return int(self._entries[entry]["size"])

    def verify_entries(self) -> None:
        """Check every entry's sha256 and the zeros between. Raises BundleError, which names a wrong entry."""
        for entry in self._entries:
            for _ in self._content(entry):
                pass
        if self._parts is not None and not isinstance(self._parts, Mapping):
            position = HEADER.size + len(self._manifest_bytes)
            for offset, size in [(e["offset"], e["size"]) for e in self._entries.values()] or [(0, 0)]:
                try:
                    padding = self._parts.read(position, self._start + offset - position)
                except OSError as problem:
                    raise _not_a_bundle(self.name, f"it cannot be read: {problem}", _AGAIN) from None
                if any(padding):
                    raise _not_a_bundle(self.name, f"byte {position} and on: the padding is not zero", _AGAIN)
                position = self._start + offset + size
        _ = self.golden, [self.golden_of(variant) for variant in self.variants]

    def _arrays(self, entries: Mapping[str, str], specs: tuple[TensorSpec, ...]) -> dict[str, Array]:
        return {spec.name: self._array(entries[spec.name], spec) for spec in specs}

    def _array(self, entry: str, spec: TensorSpec) -> Array:
        content = self.read(entry)
        try:
            return parse_npy(content, spec)
        except NpyError as problem:
            raise _not_a_bundle(self.name, f"entry {entry}: {problem}", _REBUILD) from None

    @property
    def report(self) -> Report:
        """Return the table of variants and evidence, as the build prints it. Called with the path of an
        ``.html`` file, it writes the whole report there."""
        from edgekit.bundle.report import Report, render_bundle

        def write(path: Path, **options: Any) -> None:
            import_module("edgekit.report.page").write_report(self, path, **options)

        text = spoken(render_bundle(self.name, self.manifest, self.variants))
        return Report(text, self._repr_html_, write)

    def export(self, variant: str, folder: str | os.PathLike[str], **options: Any) -> list[Path]:
        """Write a variant's engine files into a folder, for use without EdgeKit's runtime.

        Args:
            variant: Name of a variant, e.g. ``"tflite-int8"``.
            folder: It is made if it is absent; nothing in it is replaced.
            options: ``metadata=True`` and ``npus=[...]``, as ``edgekit export`` has them.

        Returns:
            The files that were written.

        Raises:
            UsageError: no such variant, it was rejected, or a file of that name is there already; nothing is
                written.
        """
        export_variant = import_module("edgekit.release.export.export").export_variant
        with spoken_errors():
            return list(export_variant(self, self[variant].name, Path(folder), **options))

    if not TYPE_CHECKING:  # a type checker finds wrong names itself

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, HABITS)

    def __repr__(self) -> str:
        return f"<Bundle {self.name}: {len(self.variants)} variants, {self.digest[:12]}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the table, then the rest of the report."""
        from edgekit.bundle.report import render_html

        return spoken(render_html(self.name, self.manifest, self.variants))


@contextmanager
def opened(bundle: str | os.PathLike[str] | Bundle) -> Iterator[Bundle]:
    """Yield an open bundle as it is, or open a path for the block."""
    if isinstance(bundle, Bundle):
        yield bundle
        return
    with Bundle(bundle) as from_path:
        yield from_path


def _file_of(name: str) -> str:
    """Return the path of the bundle: of a model package, that in the cache."""
    try:
        os.lstat(os.path.join(name, PACKAGE_MANIFEST))
    except (OSError, ValueError) as problem:  # os.path.isdir would take an app's TimeoutError for a False
        pass_on(problem)
        return name
    with need_package("onnx", "opening a model package"):
        package_bundle = import_module(PACKAGES).package_bundle  # by name: the host's
    try:
        return str(package_bundle(Path(name)))
    except ModelError as problem:
        raise BundleError(str(problem)) from None


def _not_a_bundle(name: str, reason: str, what_to_do: str) -> BundleError:
    return BundleError(f"{name} is not a bundle that EdgeKit can open\n  {reason}\n  {what_to_do}")
