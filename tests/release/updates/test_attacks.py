"""The attacks of TUF's specification (section 1.5.2), and what a bad server can do besides.

Each is refused or recovered from, with a reason, and a session on the device's store answers before, during
and after.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import UpdateError
from edgekit.release.updates.http_files import DownloadLimits, FetchError, HttpFiles
from edgekit.runtime.session import Session
from tests.fixtures.bundles import X
from tests.fixtures.fake_engines import Engines
from tests.release.updates.conftest import World
from tests.release.updates.file_server import FileServer, Handler

pytest.importorskip("tuf")


@pytest.fixture(autouse=True)
def answering(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device with release 1, whose session runs through the attack; another is opened after it."""
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort", "tflite"))
    world.publish("a")
    world.update()
    with world.store.open(probe=False) as session:
        world.store.confirm()
        yield
        answers(session)
    with world.store.open(probe=False) as session:
        answers(session)


def answers(session: Session) -> None:
    assert np.array_equal(session.run({"x": X})["y"], 2 * X)


def saved(world: World) -> Path:
    return Path(shutil.copytree(world.site, world.folder / "saved"))


def restore(world: World, source: Path) -> None:
    shutil.rmtree(world.site)
    shutil.copytree(source, world.site)


def refused(world: World, why: str) -> None:
    before = world.current()
    with pytest.raises(UpdateError, match=why):
        world.update()
    assert world.current() == before


def test_rollback_to_an_older_repository(world: World) -> None:
    old = saved(world)
    world.publish("b")
    assert world.update().release == 2
    restore(world, old)
    refused(world, "a version is older than one that was seen before")


def test_freeze_at_an_older_state_ends_with_its_expiry(world: World) -> None:
    world.shift = timedelta(days=8)
    refused(world, "somebody holds newer files back")


def test_mix_and_match_of_two_states(world: World) -> None:
    old = saved(world)
    world.publish("b")
    metadata = world.site / "metadata"
    newest = max(metadata.glob("*.stable.json"), key=lambda path: int(path.name.split(".")[0]))
    older = max((old / "metadata").glob("*.stable.json"), key=lambda path: int(path.name.split(".")[0]))
    shutil.copy(older, newest)
    refused(world, "a file is not the one that is signed")


@pytest.mark.parametrize("role", ["timestamp", "snapshot", "stable"])
def test_metadata_that_was_changed_or_signed_by_another_key(world: World, role: str) -> None:
    world.publish("b")
    version = {"timestamp": "", "snapshot": "3.", "stable": "3."}[role]
    path = world.site / "metadata" / f"{version}{role}.json"
    content = path.read_bytes()
    path.write_bytes(re.sub(rb'("expires": *"20)..', rb"\g<1>99", content))
    assert path.read_bytes() != content
    refused(world, "a signature is missing or wrong|a file is not the one that is signed")


def test_a_repository_of_somebody_else(world: World) -> None:
    from edgekit.release.updates.repository import Repository
    from edgekit.release.updates.repository_keys import RoleKeys

    shutil.rmtree(world.site)
    keys = RoleKeys(world.folder / "their-online", world.folder / "their-offline", world.site)
    world.repository = Repository(world.site, keys)
    world.repository.create(["stable"])
    world.publish("b")
    with pytest.raises(UpdateError, match="a signature is missing or wrong"):
        world.update(root=None)
    assert world.current() == "a"


def test_a_target_that_was_changed(world: World) -> None:
    world.publish("b")
    path = next(world.site.glob("targets/stable/detector/*.2.edgekit"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    next(world.site.glob("targets/stable/detector/*.delta"), path).write_bytes(b"nonsense")
    refused(world, "its sha256 is not the signed one")
    assert not [p for p in (world.store.root / "updates" / "downloads").iterdir() if p.stat().st_size]


def endless(start: bytes) -> Callable[[Handler, bytes], bool]:
    """A body without a declared end."""

    def fault(handler: Handler, content: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        try:
            handler.wfile.write(start)
            while True:
                handler.wfile.write(bytes(1 << 16))
        except OSError:  # the client has had enough
            return True

    return fault


def test_endless_metadata(world: World) -> None:
    world.server.fault = endless(b"")
    refused(world, "the repository can't be read: .* has more than 5000000 bytes")


def test_an_endless_target(world: World) -> None:
    world.publish("b", deltas=0)
    content = next(world.site.glob("targets/stable/detector/*.2.edgekit")).read_bytes()
    pour = endless(content)
    world.server.fault = lambda handler, found: ".edgekit" in handler.path and pour(handler, found)
    refused(world, f"the server sends more than the {len(content)} bytes signed")


def test_slow_data_by_a_told_clock(world: World) -> None:
    times = iter(range(0, 100_000, 100))
    files = HttpFiles(world.server.url, limits=DownloadLimits(attempts=1), clock=lambda: float(next(times)))
    path = next(world.site.glob("targets/stable/detector/*.1.edgekit")).relative_to(world.site).as_posix()

    def drip(handler: Handler, content: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:1])
        handler.close_connection = True
        return True

    world.server.fault = drip
    with (
        pytest.raises(FetchError, match="bytes a second; the minimum is 1024"),
        files.open(path) as body,
    ):
        next(body.pieces)


@pytest.mark.parametrize("role", ["root", "targets", "snapshot", "timestamp", "stable"])
def test_keys_are_rotated_and_the_old_ones_are_worth_nothing(world: World, role: str) -> None:
    old = world.repository.keys.load(role)
    world.repository.rotate(role)
    world.publish("b")
    assert world.update().release == 2
    newest = world.repository.load(role)
    newest.signed.version += 1
    newest.sign(old)
    name = "timestamp.json" if role == "timestamp" else f"{newest.signed.version}.{role}.json"
    (world.site / "metadata" / name).write_bytes(newest.to_bytes())
    if role in ("root", "timestamp"):  # the others are not named by any timestamp
        refused(world, "a signature is missing or wrong")
        (world.site / "metadata" / name).unlink()


def test_recovery_from_a_fast_forward(world: World) -> None:
    """Who stole the keys of snapshot and timestamp ran the versions up; new keys make devices forget them."""
    good = saved(world)
    repository = world.repository
    snapshot, timestamp = repository.load("snapshot"), repository.load("timestamp")
    for metadata in (snapshot, timestamp):
        metadata.signed.version = 1_000_000
    snapshot.signed.meta["stable.json"].version += 1_000_000
    snapshot.sign(repository.keys.load("snapshot"))
    content = snapshot.to_bytes()
    timestamp.signed.snapshot_meta = repository.api.MetaFile.from_data(1_000_000, content, ["sha256"])
    timestamp.sign(repository.keys.load("timestamp"))
    (world.site / "metadata" / "1000000.snapshot.json").write_bytes(content)
    (world.site / "metadata" / "timestamp.json").write_bytes(timestamp.to_bytes())
    with pytest.raises(UpdateError):
        world.update()
    restore(world, good)
    refused(world, "a version is older than one that was seen before")
    repository.rotate("timestamp")
    repository.rotate("snapshot")
    world.publish("b")
    assert world.update().release == 2


def redirecting(location: str) -> Callable[[Handler, bytes], bool]:
    def fault(handler: Handler, content: bytes) -> bool:
        handler.answer(302, b"", {"Location": location})
        return True

    return fault


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("https://127.0.0.1/x", "a redirect from http to another scheme"),
        ("file:///etc/passwd", "a redirect from http to another scheme"),
        ("/again", "more than 3 redirects"),
    ],
)
def test_redirects(world: World, location: str, why: str) -> None:
    world.server.fault = redirecting(location)
    refused(world, why)


def test_no_proxy_of_the_environment_is_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    world.publish("b")
    assert world.update().release == 2


def test_a_proxy_that_is_asked_for_is_used(world: World, tmp_path: Path) -> None:
    server: FileServer = world.server
    files = HttpFiles("http://nowhere.invalid/site", proxy=server.url)
    with pytest.raises(FetchError, match="HTTP status 404"):
        files.read("metadata/timestamp.json", 100)
    assert server.requests[-1][0] == "http://nowhere.invalid/site/metadata/timestamp.json"


def test_https_goes_through_a_tunnel_of_the_proxy(world: World) -> None:
    limits = DownloadLimits(attempts=1)
    files = HttpFiles("https://nowhere.invalid/site", proxy=world.server.url, limits=limits)
    with pytest.raises(FetchError, match="Tunnel connection failed: 501"):
        files.read("metadata/timestamp.json", 100)
