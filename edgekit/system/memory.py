"""Memory: what the machine has, and what this process can still have, holds and gives back, on Linux."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgekit.system.interrupts import pass_on

UNKNOWN_BYTES = 1 << 50
FROZEN_AT_START = 1000
"""Most objects that an interpreter freezes by itself at its start: 375 on CPython 3.12, none on others."""
_is_own_process = False


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Return the least of what the machine has available and what the control groups leave; a large number if
    unknown.

    MemAvailable of /proc/meminfo; and limit less use of this process's group and of each around it, of
    version 2 or 1. The groups' page cache, which the kernel frees, counts as free.
    """
    return min([_of_machine(root, "MemAvailable:"), *(group.free_bytes() for group in _groups(root))])


def all_memory_bytes(root: Path = Path("/")) -> int:
    """Return the machine's or a control group's memory, the smallest; a large number if unknown."""
    return min([_of_machine(root, "MemTotal:"), *(group.limit_bytes for group in _groups(root))])


def page_faults() -> int | None:
    """Return the pages that the kernel has mapped for this process without reading a disk (``ru_minflt``), or
    None if the system does not count them."""
    try:
        import resource  # Unix only
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _of_machine(root: Path, fact: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith(fact):
                return int(line.split()[1]) << 10
    return UNKNOWN_BYTES


@dataclass(frozen=True)
class _Group:
    """A control group that limits memory; see cgroups(7)."""

    folder: Path
    limit_bytes: int
    used: str
    cache: str

    def free_bytes(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            used = int((self.folder / self.used).read_text("ascii"))
            facts = dict(
                line.split() for line in (self.folder / "memory.stat").read_text("ascii").splitlines()
            )
            return max(0, self.limit_bytes - used + int(facts.get(self.cache, 0)))
        return UNKNOWN_BYTES


def _groups(root: Path) -> list[_Group]:
    """Return the groups of this process that have a limit: its own, and those around it.

    A container sees its own group as the outermost one, under whatever name the process has outside.
    """
    groups = []
    paths = {"": "", "memory": ""}  # version 2 has no names of controllers
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            paths.update(dict.fromkeys({*controllers.split(",")} & {*paths}, path))
    top = root / "sys/fs/cgroup"
    for folder, path, limit, used, cache in (
        (top, paths[""], "memory.max", "memory.current", "inactive_file"),
        (
            top / "memory",
            paths["memory"],
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        names = [name for name in path.split("/") if name]
        for depth in range(len(names) + 1 if ".." not in names else 1):
            group = folder.joinpath(*names[:depth])
            with contextlib.suppress(OSError, ValueError):  # ``max``: no limit
                groups.append(_Group(group, int((group / limit).read_text("ascii")), used, cache))
    return groups


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
LARGE_BYTES = 1 << 20
KEPT_BYTES = 16 << 20
GROWTH_BYTES = 16 << 20
"""Growth since the last release below which a search for unused objects (0.1 s or more) isn't worthwhile."""
_baseline_bytes = 0


def return_freed_memory() -> bool:
    """Let blocks above LARGE_BYTES go back to the system when they are freed, or return False.

    glibc otherwise takes blocks of up to 32 MB from its heap after the first of that size was freed, and
    keeps what lies below any block that is still used.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))


def resident_bytes(pid: int | None = None) -> int:
    """Return the memory of a process, by default this one; 0 if it can't be read, as on macOS and Windows."""
    return _pages(pid)[0]


def _pages(pid: int | None = None) -> tuple[int, int]:
    if sys.platform != "linux":
        return 0, 0
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as file:
            resident, of_files = (
                int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in file.read().split()[1:3]
            )
    except (OSError, ValueError, IndexError) as problem:
        pass_on(problem)
        return 0, 0
    return resident, of_files


def release_unused() -> None:
    """Free objects that hold each other, and return the heap's free pages to the system.

    Nodes and values of a graph hold each other, and all constants with them. glibc keeps what is freed: after
    the calibration of a detector twice as much as was in use. Nothing is done if this process has grown by
    less than :data:`GROWTH_BYTES` since the last release.
    """
    global _baseline_bytes
    used = _own_bytes()
    _baseline_bytes = min(_baseline_bytes, used)
    if 0 < used < _baseline_bytes + GROWTH_BYTES:
        return
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)
    _baseline_bytes = _own_bytes()


def freeze_own_process() -> None:
    """Leave what a process of EdgeKit's own has loaded out of collections: modules, 0.1 s each time."""
    global _is_own_process
    _is_own_process = True
    gc.freeze()


@contextlib.contextmanager
def left_out_of_collections() -> Iterator[None]:
    """Leave the objects that exist now out of garbage collections within the block.

    A collection visits every object: 0.14 s if a detector and its calibration are in memory. Where a host
    froze its own objects (``gc.freeze``), they stay frozen and the block leaves out no others:
    ``gc.unfreeze`` would release the host's too.
    """
    gc.collect()
    if gc.get_freeze_count() > FROZEN_AT_START and not _is_own_process:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _own_bytes() -> int:
    """Return this process's memory without pages of files, which the system drops and reads as it likes."""
    resident, of_files = _pages()
    return resident - of_files
