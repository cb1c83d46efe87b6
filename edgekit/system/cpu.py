"""This machine's processor: its name, its kind, its instruction sets, and how many cores a run may use."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.tensor_spec import Json

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


def usable_cores() -> int:
    """Return the number of cores that this process may use; of all cores if the system does not tell."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_threads() -> int:
    """Return the cores that this process may use, at most 4."""
    return min(THREADS_LIMIT, usable_cores())


@cache
def cpu_name() -> str:
    """Return the processor's name as the system reports it, e.g. ``AMD EPYC 9B45``.

    Linux: /proc/cpuinfo's ``model name`` (x86), else the board's ``Model`` and ``CPU part`` (ARM).
    """
    return name_in(_cpuinfo()) or platform.processor() or platform.machine() or "unknown CPU"


def name_in(facts: Mapping[str, str]) -> str:
    """Return the processor's name by what :func:`parse_cpuinfo` gives; "" if that does not tell."""
    board = " ".join(
        facts[key] for key in ("model", "cpu part") if key in facts and "model name" not in facts
    )
    return " ".join((facts.get("model name") or board).split())[:200]


def processor_kind(machine: str = "") -> str:
    """Return a uniform name of a kind of processor, by default of this machine's; systems use different
    names.

    >>> processor_kind("AMD64"), processor_kind("arm64")
    ('x86_64', 'aarch64')
    """
    name = (machine or platform.machine()).lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


EXTENSIONS = (
    "avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16",
    "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip
"""The instruction set extensions that decide which kernels an engine has, by Linux's names: x86-64's, then
ARM's (asimdhp: half precision, asimddp: the int8 dot product). Linux lists no AVX_NE_CONVERT."""
_SYSCTL = {
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_FP16": "asimdhp",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}
"""https://developer.apple.com/documentation/kernel/1387446-sysctlbyname/
determining_instruction_set_characteristics. Written from it; not run on a Mac."""


@cache
def instruction_sets() -> tuple[str, ...]:
    """Return those of EXTENSIONS that this processor has, by the names of a profile's fact ``isa``.

    Empty if the system does not report them: Linux and macOS do.
    """
    if sys.platform == "darwin":
        import subprocess  # here: no other system needs it

        with contextlib.suppress(OSError, subprocess.SubprocessError):
            listed = subprocess.run(
                ["/usr/sbin/sysctl", "hw.optional"], capture_output=True, text=True, timeout=5, check=False
            )
            rows = (line.partition(":") for line in listed.stdout.splitlines())
            present = {_SYSCTL.get(name) for name, _, value in rows if value.strip() == "1"}
            return tuple(name for name in EXTENSIONS if name in present)
    facts = _cpuinfo()
    return extensions_in(facts)


def extensions_in(facts: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of EXTENSIONS that are in the result of :func:`parse_cpuinfo`."""
    flags = (facts.get("flags") or facts.get("features") or "").split()
    return tuple(name for name in EXTENSIONS if name in flags)


def lacking(options: Mapping[str, Json]) -> str:
    """Return why a variant with these options does not compute as declared on this processor, or "" if it
    does.

    Args:
        options: Options of a variant; ``needs_isa`` lists the instruction sets of which one is enough.
    """
    needed = options.get("needs_isa")
    if not isinstance(needed, list) or any(name in instruction_sets() for name in needed):
        return ""
    has = ", ".join(instruction_sets()) or "none that the system reports"
    return f"it needs a processor with {' or '.join(map(str, needed))}; this one has {has}"


def identity() -> list[str]:
    """Return the key of measurements on this processor: its name and its instruction sets.

    A virtual machine may be called ``Intel Xeon Processor`` with VNNI and without.
    """
    return [cpu_name(), *instruction_sets()]


def _cpuinfo() -> dict[str, str]:
    """Return the first value of each key in /proc/cpuinfo, keys in lower case; empty if there is none."""
    with contextlib.suppress(OSError):
        return parse_cpuinfo(Path("/proc/cpuinfo").read_text("utf-8", errors="replace"))
    return {}


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Return the first value of each key in the text of /proc/cpuinfo, keys in lower case."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip().lower(), value.strip())
    return facts
