"""The verbs of trust: who made a bundle."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option, bundle_argument, need_writable, path_argument, path_option
from edgekit.cli.command_group import main
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.signing import SignedBy
    from edgekit.signing.signing_keys import PrivateKey

F = TypeVar("F", bound=Callable[..., Any])
PASSWORD = "EDGEKIT_KEY_PASSWORD"


def signature_options(command: F) -> F:
    """``--key`` and ``--signature``, for :func:`need_signature`."""
    command = path_option("--signature", help="With --key: signature file.  [default: BUNDLE.sig]")(command)
    return path_option(
        "--key",
        "keys",
        multiple=True,
        help="Public key in PEM; repeatable. The bundle is accepted only if one of them signed it.",
    )(command)


def need_signature(bundle: Path, keys: Sequence[Path], signature: Path | None) -> SignedBy | None:
    """Check a bundle's signature and return the signer among these keys; None if no key is given."""
    if signature is not None and not keys:
        raise UsageError("--signature needs --key, a public key")
    if not keys:
        return None
    from edgekit.signing import TrustedKeys
    from edgekit.target.model_packages import need_digests, signed_file

    signed = TrustedKeys(keys).check(signed_file(bundle), signature)
    need_digests(bundle)
    return signed


def need_documents(documents: Sequence[Path], keys: Sequence[Path], signed: SignedBy | None) -> None:
    """Check that provenance and bills of materials are signed and describe the signed bundle."""
    if not documents:
        return
    if signed is None:
        raise UsageError("--provenance needs --key, a public key")
    from edgekit.release.provenance import check_document
    from edgekit.signing import TrustedKeys

    trusted = TrustedKeys(keys)
    for document in documents:
        check_document(document, trusted, signed.sha256)


def _private_key(path: Path) -> PrivateKey:
    from edgekit.signing.signing_keys import is_encrypted, load_private_key

    password = os.environ.get(PASSWORD, "")
    if not password and sys.stdin.isatty() and is_encrypted(path):
        password = click.prompt("password of the key", hide_input=True, err=True)
    return load_private_key(path, password.encode() or None)


@main.group()
def release() -> None:
    """Sign and publish bundles; evaluate rollouts."""


@release.command(writes=True)
@path_argument("bundle")
@path_option(
    "--private-key",
    "key",
    required=True,
    help=f"Private key in PEM. EC P-256, P-384, P-521 or Ed25519. Its password: {PASSWORD}, or asked for.",
)
@path_option("-o", "--output", help="Signature file to write.  [default: BUNDLE.sig]")
@as_json_option
def sign(bundle: Path, key: Path, output: Path | None, as_json: bool) -> None:
    """Sign a bundle or a model package.

    The signature is a file of its own, in the format of OpenSSF model signing. For a package that EdgeKit
    wrote it signs manifest.json, which has the digests of the other files.
    """
    from edgekit.bundle.bundle import Bundle
    from edgekit.signing.trusted_keys import sign_file, signature_path
    from edgekit.system.atomic_files import write_atomically
    from edgekit.target.model_packages import need_digests, signed_file

    file = signed_file(bundle)
    output = signature_path(file) if output is None else output
    need_writable(output, "the signature")
    private = _private_key(key)
    with Bundle.open(bundle) as opened:
        opened.verify_entries()
    need_digests(bundle)
    content = sign_file(file, private)
    write_atomically(output, [content])
    document = {"signature": str(output), "key": private.public.hint, "kind": private.kind}
    lines = [f"  {output}  signed with {key}, {private.kind}, key {private.public.hint[:12]}"]
    lines.append(f"  next: edgekit verify {bundle} --key PUBLIC.pem, on any machine")
    terminal.answer(as_json, document, "\n".join(lines))


@release.command(writes=True)
@bundle_argument
@path_option("-o", "--output", help="Write SLSA provenance to this .json file.")
@path_option("--bom", help="Write a CycloneDX ML-BOM to this .json file.")
@click.option("--builder", help="URI of the builder for SLSA, e.g. of a CI workflow.")
@path_option("--private-key", "key", help="Private key in PEM. Signs each file written.")
@as_json_option
def provenance(
    bundle: Path, output: Path | None, bom: Path | None, builder: str | None, key: Path | None, as_json: bool
) -> None:
    """Write bundle metadata in standard formats (SLSA, CycloneDX).

    SLSA provenance says what it was built from, how and by which tools; a bill of materials (CycloneDX) lists
    its variants, their files, hashes and figures. With --private-key each is signed, in a file with .sig
    added.
    """
    from edgekit.release.provenance import describe

    if output is None and bom is None:
        raise UsageError("nothing to write: give -o provenance.json, --bom bom.cdx.json or both")
    if builder is not None and output is None:
        raise UsageError("--builder needs -o, the SLSA provenance it is a part of")
    if output is not None and output == bom:
        raise UsageError("-o and --bom name the same file: give two")
    for path, label in ((output, "the provenance"), (bom, "the bill of materials")):
        if path is not None:
            need_writable(path, label)
    private = None if key is None else _private_key(key)
    written = describe(bundle, output, bom, builder=builder, key=private)
    lines = [f"  {path}" for path in written]
    lines += (
        [] if private is None else [f"  signed with {key}, {private.kind}, key {private.public.hint[:12]}"]
    )
    terminal.answer(as_json, {"files": [str(path) for path in written]}, "\n".join(lines))
