"""``edgekit release provenance``: SLSA provenance and bill of materials of a bundle, signed on request."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit.bundle.bundle import Bundle
from edgekit.signing.signing_keys import PrivateKey
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats import strict_json


def describe(
    path: Path,
    statement: Path | None,
    bill: Path | None,
    *,
    builder: str | None = None,
    key: PrivateKey | None = None,
) -> list[Path]:
    """Write the documents of a bundle, every byte of which is checked first.

    Args:
        path: The bundle.
        statement: File for SLSA provenance, or None.
        bill: File for the CycloneDX bill of materials, or None.
        builder: URI of who built it.
        key: To sign with.

    Returns:
        The files, signatures too.

    Raises:
        BundleError: it is damaged, or its evidence is not what a build writes.
        UsageError: the builder is not a URI.
        OSError: a file can't be written.
    """
    from edgekit.release.provenance.attestation import sign_bill, sign_statement
    from edgekit.release.provenance.bill_of_materials import bill_of_materials
    from edgekit.release.provenance.slsa import BUILDER, provenance_of

    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        digest = hashlib.sha256()
        for piece in bundle.pieces():  # the file's bytes: what is hashed is what was checked
            digest.update(piece)
        sha256, contents = digest.hexdigest(), dict[Path, bytes]()
        if statement is not None:
            provenance = provenance_of(bundle, path.name, sha256, BUILDER if builder is None else builder)
            contents[statement] = strict_json.encode(provenance)
        if bill is not None:
            contents[bill] = strict_json.encode(bill_of_materials(bundle, path.name, sha256))
    if key is not None:
        signatures = {
            file: sign_statement(content, key) if file == statement else sign_bill(file.name, content, key)
            for file, content in contents.items()
        }
        contents |= {signature_path(file): content for file, content in signatures.items()}
    written: list[Path] = []
    try:
        for file, content in contents.items():
            write_atomically(file, [content])
            written.append(file)
    except OSError:
        for file in written:
            file.unlink(missing_ok=True)
        raise
    return written
