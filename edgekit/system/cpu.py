"""This machine's processor: its name, its kind, and how many of its cores a run may use."""

from __future__ import annotations

import contextlib
import os
import platform
from functools import cache
from pathlib import Path

from edgekit.errors import UsageError

THREADS_LIMIT = 4


ASKED_LIMIT = 1024
"""Threads that may be asked for: with 5,000 ONNX Runtime does not come back, with 100,000 nor the machine."""


def allowed_threads(threads: int) -> int:
    """The threads that were asked for.

    Raises:
        UsageError: they are not from 1 to ASKED_LIMIT.
    """
    if not isinstance(threads, int) or not 1 <= threads <= ASKED_LIMIT:
        raise UsageError(f"threads must be a whole number from 1 to {ASKED_LIMIT}, not {threads!r}")
    return threads


def default_threads() -> int:
    """The cores that this process may use, at most 4."""
    own = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if own else os.cpu_count() or 1
    return min(THREADS_LIMIT, cores)


@cache
def cpu_name() -> str:
    """The processor's name as the system tells it, e.g. ``AMD EPYC 9B45``.

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
    """One name for each kind of processor, of this machine's if none is given: systems differ.

    >>> processor_kind("AMD64"), processor_kind("arm64")
    ('x86_64', 'aarch64')
    """
    name = (machine or platform.machine()).lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)
