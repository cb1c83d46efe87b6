"""A network that fails: an update over it completes, and goes on where it was."""

from __future__ import annotations

import os
import random
import re
import sys
from pathlib import Path

import pytest

from edgekit.errors import UpdateError
from edgekit.release.updates.http_files import DownloadLimits, FetchError, HttpFiles
from edgekit.release.updates.publishing import publish
from tests.release.updates.conftest import QUICK, World
from tests.release.updates.file_server import Handler
from tests.runtime.store.crash_model import Recorder

WEIGHTS = random.Random(0).randbytes(3_000_000)


class Failing:
    """Three of ten requests fail: by 503, cut off before the answer, or in the middle of the body."""

    def __init__(self, seed: int) -> None:
        self.draw, self.failed = random.Random(seed), 0

    def __call__(self, handler: Handler, content: bytes) -> bool:
        if self.draw.random() >= 0.3:
            return False
        self.failed += 1
        kind = self.draw.randrange(3)
        if kind == 0:
            handler.answer(503, b"", {"Retry-After": "1"})
            return True
        handler.close_connection = True
        if kind == 2 and content:
            found = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
            start = int(found[1]) if found else 0
            handler.send_response(206 if start else 200)
            if start:
                handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            handler.send_header("Content-Length", str(len(content) - start))
            handler.end_headers()
            handler.wfile.write(content[start : start + self.draw.randrange(len(content) - start)])
        handler.wfile.flush()
        return True


@pytest.mark.parametrize("ranges", [True, False])
def test_an_update_completes_with_three_of_ten_requests_failing(world: World, ranges: bool) -> None:
    world.server.ranges = ranges
    failing = Failing(seed=5)
    for number in range(4):
        large = world.bundle(f"large-{number}", {"weights.bin": WEIGHTS})
        publish(world.repository, large, "stable", "detector", deltas=0)
        world.server.fault = failing
        assert world.update().outcome == "installed"
        assert world.current() == f"large-{number}"
    assert failing.failed >= 5
    resumed = [asked for path, asked in world.server.requests if path.endswith(".edgekit") and asked]
    assert resumed  # by a range


def test_a_run_goes_on_where_another_was_cut_off(world: World) -> None:
    world.bundle("large", {"weights.bin": WEIGHTS})
    publish(world.repository, world.folder / "large.edgekit", "stable", "detector")

    def cut(handler: Handler, content: bytes) -> bool:
        if not handler.path.endswith("1.edgekit"):
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:2_000_000])
        handler.close_connection = True
        return True

    world.server.fault = cut
    world.limits = DownloadLimits(attempts=1)
    with pytest.raises(
        UpdateError, match=r"2000000 of \d+ bytes are here; the next run continues from there"
    ):
        world.update()
    world.server.fault, world.limits = None, QUICK
    assert world.update().outcome == "installed"
    assert world.server.requests[-1][1] == "bytes=2000000-"


def begun_download(world: World) -> tuple[Path, Path]:
    """Publish a release; return its file, and where a device keeps the part that it has of it."""
    world.publish("a")
    target = next(world.site.glob("targets/stable/detector/*.1.edgekit"))
    downloads = world.store.root / "updates" / "downloads"
    for folder in (world.store.root, downloads.parent, downloads):
        folder.mkdir(mode=0o700)
    part = downloads / f"{target.name.split('.')[0]}.part"
    return target, part


def test_what_was_resumed_and_is_wrong_is_fetched_once_more(world: World) -> None:
    _, part = begun_download(world)
    part.write_bytes(b"left by a torn write")
    part.chmod(0o600)
    assert world.update().outcome == "installed"
    asked = [found for path, found in world.server.requests if path.endswith("1.edgekit")]
    assert asked == ["bytes=20-", ""]


@pytest.mark.skipif(os.name != "posix", reason="modes are checked on POSIX alone")
def test_what_others_may_write_to_is_not_resumed(world: World) -> None:
    target, part = begun_download(world)
    part.write_bytes(target.read_bytes()[:20])
    part.chmod(0o622)
    with pytest.raises(UpdateError) as error:
        world.update()
    assert str(error.value) == f"{part} is not used: other users can write to it; remove it"
    part.unlink()
    assert world.update().outcome == "installed"


@pytest.mark.skipif(sys.platform != "linux", reason="the paths of open files are read from /proc")
def test_a_whole_download_and_its_name_are_on_the_disk_before_it_is_installed(world: World) -> None:
    world.publish("a")
    recorder = Recorder(world.store.root)
    recorder.record(world.update)
    done = [(each.kind, each.path) for each in recorder.operations]
    folder = "updates/downloads"
    (renamed,) = (n for n, (kind, path) in enumerate(done) if kind == "rename" and path.startswith(folder))
    assert ("flush", done[renamed][1]) in done[:renamed]
    assert done[renamed + 1] == ("flush folder", folder)


def test_a_full_disk_is_told_before_anything_is_fetched(world: World) -> None:
    from edgekit.release.updates import download

    world.publish("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(download, "RESERVE_BYTES", 1 << 60)
        with pytest.raises(UpdateError, match="MB are free\n  nothing has changed; free some space"):
            world.update()
    assert not [path for path, _ in world.server.requests if path.endswith(".edgekit")]


def test_a_server_that_is_not_there(world: World) -> None:
    world.publish("a")
    world.server.url = "http://127.0.0.1:9"
    world.limits = DownloadLimits(attempts=2, wait_s=0.0)
    with pytest.raises(UpdateError, match=r"the repository can't be read: .*ConnectionRefusedError"):
        world.update()


def test_a_server_that_was_never_reached_is_not_waited_for_as_long(world: World) -> None:
    waited: list[float] = []
    files = HttpFiles("http://127.0.0.1:9", sleep=waited.append)
    with pytest.raises(FetchError, match="ConnectionRefusedError"):
        files.read("timestamp.json", 100)
    assert len(waited) == DownloadLimits().connect_attempts - 1

    world.server.fault = dropped
    waited.clear()
    files = HttpFiles(world.server.url, sleep=waited.append)
    with pytest.raises(FetchError, match="RemoteDisconnected"):
        files.read("timestamp.json", 100)
    assert len(waited) == DownloadLimits().attempts - 1


def dropped(handler: Handler, _: bytes) -> bool:
    handler.close_connection = True
    return True
