"""Free memory: the machine's, and what a control group leaves."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.system.memory import (
    UNKNOWN_BYTES,
    all_memory_bytes,
    free_memory_bytes,
    release_unused,
    resident_bytes,
)
from edgekit.system.progress import stage


def test_the_least_of_machine_and_group_counts(tmp_path: Path) -> None:
    assert free_memory_bytes(tmp_path) == all_memory_bytes(tmp_path) == UNKNOWN_BYTES
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:     2048 kB\n")
    assert free_memory_bytes(tmp_path) == 2 << 20
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1500000\n")
    (group / "memory.stat").write_text("anon 900000\ninactive_file 100000\n")
    (group / "memory.max").write_text("2000000\n")
    assert free_memory_bytes(tmp_path) == 600_000
    assert all_memory_bytes(tmp_path) == 9 << 10
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4096 kB\nMemAvailable:     2048 kB\n")
    assert all_memory_bytes(tmp_path) == 2_000_000
    (group / "memory.max").write_text("max\n")
    assert all_memory_bytes(tmp_path) == 4 << 20
    assert free_memory_bytes(tmp_path) == 2 << 20


@pytest.mark.parametrize(
    ("line", "folder", "names"),
    [
        ("0::/system.slice/app.service", "", ("memory.max", "memory.current", "inactive_file")),
        (
            "4:cpu,memory:/system.slice/app.service",
            "memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_the_group_of_the_process_and_those_around_it_count(
    tmp_path: Path, line: str, folder: str, names: tuple[str, str, str]
) -> None:
    limit, used, cache = names
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"1:name=systemd:/\n{line}\n")
    outer = tmp_path / "sys/fs/cgroup" / folder / "system.slice"
    inner = outer / "app.service"
    inner.mkdir(parents=True)
    for group, most in ((inner, 3_000_000), (outer, 9_000_000)):
        (group / limit).write_text(f"{most}\n")
        (group / used).write_text("2500000\n")
        (group / "memory.stat").write_text(f"{cache} 100000\n")
    assert (all_memory_bytes(tmp_path), free_memory_bytes(tmp_path)) == (3_000_000, 600_000)
    (inner / limit).write_text("max\n")
    assert (all_memory_bytes(tmp_path), free_memory_bytes(tmp_path)) == (9_000_000, 6_600_000)
    (tmp_path / "proc/self/cgroup").write_text(line.replace("/system.slice", "/../system.slice") + "\n")
    assert all_memory_bytes(tmp_path) == UNKNOWN_BYTES, "it lies outside of what a container sees"


def test_this_machine_has_some() -> None:
    assert 0 < free_memory_bytes() <= all_memory_bytes()


SCRIPT = """
from edgekit.system.memory import return_freed_memory
from edgekit.system.memory import resident_bytes
if not return_freed_memory():
    raise SystemExit(3)
bytearray(b"x" * (30 << 20))  # glibc takes blocks of this size from its heap after one of them was freed
large = [bytearray(b"x" * (20 << 20)) for _ in range(5)]
small = [bytearray(b"x" * 3000) for _ in range(100)]
before = resident_bytes()
del large
print(before - resident_bytes())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's mallopt")
def test_large_blocks_go_back_though_small_ones_lie_above_them() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    if ran.returncode == 3:
        pytest.skip("the C library is not glibc")
    assert int(ran.stdout) > 95 << 20, ran.stderr


SIZE_BYTES = 64_000_000


def test_objects_that_hold_each_other_are_freed_when_a_stage_ends() -> None:
    """As nodes and values of a graph do, with all constants."""
    gc.disable()
    try:
        with stage(lambda progress: None, "compiled"):
            circle: list[object] = [np.ones(SIZE_BYTES, np.uint8)]
            circle.append(circle)
            del circle
            before = resident_bytes()
        assert before - resident_bytes() > SIZE_BYTES // 2
    finally:
        gc.enable()


COLLECTED = """
import gc
from edgekit.system.memory import FROZEN_AT_START, freeze_own_process, left_out_of_collections

def visited(item):
    return id(item) in {id(one) for one in gc.get_objects()}

assert gc.get_freeze_count() < FROZEN_AT_START
FREEZE
before, frozen = [], gc.get_freeze_count()
with left_out_of_collections():
    after = []
    print(visited(before), visited(after), end=" ")
print(visited(before), gc.get_freeze_count() >= frozen > FROZEN_AT_START)
"""


@pytest.mark.parametrize(
    ("freeze", "visits"),
    [
        ("", "False True True False"),
        ("freeze_own_process()", "False True True False"),
        ("gc.freeze()", "True True True True"),  # the host's stays as it is
    ],
)
def test_what_existed_before_is_left_out_of_collections(freeze: str, visits: str) -> None:
    script = COLLECTED.replace("FREEZE", freeze)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == visits.split(), ran.stderr


def test_the_heap_s_free_pages_are_returned() -> None:
    """Holes between blocks that are in use, where the heap does not shrink by itself."""
    blocks = [bytearray(b"x") * 100_000 for _ in range(SIZE_BYTES // 100_000)]
    kept = blocks[::10]
    blocks.clear()
    before = resident_bytes()
    release_unused()
    assert before - resident_bytes() > SIZE_BYTES // 2
    assert kept


@pytest.mark.skipif(sys.platform != "linux", reason="a process's memory is not read elsewhere")
def test_a_process_that_has_not_grown_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    release_unused()
    searches: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: searches.append("searched"))
    release_unused()
    assert searches == []
    grown = np.ones(SIZE_BYTES, np.uint8)
    release_unused()
    assert (searches, grown[0]) == (["searched"], 1)
