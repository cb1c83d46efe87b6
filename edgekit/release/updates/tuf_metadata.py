"""Channel metadata, verified by python-tuf: signatures, versions, expiry, in TUF's order.

python-tuf's client stores trusted metadata in a folder without flushing it to the disk. So it works on a copy
here, and accepted metadata is written back durably, even if the run fails. A version that was accepted once
is never forgotten.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from edgekit.errors import UpdateError, need_package, printable
from edgekit.release.updates.http_files import FetchError, HttpFiles
from edgekit.release.updates.releases import INDEX, Channel, Release, Target, parse_channel, parse_release
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.regular_file import read_plain

LIMIT_BYTES = 5_000_000
CLOCK_SLACK = timedelta(days=1)
"""A clock may be behind a signature's time by so much before it is called wrong."""
DRAFT = "metadata.new."


@dataclass(frozen=True)
class ChannelState:
    """A channel as it is now.

    Attributes:
        clock_note: Error of this device's clock, or "".
    """

    channel: Channel
    release: Callable[[str, int], Release]
    target: Callable[[str], Target]
    clock_note: str


@contextmanager
def open_channel(
    files: HttpFiles, folder: Path, root: bytes, name: str, now: Callable[[], datetime]
) -> Iterator[ChannelState]:
    """Fetch and check what a channel says.

    Args:
        folder: Folder whose ``metadata`` holds trusted metadata; private to this user.
        root: The root metadata that the device was given.
        now: The device's clock, UTC.

    Raises:
        UpdateError: it is refused (a signature, a version, expiry), cannot be fetched or is malformed.
        MissingDependency: the package ``tuf`` is not installed.
        OSError: the folder cannot be written.
    """
    metadata_folder = folder / "metadata"
    private_folder(metadata_folder, parents=False)
    for left in folder.glob(f"{DRAFT}*"):  # of a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=folder))
    try:
        for path in _stored(metadata_folder):
            place = draft / path.relative_to(metadata_folder)
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(read_plain(path, LIMIT_BYTES, follow_links=False))
        try:
            with _explained(files, now):
                yield _opened(files, draft, root, name, now)
        finally:
            _keep(draft, metadata_folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _opened(
    files: HttpFiles, draft: Path, root: bytes, name: str, now: Callable[[], datetime]
) -> ChannelState:
    updater = _updater(files, draft, root)
    updater.refresh()

    def target(path: str) -> Target:
        info = updater.get_targetinfo(path)
        if info is None:
            raise UpdateError(
                f"the repository has no {path}: channel {name} does not exist, or nothing is published in it"
                if path == f"{name}/{INDEX}"
                else f"the channel names {path}, which the repository does not have; publish it again"
            )
        sha256 = info.hashes.get("sha256", "")
        if len(sha256) != 64:
            raise UpdateError(f"{path} has no sha256 in the metadata; publish it again")
        before, _, last = path.rpartition("/")
        return Target(path, f"targets/{before}/{sha256}.{last}", info.length, sha256, info.custom)

    def release(model: str, number: int) -> Release:
        from edgekit.release.updates.releases import release_path

        return parse_release(target(release_path(name, model, number)))

    channel = parse_channel(name, target(f"{name}/{INDEX}").custom)
    return ChannelState(channel, release, target, _clock_note(files, draft, channel, now()))


def _clock_note(files: HttpFiles, draft: Path, channel: Channel, now: datetime) -> str:
    """Describe an error of the clock, or return "". A clock that is behind cannot judge expiry, so the
    signed time is its lower bound.

    Raises:
        UpdateError: some metadata has expired at that time.
    """
    from tuf.api.metadata import Metadata

    earliest = max(now, channel.issued)
    for role in ("root", "timestamp", "snapshot", "targets", quote(channel.name, "")):
        if Metadata.from_file(str(draft / f"{role}.json")).signed.expires <= earliest:
            raise _expired(f"{role}.json is expired", files, now)
    if now >= channel.issued - CLOCK_SLACK:
        return ""
    return (
        f"this device's clock says {now:%Y-%m-%d %H:%M}, and the channel was signed on "
        f"{channel.issued:%Y-%m-%d %H:%M} UTC: set the clock; until then expiry is judged by that date"
    )


def _expired(description: str, files: HttpFiles, now: datetime) -> UpdateError:
    server = f"\n  the server says that it is {files.server_time}" if files.server_time else ""
    return UpdateError(
        f"the update is refused: {description}, by this device's clock, {now:%Y-%m-%d %H:%M} UTC{server}\n"
        "  the repository is no longer renewed (`edgekit release publish --refresh`), the clock is wrong, "
        "or somebody holds newer files back\n"
        "  the installed bundle keeps working"
    )


def _updater(files: HttpFiles, draft: Path, root: bytes) -> Any:
    with need_package("tuf", "updates", extra="update"):
        from tuf.api.exceptions import DownloadError, DownloadHTTPError
        from tuf.ngclient import Updater
        from tuf.ngclient.fetcher import FetcherInterface

    class Fetcher(FetcherInterface):  # type: ignore[misc]
        """python-tuf's network: ours."""

        def _fetch(self, url: str) -> Iterator[bytes]:
            try:
                return iter([files.read(url, LIMIT_BYTES)])
            except FetchError as problem:
                if problem.status:
                    raise DownloadHTTPError(str(problem), problem.status) from None
                raise DownloadError(str(problem)) from None

    return Updater(str(draft), f"{files.url}metadata/", fetcher=Fetcher(), bootstrap=root)


@contextmanager
def _explained(files: HttpFiles, now: Callable[[], datetime]) -> Iterator[None]:
    """python-tuf's errors as ours."""
    with need_package("tuf", "updates", extra="update"):
        from tuf.api import exceptions as tuf
    try:
        yield
    except tuf.ExpiredMetadataError as problem:
        raise _expired(str(problem), files, now()) from None
    except tuf.DownloadError as problem:
        raise UpdateError(f"the repository can't be read: {printable(str(problem))}") from None
    except tuf.RepositoryError as problem:
        kind = {
            "BadVersionNumberError": "a version is older than one that was seen before, or does not belong",
            "LengthOrHashMismatchError": "a file is not the one that is signed",
            "UnsignedMetadataError": "a signature is missing or wrong",
        }.get(type(problem).__name__, "the metadata is not valid")
        raise UpdateError(
            f"the update is refused: {kind}\n"
            f"  {printable(str(problem))[:300]}\n"
            "  somebody may be tampering with the repository or the network; the installed bundle keeps "
            "working"
        ) from None


def _stored(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("root_history/*.json")), *sorted(folder.glob("*.json"))]


def _keep(draft: Path, destination: Path) -> None:
    for path in _stored(draft):
        if path.is_symlink():  # root.json: which root is newest is seen from the history
            continue
        place = destination / path.relative_to(draft)
        content = path.read_bytes()
        if place.exists() and read_plain(place, LIMIT_BYTES, follow_links=False) == content:
            continue
        private_folder(place.parent, parents=False)
        write_atomically(place, [content], 0o600)


def utc_now() -> datetime:
    return datetime.now(timezone.utc)
