"""Bundles in their slots: what is put there, and whether what is there is still that."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from edgekit.bundle.bundle import HEADER, Bundle
from edgekit.bundle.model_version import is_version, model_version
from edgekit.errors import BundleError, SignatureError, UsageError
from edgekit.signing.signature_file import LIMIT_BYTES as SIGNATURE_LIMIT_BYTES
from edgekit.signing.trusted_keys import TrustedKeys, signature_path
from edgekit.system import ownership
from edgekit.system.atomic_files import flush_folder, write_atomically
from edgekit.system.regular_file import read_plain


class Slots:
    """The slots of a store.

    Args:
        keys: One of them must have signed each bundle; None: no signature is asked for.
    """

    def __init__(self, slot: Callable[[str], Path], keys: TrustedKeys | None) -> None:
        self._slot, self._keys = slot, keys

    def keep(self, bundle: Bundle) -> None:
        """Write a bundle into its slot, with every entry hashed. An intact file in the slot stays, because a
        process may hold it open. The caller holds the lock.

        Raises:
            BundleError: an entry is damaged, or the file cannot be written.
            OSError: the folder cannot be flushed.
        """
        slot = self._slot(bundle.digest)
        if not self._is_sound(slot, bundle.digest):
            bundle.save(slot, 0o600)
            return
        for _ in bundle.pieces():  # what was given is hashed, too
            pass
        flush_folder(slot.parent)  # who wrote it may have been killed before that

    def _is_sound(self, slot: Path, digest: str) -> bool:
        try:
            if ownership.read_own(slot, HEADER.size)[-32:].hex() != digest:
                return False
            with Bundle.open(slot) as stored:
                stored.verify_entries()
                return stored.digest == digest
        except (OSError, BundleError):
            return False

    def fault_of(self, digest: str) -> tuple[str, str]:
        """Check a slot's file; return blame and reason of a fault, or ("", "")."""
        try:
            header = ownership.read_own(self._slot(digest), HEADER.size)
        except FileNotFoundError:
            return "bundle", "its file is missing"
        except OSError as problem:
            return "machine", f"its file cannot be used: {problem.strerror or problem}"
        if header[-32:].hex() != digest:  # the digest of the manifest, which Bundle.open checks
            return "bundle", "its file is not the bundle that was installed"
        try:
            if self._keys is not None:
                self._keys.check(self._slot(digest))
        except SignatureError as problem:
            return "bundle", str(problem)
        except OSError as problem:
            return "machine", f"its signature cannot be checked: {problem.strerror or problem}"
        return "", ""

    def signature_of(
        self, bundle: str | os.PathLike[str], signature: str | os.PathLike[str] | None
    ) -> bytes | None:
        """Return the content of a bundle's signature file, which holds; None where none is asked for.

        Raises:
            SignatureError: as ``Store.install``.
            BundleError: a file cannot be read.
        """
        if self._keys is None:
            return None
        signature_file = signature_path(bundle) if signature is None else Path(signature)
        try:
            self._keys.check(bundle, signature_file)
            return read_plain(signature_file, SIGNATURE_LIMIT_BYTES)
        except OSError as problem:
            raise BundleError(f"{problem.filename or bundle} cannot be read: {problem.strerror}") from None

    def keep_signature(self, digest: str, content: bytes, needed: Collection[str]) -> None:
        """Write a slot's signature, unless it is not that of what was copied: the file was changed meanwhile.

        Raises:
            SignatureError, OSError: then the slot is removed, unless it is one of ``needed``.
        """
        slot = self._slot(digest)
        try:
            assert self._keys is not None
            self._keys.check_content(slot, content, str(signature_path(slot)))
            write_atomically(signature_path(slot), [content], 0o600)
        except BaseException:
            if digest not in needed:
                slot.unlink(missing_ok=True)
            raise


def version_of(bundle: Bundle, version: int | None) -> int | None:
    """Return the version of a bundle: its own, or the one that is given for it.

    Raises:
        UsageError: the given one is not a whole number of 0 or more, or not the bundle's own.
        BundleError: its own is not one.
    """
    stated = model_version(bundle)
    if version is not None and not is_version(version):
        raise UsageError(f"a version is a whole number of 0 or more, not {version!r}")
    if stated is not None and version is not None and stated != version:
        raise UsageError(f"{bundle.name} has version {stated}, but {version} was passed: leave it out")
    return stated if version is None else version
