"""This machine's processor: its name, its kind, and how many of its cores a run may use."""

from __future__ import annotations

import contextlib
import os
import platform
from functools import cache
from pathlib import Path

from edgekit.errors import UsageError

THREADS_LIMIT = 4


MAX_THREADS = 1024
"""Maximum of the threads option: with 5,000 ONNX Runtime hangs, with 100,000 the machine does."""


def allowed_threads(threads: int) -> int:
    """Validate a number of threads.

    Raises:
        UsageError: it is not from 1 to MAX_THREADS.
    """
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads must be a whole number from 1 to {MAX_THREADS}, not {threads!r}")
    return threads


def default_threads() -> int:
    """The cores that this process may use, at most 4."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(THREADS_LIMIT, cores)


@cache
def cpu_name() -> str:
    """The processor's name as the system reports it, e.g. ``AMD EPYC 9B45``.

    Linux: /proc/cpuinfo's ``model name`` (x86), else the board's ``Model`` and ``CPU part`` (ARM).
    """
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip().lower(), value.strip())
    board = " ".join(
        facts[key] for key in ("model", "cpu part") if key in facts and "model name" not in facts
    )
    name = facts.get("model name") or board or platform.processor() or platform.machine() or "unknown CPU"
    return " ".join(name.split())[:200]


def processor_kind(machine: str = "") -> str:
    """A uniform name of a kind of processor, by default of this machine's; systems use different names.

    >>> processor_kind("AMD64"), processor_kind("arm64")
    ('x86_64', 'aarch64')
    """
    name = (machine or platform.machine()).lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
