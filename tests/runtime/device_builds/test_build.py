"""Engines built in a child that crashes, hangs, eats memory, lies, or is killed at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.errors import EngineError, EngineNotReady
from edgekit.runtime.device_builds import build as device_build
from edgekit.runtime.device_builds.build import (
    EngineBuild,
    EngineLimits,
    ready_or_build,
)
from edgekit.runtime.device_builds.engine_store import ENGINE, EngineStore, Ledger
from tests.fixtures.child_processes import children
from tests.runtime.device_builds.fake_builder import CONTENT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="engines are built on Linux")
BUILDER = Path(__file__).with_name("fake_builder.py")
NAME = "f" * 64


def command(how: str) -> list[str]:
    return [sys.executable, "-SE", str(BUILDER), how]


def built(how: str, limits: EngineLimits | None = None) -> EngineBuild:
    """A build that ended."""
    build = EngineBuild(EngineStore(), NAME, command(how), limits or EngineLimits(seconds=60))
    assert build.wait(60)
    return build


def test_a_good_builder_leaves_a_whole_engine_and_what_it_measured() -> None:
    build = built("works")
    store = EngineStore()
    assert (build.stage, build.reason) == ("ready", "")
    assert store.state(NAME) == "whole"
    assert (store.folder(NAME) / ENGINE).read_bytes() == CONTENT
    assert store.meta(NAME)["golden_db"] == 42.0
    assert store.ledger(NAME) == Ledger()
    assert sorted(p.name for p in store.root.iterdir()) == sorted([".lock", NAME, f"{NAME}.json"])


BAD = {
    "crashes": "the builder was killed by signal 11",
    "fails": "the builder exited with code 2: the parser refused Conv_3",
    "writes short": "the engine file does not match the sha256 in result.json",
    "says nothing": "the builder wrote no result.json",
    "computes wrong numbers": "output y: SNR -3.0 dB; fp16 needs 20 dB",
    "hangs": "the builder was killed after 0.3 s",
    "eats": "the builder was killed at",
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_builder_leaves_no_engine_and_two_switch_it_off(how: str) -> None:
    limits = EngineLimits(seconds=0.3) if how == "hangs" else EngineLimits(memory_mb=60)
    build = built(how, limits)
    assert build.stage == "failed"
    assert build.reason.startswith(BAD[how])
    store = EngineStore()
    assert store.state(NAME) == "absent"
    assert [why[: len(BAD[how])] for why in store.ledger(NAME).failures] == [BAD[how]]
    built(how, limits)
    with pytest.raises(EngineError, match=r"^disabled after 2 failures, the last: "):
        ready_or_build(store, NAME, lambda: command("works"), limits)


def test_another_fingerprint_is_not_switched_off() -> None:
    built("crashes")
    built("crashes")
    with pytest.raises(EngineNotReady) as found:
        ready_or_build(EngineStore(), "e" * 64, lambda: command("works"), EngineLimits())
    assert found.value.build.wait(30)
    assert EngineStore().state("e" * 64) == "whole"


def test_little_memory_left_for_others_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_build, "free_memory_mb", lambda: 50)
    build = built("hangs")
    assert build.reason == "the builder was killed with 50 MB of memory left for other processes"


@pytest.mark.parametrize("what", ["disk", "memory"])
def test_no_room_is_said_and_counts_as_no_failure(what: str) -> None:
    limits = EngineLimits(needs_disk_mb=10**9) if what == "disk" else EngineLimits(needs_memory_mb=10**9)
    words = rf"^\d+ MB of {what} are free; building needs 1000000000 MB$"
    with pytest.raises(EngineError, match=words):
        ready_or_build(EngineStore(), NAME, lambda: command("works"), limits)
    assert EngineStore().ledger(NAME).failures == ()


def test_the_first_call_builds_and_the_next_one_finds_it() -> None:
    store = EngineStore()
    with pytest.raises(EngineNotReady, match=r"^its engine is being built on this device$") as found:
        ready_or_build(store, NAME, lambda: command("works"), EngineLimits())
    with pytest.raises(EngineNotReady) as again:
        ready_or_build(store, NAME, lambda: command("crashes"), EngineLimits())
    assert again.value.build is found.value.build
    assert found.value.build.wait(30)
    assert ready_or_build(store, NAME, lambda: command("crashes"), EngineLimits()).read_bytes() == CONTENT


def test_a_damaged_engine_is_set_aside_and_built_again() -> None:
    built("works")
    store = EngineStore()
    (store.folder(NAME) / ENGINE).write_bytes(CONTENT[:-1])
    with pytest.raises(EngineNotReady) as found:
        ready_or_build(store, NAME, lambda: command("works"), EngineLimits())
    assert found.value.build.wait(30)
    assert store.state(NAME) == "whole"
    assert len([p for p in store.root.iterdir() if p.name.endswith(".damaged")]) == 1


def test_a_disk_that_damages_engines_does_not_get_one_at_every_start() -> None:
    store = EngineStore()
    for _ in range(2):
        built("works")
        (store.folder(NAME) / ENGINE).write_bytes(CONTENT[:-1])
        device_build.check_engine(store, NAME, EngineLimits())
    with pytest.raises(EngineError, match=r"^disabled after 2 failures, the last: its file was damaged$"):
        ready_or_build(store, NAME, lambda: command("works"), EngineLimits())


def test_a_builder_that_the_disk_has_no_room_for_counts_as_no_failure() -> None:
    for _ in range(3):
        assert built("fills the disk").reason == "the disk was full"
    assert EngineStore().ledger(NAME) == Ledger()
    assert built("works").reason == ""


def test_the_app_sees_where_the_build_is() -> None:
    build = EngineBuild(EngineStore(), NAME, command("verifies"), EngineLimits())
    seen = [build.stage]
    while not build.done:
        if build.stage != seen[-1]:
            seen.append(build.stage)
        time.sleep(0.005)
    seen.append(build.stage)
    assert [s for s in dict.fromkeys(seen) if s != "waiting"] == ["building", "verifying", "ready"]


def test_one_builder_at_a_time() -> None:
    store = EngineStore()
    with store.lock() as mine:
        assert mine
        build = EngineBuild(store, NAME, command("works"), EngineLimits())
        assert not build.wait(0.3)
        assert build.stage == "waiting"
    assert build.wait(30)
    assert build.stage == "ready"


def test_a_build_that_is_stopped_counts_as_no_failure() -> None:
    build = EngineBuild(EngineStore(), NAME, command("hangs"), EngineLimits())
    time.sleep(0.1)
    build.stop()
    assert (build.stage, build.reason) == ("failed", "stopped")
    assert EngineStore().ledger(NAME) == Ledger()


def test_a_cache_that_cannot_be_used_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match=r"engines cannot be used: Not a directory$"):
        ready_or_build(EngineStore(), NAME, lambda: command("works"), EngineLimits())


@pytest.mark.slow
def test_a_builder_killed_at_any_moment_leaves_a_whole_engine_or_none() -> None:
    """200 seeded kills, from before its first instruction to after its last."""
    draw = random.Random(6)
    began = time.monotonic()
    built("slowly")
    took = time.monotonic() - began
    whole = 0
    for number in range(200):
        store = EngineStore()
        name = f"{number:064d}"
        build = EngineBuild(store, name, command("slowly"), EngineLimits())
        while build.stage == "waiting":
            time.sleep(0.0005)
        time.sleep(draw.uniform(0, 1.3 * took))
        for pid in children():
            _kill(pid)
        assert build.wait(30)
        state = store.state(name)
        assert state == ("whole" if build.stage == "ready" else "absent")
        assert build.reason == ("" if build.stage == "ready" else "the builder was killed by signal 9")
        if state == "whole":
            whole += 1
            assert (store.folder(name) / ENGINE).read_bytes() == CONTENT
    assert 0 < whole < 200  # both ends were reached


APP = """
import sys
from edgekit.runtime.device_builds.build import EngineBuild, EngineLimits
from edgekit.runtime.device_builds.engine_store import EngineStore
print("begins", flush=True)
build = EngineBuild(EngineStore(), sys.argv[1], sys.argv[2:], EngineLimits())
build.wait()
"""


def _app_that_builds(name: str) -> subprocess.Popen[str]:
    """One that has begun."""
    app = subprocess.Popen(
        [sys.executable, "-c", APP, name, *command("slowly")], stdout=subprocess.PIPE, text=True
    )
    assert app.stdout is not None
    with app.stdout:
        assert app.stdout.readline() == "begins\n"
    return app


def test_an_app_killed_at_any_moment_leaves_a_whole_engine_or_none() -> None:
    """15 kills of the process that watches the builder, the first at once, the last once it has ended; what
    is there is whole."""
    draw = random.Random(7)
    whole = _app_that_builds("f" * 64)
    began = time.monotonic()
    assert whole.wait(60) == 0
    took = time.monotonic() - began
    states = []
    for number, after in enumerate([0.0, *(draw.uniform(0, 1.2) for _ in range(13)), None]):
        name = f"{number:064d}"
        app = _app_that_builds(name)
        if after is None:
            app.wait(60)
        else:
            time.sleep(after * took)
        app.kill()
        app.wait()
        store = EngineStore()
        states.append(store.state(name))
        ledger = store.ledger(name)
        assert states[-1] in ("absent", "whole")
        assert ledger.failures == ()
        assert (ledger.doing, ledger.process) == ("", "")
        assert ledger.interruptions <= 1
    assert set(states) == {"absent", "whole"}
    build = EngineBuild(EngineStore(), NAME, command("works"), EngineLimits())
    assert build.wait(30)
    assert build.stage == "ready"
    assert not hidden_folders(EngineStore())


HITS = [
    (call, number, effect)
    for call, last in (("fsync", 6), ("rename", 3))
    for number in range(1, last)
    for effect in ("error=ENOSPC", "signal=KILL")
]
"""Of the thread that puts an engine down: its flushes and renames, each hit once."""


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
@pytest.mark.parametrize(("call", "number", "effect"), HITS)
def test_an_app_hit_while_it_puts_an_engine_down_leaves_a_whole_one_or_none(
    tmp_path: Path, call: str, number: int, effect: str
) -> None:
    """The disk is full at its n-th flush or rename, or it dies there; the builder itself ended well."""
    trace, store = tmp_path / "trace", EngineStore()
    inject = ["strace", "-qq", "-f", "-o", str(trace), "-e", f"inject={call}:{effect}:when={number}"]
    app = [sys.executable, "-c", APP, NAME, *command("works")]
    done = subprocess.run([*inject, *app], capture_output=True, text=True, timeout=60, check=False)
    full = "ENOSPC" in effect
    assert done.returncode == (0 if full else -signal.SIGKILL)
    assert not full or "(INJECTED)" in trace.read_text()
    state = store.state(NAME)
    assert state in ("whole", "absent")
    assert not full or not hidden_folders(store)
    assert store.ledger(NAME).failures == ()
    assert built("works" if state == "absent" else "crashes").stage == "ready"
    assert not hidden_folders(store)


def hidden_folders(store: EngineStore) -> list[Path]:
    """Drafts and damaged engines."""
    return [path for path in store.root.iterdir() if path.name.startswith(".") and path.is_dir()]


def test_five_builds_that_died_with_their_app_switch_it_off() -> None:
    store = EngineStore()
    store.remember(NAME, Ledger(interruptions=5))
    with pytest.raises(EngineError, match=r"^disabled: the app died during 5 builds$"):
        ready_or_build(store, NAME, lambda: command("works"), EngineLimits())


def test_a_process_that_died_while_it_loaded_is_a_failure() -> None:
    script = (
        "import os\nfrom edgekit.runtime.device_builds.engine_store import EngineStore\n"
        f"with EngineStore().doing({NAME!r}, 'load'): os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    assert EngineStore().ledger(NAME).failures == ("the process died while loading the engine",)
    assert EngineStore().ledger(NAME).failures == ("the process died while loading the engine",)


def test_what_a_living_process_does_is_no_failure() -> None:
    store = EngineStore()
    with store.doing(NAME, "load"):
        assert EngineStore().ledger(NAME).failures == ()
        assert EngineStore().ledger(NAME).doing == "load"
    assert EngineStore().ledger(NAME) == Ledger()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"failures": 3}', b"\xff", b'{"interruptions": "many"}'])
def test_a_ledger_that_makes_no_sense_is_none(content: bytes) -> None:
    store = EngineStore()
    store.remember(NAME, Ledger())
    (store.root / f"{NAME}.json").write_bytes(content)
    assert store.ledger(NAME) == Ledger()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("above", [False, True])
def test_no_engine_of_a_folder_that_others_may_write_to_is_loaded_or_built(above: bool) -> None:
    """An engine is code, and a ledger of theirs would switch one off."""
    assert built("works").stage == "ready"
    store = EngineStore()
    place = store.root.parent if above else store.root
    place.chmod(0o777)
    what = f"{place}, where it is" if above else "it"
    with pytest.raises(EngineError) as error:
        ready_or_build(store, NAME, lambda: command("works"), EngineLimits())
    assert str(error.value) == f"{store.root} cannot be used: other users can write to {what}"
    assert error.value.blame == "machine"
    for look in (store.state, store.ledger):
        with pytest.raises(PermissionError):
            look(NAME)
    build = EngineBuild(store, "e" * 64, command("works"), EngineLimits())
    assert build.wait(60)
    assert build.reason == str(error.value)
    place.chmod(0o700)
    assert [path.name for path in store.root.glob("e*")] == []
    assert (
        ready_or_build(store, NAME, lambda: command("works"), EngineLimits()) == store.folder(NAME) / ENGINE
    )
    store.folder(NAME).chmod(0o770)
    assert store.state(NAME) == "damaged"


@pytest.mark.parametrize("name", ["lock", "ledger"])
def test_a_pipe_in_the_folder_of_engines_is_waited_for_by_nobody(name: str) -> None:
    store = EngineStore()
    store.remember(NAME, Ledger(("crashed",)))
    path = store.root / {"lock": ".lock", "ledger": f"{NAME}.json"}[name]
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if name == "ledger":
        assert store.ledger(NAME) == Ledger()
    else:
        with pytest.raises(OSError, match="it is not a regular file"), store.lock():
            pass
