"""A bundle, its signature and its model card as one commit of a repository on the Hugging Face Hub.

Files are uploaded before the commit names them, so the repository has all of them or is as it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.manifest import plain_path
from edgekit.compiler.hub.address import COMMIT, HubAddress
from edgekit.compiler.hub.client import (
    LOG_IN,
    Listed,
    explained,
    hub_library,
    list_repository,
)
from edgekit.compiler.hub.files import BUNDLE, download_file
from edgekit.errors import UpdateError, UsageError
from edgekit.release.export.hub_card import MARK, model_card
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.progress import step
from edgekit.system.regular_file import sha256_of

README = "README.md"
README_BYTES = 1 << 20
"""Maximum size of a README that may be EdgeKit's own."""
NOT_WRITABLE = (
    "the token may not write to it; take one with the permission `write`, of an account that may, and "
    "check the owner's name"
)
STATUSES = {
    401: f"the token is not valid; set HF_TOKEN, or {LOG_IN}",
    403: NOT_WRITABLE,
    409: "it changed while this was published; publish again",
    412: "it changed while this was published; publish again",
    413: "the hub refuses a file of this size",
}
"""HTTP status of an upload -> its reason."""


class Publication(NamedTuple):
    """Result of a publication.

    Attributes:
        is_new: Whether the repository was created; it is private then.
        keeps_readme: Whether it has a README that somebody else wrote, which stays.
    """

    address: HubAddress
    url: str
    files: tuple[str, ...]
    is_new: bool
    keeps_readme: bool


def publish(address: HubAddress, path: Path, model: str = "") -> Publication:
    """Commit a bundle to a repository, which is created as a private one if it is missing.

    Every byte of the bundle is checked first. The bundle's own README replaces one that an earlier
    publication wrote, and no other.

    Args:
        address: ``hf://OWNER/NAME``.
        path: The bundle; the signature file next to it, if any, goes with it.
        model: Name of the bundle in the repository, without its suffix. "" means the file's.

    Raises:
        UsageError: the address has a revision or a file, a name is not permitted, or the token is missing.
        BundleError: the bundle is damaged.
        UpdateError: the hub refuses it, which commits nothing, or can't be reached: if the connection is lost
            during the commit, the text names the page that shows whether it was made.
        MissingDependency: the package huggingface_hub is not installed.
    """
    if address.revision or address.file:
        raise UsageError(
            f"{address}: a bundle is published to the main branch; write hf://{address.repository}"
        )
    name = (model or path.name.removesuffix(BUNDLE)) + BUNDLE
    try:
        plain_path(name, "the bundle's name")
    except ValueError as problem:
        raise UsageError(f"{path} cannot be published: {problem}; give --model NAME") from None
    hub = hub_library(address, "publishing to")
    if hub.get_token() is None:
        raise UsageError(f"publishing to {address} needs a token: set HF_TOKEN, or {LOG_IN}")
    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        readme = model_card(hub, bundle, f"hf://{address.repository}", name, sha256_of(path))
    contents: dict[str, Path | bytes] = {name: path, README: readme.encode("utf-8")}
    if (signature := signature_path(path)).exists():
        contents[signature_path(name).name] = signature
    is_new, keeps_readme, url = False, False, f"{hub.constants.ENDPOINT}/{address.repository}"
    advice = f"check the network, and by {url} whether the commit was made"
    with step("publishing") as update, explained(hub, address, UpdateError, STATUSES, lambda: advice):
        update(address)
        try:
            commit, files = list_repository(hub, address)
        except hub.errors.RepositoryNotFoundError:
            hub.HfApi().create_repo(address.repository, private=True, exist_ok=True)
            commit, files, is_new = "", {}, True
        if README in files and not _is_own(hub, address.at(commit), files):
            keeps_readme = True
            del contents[README]
        update(f"{address}: {', '.join(contents)}")
        pinned = address.at(_commit(hub, address, contents, f"{name} by EdgeKit", commit or None))
        _check(hub, pinned, contents)
    return Publication(pinned, url, tuple(contents), is_new, keeps_readme)


def _is_own(hub: Any, pinned: HubAddress, files: Mapping[str, Listed]) -> bool:
    if files[README].size_bytes > README_BYTES:
        return False
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        download_file(hub, pinned, README, files[README], Path(folder))
        text = (Path(folder) / README).read_text("utf-8", errors="replace")
    return any(line.startswith(MARK) for line in text.splitlines())


def _commit(
    hub: Any, address: HubAddress, contents: Mapping[str, Path | bytes], message: str, parent: str | None
) -> str:
    """Upload files and commit them. Return the commit; that of the parent if nothing has changed."""
    hub.utils.disable_progress_bars()
    operations = [
        hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
        for name, content in contents.items()
    ]
    done = hub.HfApi().create_commit(
        address.repository, operations, commit_message=message, parent_commit=parent
    )
    if not COMMIT.fullmatch(oid := str(done.oid)):
        raise ValueError("a commit's sha")
    return oid


def _check(hub: Any, pinned: HubAddress, contents: Mapping[str, Path | bytes]) -> None:
    """Compare the list of a commit with what was sent: a repository's ``.gitignore`` leaves files out."""
    files = list_repository(hub, pinned).files
    for name, content in contents.items():
        sent_bytes = len(content) if isinstance(content, bytes) else content.stat().st_size
        if name not in files or files[name].size_bytes != sent_bytes:
            raise UpdateError(
                f"{pinned}: the commit does not have {name} as it was sent; look at the repository's "
                ".gitignore"
            )
