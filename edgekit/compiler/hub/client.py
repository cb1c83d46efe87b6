"""Requests to the Hugging Face Hub by its own library: a repository's list, and errors in one sentence.

The library reads the token of ``HF_TOKEN`` or ``hf auth login``, and the address of the server of
``HF_ENDPOINT``. Neither is printed with an error: the library's own texts may hold a signed URL.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from edgekit.compiler.hub.address import HubAddress
from edgekit.errors import EdgeKitError, ModelError, UsageError, need_package, printable

FILES_LIMIT = 100_000
"""Maximum number of files in a repository."""
LIST_BYTES = 64 << 20
"""Maximum size of a repository's list, after decompression."""
LIST_SECONDS = 120.0
"""Maximum time in which the list must have come."""
ANSWER_SECONDS = 30.0
"""Maximum time without a byte from the server."""
FILE_SECONDS, BYTES_PER_SECOND = 120.0, 64 << 10
"""Maximum time in which a file must have come: so much, and more for its size."""
ATTEMPTS, PAUSE_SECONDS = 4, 10.0
"""Requests for one file, and the longest pause between two, whatever the server's ``Retry-After`` is."""
AGAIN = (0, 429, 500, 502, 503, 504)
"""Statuses after which a file is requested again; 0 means that the transfer broke."""
LOG_IN = "log in with `hf auth login`"


class Listed(NamedTuple):
    """A file in a repository's list: its size in bytes, and its hash by git's or LFS's rule."""

    size_bytes: int
    sha1: str
    sha256: str


class Listing(NamedTuple):
    """Files of a commit by name, as a repository lists them."""

    commit: str
    files: Mapping[str, Listed]


def hub_library(address: HubAddress, action: str) -> Any:
    """Import the hub's library, and check that the repository's name follows its rules."""
    with need_package("huggingface_hub", f"{action} {address}", extra="hub"):
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    try:
        huggingface_hub.utils.validate_repo_id(address.repository)
    except ValueError:
        raise UsageError(
            f"{address}: {address.repository} is not a name that the hub permits: letters, digits, `-`, `_` "
            "and `.`, at most 96 characters, without `--` or `..`, and none of these signs at the ends"
        ) from None
    return huggingface_hub


def list_repository(hub: Any, address: HubAddress) -> Listing:
    """Return the files of an address's revision. Call it within :func:`explained`.

    The library's own call reads an answer of any size.

    Raises:
        ModelError: the list is too large or too slow, it has too many files, or one whose name leaves its
            folder.
    """
    revision = f"/revision/{quote(address.revision, safe='')}" if address.revision else ""
    url = f"{hub.constants.ENDPOINT}/api/models/{address.repository}{revision}"
    headers, content, began = hub.utils.build_hf_headers(), bytearray(), time.monotonic()
    session = hub.utils.get_session()
    with session.stream(
        "GET", url, params={"blobs": True}, headers=headers, timeout=ANSWER_SECONDS
    ) as response:
        for piece in response.iter_bytes():
            content += piece
            if len(content) > LIST_BYTES or time.monotonic() - began > LIST_SECONDS:
                limit = f"{LIST_BYTES >> 20} MB" if len(content) > LIST_BYTES else f"{LIST_SECONDS:g} s"
                raise ModelError(f"{address}: its list of files takes more than {limit}")
    _raise_for_status(hub, response, bytes(content))
    table = json.loads(content)
    return Listing(str(table["sha"]), _listed(address, table["siblings"]))


def _raise_for_status(hub: Any, response: Any, content: bytes = b"") -> None:
    own_headers = {name: value for name, value in response.headers.items() if name.startswith("x-")}
    whole = type(response)(
        response.status_code, headers=own_headers, content=content, request=response.request
    )
    hub.utils.hf_raise_for_status(whole)


def receive_file(hub: Any, address: HubAddress, name: str, size_bytes: int, file: BinaryIO) -> None:
    """Write a file of the repository; a transfer that broke is continued. Call it within :func:`explained`.

    The library's own download has no time limit, waits for as long as ``Retry-After`` says, and makes names
    of files from a server's ETag.

    Args:
        size_bytes: Its size in the repository's list.
        file: Receives it; is empty.

    Raises:
        ModelError: it is too slow, or larger than listed. As :func:`explained` maps the library's errors.
    """
    end_s = time.monotonic() + FILE_SECONDS + size_bytes / BYTES_PER_SECOND
    for attempt in range(ATTEMPTS):
        pause_s = 0.5 * 2.0**attempt
        try:
            with _opened(hub, address, name, file) as response:
                text = response.headers.get("retry-after", "")
                if text.isascii() and text.isdecimal() and len(text) < 9:
                    pause_s = float(text)
                _raise_for_status(hub, response)
                if response.status_code != 206:
                    file.seek(0)
                    file.truncate()
                for piece in response.iter_raw():
                    file.write(piece)
                    if file.tell() > size_bytes:
                        raise ModelError(
                            f"{address}: {name}: the server sends more than the {size_bytes} bytes that the "
                            "list says"
                        )
                    if time.monotonic() > end_s:
                        raise _too_slow(address, name, size_bytes)
            return
        except hub.errors.HTTPError as problem:
            status = int(getattr(getattr(problem, "response", None), "status_code", 0))
            if status not in AGAIN or attempt + 1 == ATTEMPTS:
                raise
        pause_s = min(pause_s, PAUSE_SECONDS)
        if time.monotonic() + pause_s > end_s:
            raise _too_slow(address, name, size_bytes)
        time.sleep(pause_s)


def _opened(hub: Any, address: HubAddress, name: str, file: BinaryIO) -> Any:
    """Request a file from where it ended."""
    url = hub.hf_hub_url(address.repository, name, revision=address.revision, endpoint=hub.constants.ENDPOINT)
    headers = {**hub.utils.build_hf_headers(), "Accept-Encoding": "identity"}
    if received_bytes := file.tell():
        headers["Range"] = f"bytes={received_bytes}-"
    return hub.utils.get_session().stream("GET", url, headers=headers, timeout=ANSWER_SECONDS)


def _too_slow(address: HubAddress, name: str, size_bytes: int) -> ModelError:
    seconds = FILE_SECONDS + size_bytes / BYTES_PER_SECOND
    return ModelError(f"{address}: {name} did not arrive within {seconds:.0f} s; try again later")


def _listed(address: HubAddress, entries: Any) -> dict[str, Listed]:
    if len(entries) > FILES_LIMIT:
        raise ModelError(f"{address}: has {len(entries)} files; at most {FILES_LIMIT} are supported")
    files = {}
    for entry in entries:
        name, size, large = str(entry["rfilename"]), entry.get("size"), entry.get("lfs")
        if any(part in ("", ".", "..") for part in name.split("/")) or set(name) & set("\\\0:"):
            raise ModelError(
                f"{address}: has a file {printable(name)[:100]!r}, a name that leaves its folder"
            )
        if not isinstance(size, int) or size < 0:
            raise ModelError(f"{address}: the hub states no size of {printable(name)[:100]}")
        files[name] = Listed(size, str(entry.get("blobId") or ""), str(large["sha256"]) if large else "")
    return files


@contextlib.contextmanager
def explained(
    hub: Any,
    address: HubAddress,
    kind: type[EdgeKitError],
    statuses: Mapping[int, str] | None = None,
    advice: Callable[[], str] = lambda: "check the network",
) -> Iterator[None]:
    """Turn an error of the library into one sentence. Its own text is left out: it may hold a signed URL.

    Args:
        statuses: HTTP status -> sentence, for those whose reason is known.
        advice: Function that returns the text for an error of the network.
    """
    errors, endpoint = hub.errors, hub.constants.ENDPOINT
    try:
        try:
            yield
        except RuntimeError as problem:  # the library's, around the error of an upload
            raise problem.__cause__ or ConnectionError(type(problem).__name__) from None
    except ModelError as problem:
        raise kind(str(problem)) from None
    except errors.GatedRepoError:
        raise kind(f"{address}: is gated; accept its conditions on its page and {LOG_IN}") from None
    except errors.RepositoryNotFoundError:
        raise kind(
            f"{address}: the hub has no such model that you may read; check the name, or "
            f"{LOG_IN} if it is private"
        ) from None
    except errors.RevisionNotFoundError:
        raise kind(f"{address}: has no revision {address.revision}") from None
    except errors.HfHubHTTPError as problem:
        status = int(getattr(problem.response, "status_code", 0))
        reason = (statuses or {}).get(status, f"{endpoint} answers {status or 'an error'}; try again later")
        raise kind(f"{address}: {reason}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise kind(
            f"{address}: {endpoint} does not answer as a hub does ({type(problem).__name__})"
        ) from None
    except (OSError, errors.HTTPError) as problem:  # no connection; a transfer that broke
        if isinstance(problem, OSError) and problem.errno is not None and problem.filename is not None:
            raise  # of a file here
        raise kind(
            f"{address}: {endpoint} can't be reached, or ended a transfer ({type(problem).__name__}); "
            f"{advice()}"
        ) from None
