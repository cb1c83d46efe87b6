"""Free memory: the machine's, and what a control group leaves."""

from __future__ import annotations

from pathlib import Path

from edgekit.system.memory import UNKNOWN_BYTES, all_memory_bytes, free_memory_bytes


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


def test_this_machine_has_some() -> None:
    assert 0 < free_memory_bytes() <= all_memory_bytes()
