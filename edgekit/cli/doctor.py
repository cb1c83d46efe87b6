"""The state of this machine: which engines work, and what affects their speed.

An engine is ok only if it loads: an installed package that fails on its first call (a wheel for another CPU,
a numpy that is too new) is the most common problem on a device.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgekit._version import __version__
from edgekit.errors import MissingDependency, install_line
from edgekit.system import cache_folder, confinement, cpu, json_records, onnx_runtime
from edgekit.system.formats import plain_text
from edgekit.target import registry
from edgekit.target.installed_profiles import find_profile, profile_names


class EngineStatus(Enum):
    """Status of a target's engine on this machine."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"
    """The engine is installed, but its import fails."""


@dataclass(frozen=True)
class EngineCheck:
    """A target's engine on this machine.

    Attributes:
        status: Whether it works.
        reason: The error of its import, if it is broken.
        version: Name and version, if it works.
        seconds: The time of importing it.
        install: The pip command, if it is missing.
    """

    target: str
    status: EngineStatus
    reason: str = ""
    version: str | None = None
    seconds: float | None = None
    install: str | None = None

    @property
    def broken(self) -> bool:
        return self.status is EngineStatus.BROKEN

    def as_json(self) -> dict[str, Any]:
        """``{target, status, version, seconds, install}``; ``status`` is ok, missing or ``broken: why``."""
        return {
            "target": self.target,
            "status": f"{self.status.value}: {self.reason}" if self.broken else self.status.value,
            "version": self.version,
            "seconds": self.seconds,
            "install": self.install,
        }


def engines() -> list[EngineCheck]:
    """Import and check every target's engine."""
    return [_engine(name) for name in registry.target_names()]


def _engine(name: str) -> EngineCheck:
    started = time.perf_counter()
    try:
        version = registry.engine(name).engine_version()
    except MissingDependency as missing:
        return EngineCheck(name, EngineStatus.MISSING, install=missing.install)
    except Exception as problem:  # a vendor's import may raise anything; doctor reports it
        return EngineCheck(name, EngineStatus.BROKEN, f"{type(problem).__name__}: {problem}")
    seconds = round(time.perf_counter() - started, 3)
    return EngineCheck(name, EngineStatus.OK, version=version, seconds=seconds)


def targets() -> list[dict[str, Any]]:
    """Return every target with its engine's state and its profiles: ``EngineCheck.as_json`` and
    ``profiles``."""
    names = profile_names()
    rows = [engine.as_json() for engine in engines()]
    for row in rows:
        profiles = [profile for profile, owner in names.items() if owner == row["target"]]
        row["profiles"] = {profile: find_profile(profile).title for profile in profiles}
    return rows


def tools() -> list[dict[str, Any]]:
    """List the targets' tools besides engines: ``{target, tool, found, purpose}``; ``found`` may be None.

    A target lists its tools in the ``tools`` of its ``ENGINE`` (target/contract.py).
    """
    tool_rows = []
    for name in registry.target_names():
        try:
            tools_of = registry.engine(name).ENGINE.tools
            rows = tools_of() if tools_of is not None else ()
        except Exception:  # a vendor's package may break anything; the row of its engine says so
            continue
        tool_rows += [
            dict(zip(("target", "tool", "found", "purpose"), (name, *row), strict=True)) for row in rows
        ]
    return tool_rows


def accelerators() -> list[dict[str, Any]]:
    """List the ways to GPUs, NPUs and other kernels that the engines have on this system.

    Returns:
        For each: ``target``, ``device`` (the value of ``--accelerator`` that means it), ``kind``, ``found``,
        ``name`` and ``version`` (None unless it was found), ``software``, ``install``, ``precision``,
        ``options``, ``measured`` (hardware on which models were run; "": it has not been run), ``source``.
    """
    rows = []
    for target in registry.target_names():
        try:
            module = registry.accelerators_of(registry.engine(target))
        except Exception:  # a vendor's package may break anything; the row of its engine says so
            continue
        for interface in module.INTERFACES:
            if not interface.is_for_this_system:
                continue
            accelerator, install = None, interface.install
            with suppress(Exception):  # without the engine, what installs it is the reason
                accelerator = module.find_accelerator(interface.name)
                why_absent = getattr(module, "why_absent", None)
                install = why_absent(interface.name) if accelerator is None and why_absent else install
            rows.append(
                {
                    "target": target,
                    "device": interface.name,
                    "kind": interface.kind,
                    "found": accelerator is not None,
                    "name": accelerator.name if accelerator else None,
                    "version": accelerator.version if accelerator else None,
                    "software": bool(accelerator and accelerator.software),
                    "install": install,
                    "precision": interface.precision,
                    "options": dict(interface.options),
                    "measured": interface.measured,
                    "source": interface.source,
                }
            )
    return rows


HOST_PACKAGES = {
    # module -> its name for pip: what the extra ``build`` installs
    "onnx": "onnx",
    "onnx_ir": "onnx-ir",
    "onnxruntime": "onnxruntime",
    "flatbuffers": "flatbuffers",
    "PIL": "pillow",
}


def packaging() -> dict[str, Any]:
    """Check whether this machine can build bundles: ``{status, missing, install}``."""
    missing = [name for module, name in HOST_PACKAGES.items() if find_spec(module) is None]
    install = install_line("build") if missing else None
    return {"status": "missing" if missing else "ok", "missing": missing, "install": install}


def doctor(engines: Sequence[EngineCheck]) -> dict[str, Any]:
    """Describe this machine: engines, processor, memory, clocks, Python and EdgeKit's cache."""
    governor = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    warnings = []
    if governor not in (None, "performance"):
        warnings.append(
            f"the CPU governor is {governor}: timings will vary; set it to performance for benchmarks"
        )
    telemetry = onnx_runtime.telemetry_left()  # known once the engines were imported
    if telemetry is not None:
        warnings.append(telemetry)
    if unused := json_records.why_unused(cache_folder.cache_folder()):
        warnings.append(f"{unused}; the cache is not used, and each start unpacks its variant again")
    if cache_folder.is_temporary():
        warnings.append(
            "this user has no home: the cache ends with each process; set EDGEKIT_CACHE to a folder"
        )
    return {
        "edgekit": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu.cpu_name(),
        "cores": cpu.usable_cores(),
        "features": cpu_features(),
        "memory_mb": _memory_mb(),
        "governor": governor,
        "cache": str(cache_folder.cache_folder()),
        "containment": confinement.effective_limits(),
        "engines": [engine.as_json() for engine in engines],
        "packaging": packaging(),
        "accelerators": accelerators(),
        "tools": tools(),
        "warnings": warnings,
    }


def targets_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the output of ``edgekit targets``: all names for -t, and each engine once."""
    lines = []
    for row in rows:
        engine = row["version"] or row["status"]
        for profile, title in row["profiles"].items():
            lines.append((profile, title, engine))
            engine = ""
    return "\n".join([*plain_text.table(("-t", "device", "engine"), lines), *_missing(rows)])


def doctor_text(machine: Mapping[str, Any]) -> str:
    engines = [
        (
            row["target"],
            row["status"],
            row["version"] or "-",
            f"{1000 * row['seconds']:.0f} ms" if row["seconds"] is not None else "-",
        )
        for row in machine["engines"]
    ]
    features = " ".join(machine["features"]) or "features unknown"
    memory = f"{machine['memory_mb'] / 1024:.1f} GiB" if machine["memory_mb"] else "unknown"
    lines = [
        f"  verdict   {_verdict(machine)}",
        "",
        *plain_text.table(("engine", "status", "version", "import"), engines),
        *_missing(machine["engines"]),
        "",
        *_accelerator_lines(machine["accelerators"]),
        *(f"  tools     {t['tool']}: {t['found'] or 'not found'}; {t['purpose']}" for t in machine["tools"]),
        f"  cpu       {machine['cpu']}, {machine['cores']} cores, {features}",
        f"  memory    {memory}   governor {machine['governor'] or 'unknown'}",
        f"  python    {machine['python']} on {machine['system']}   edgekit {machine['edgekit']}",
        f"  cache     {machine['cache']}",
        *_containment(machine["containment"]),
        *(f"  warning   {warning}" for warning in machine["warnings"]),
    ]
    return "\n".join(lines)


def _verdict(machine: Mapping[str, Any]) -> str:
    """Return in one sentence what this machine can do."""
    working = [row["target"] for row in machine["engines"] if row["status"] == "ok"]
    broken = [row["target"] for row in machine["engines"] if row["status"].startswith("broken")]
    host = machine["packaging"]
    parts = [f"runs bundles on {', '.join(working)}" if working else "runs no bundle: it has no engine"]
    parts += [f"broken: {', '.join(broken)}"] if broken else []
    needs = f"cannot build them without {', '.join(host['missing'])}: {host['install']}"
    return "; ".join([*parts, needs if host["missing"] else "builds them too"])


def _accelerator_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = []
    for row in rows:
        state = f"no ({row['install']})"
        if row["found"]:
            state = f"{row['name']}, computed in software" if row["software"] else row["name"]
        cells.append((row["device"], row["target"], row["kind"], row["measured"] or "not run", state))
    header = ("accelerator", "target", "kind", "was run on", "on this machine")
    return [*plain_text.table(header, cells), ""] if cells else []


def _containment(limits: Mapping[str, str]) -> list[str]:
    """Describe the active limits of the process that opens a model's file (docs/security.md)."""
    holding = ", ".join(name for name, reason in limits.items() if not reason) or "none of its limits holds"
    lacking = [f"  contained without {name}: {reason}" for name, reason in limits.items() if reason]
    return [f"  contained {holding}", *lacking]


def _missing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lacking = [f"  to add    {row['target']}: {row['install']}" for row in rows if row["install"]]
    return ["", *lacking] if lacking else []


FEATURES = {
    # instruction set extension -> what it is to an engine
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_vnni": "vnni",
    "avx_vnni": "avx-vnni",
    "avx512_bf16": "bf16",
    "avx512_fp16": "fp16",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
    "asimd": "neon",
    "asimdhp": "fp16",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
}


def cpu_features() -> list[str]:
    """Return the instruction set extensions that engines use, by common name; empty if the system hides
    them."""
    return list(dict.fromkeys(FEATURES[name] for name in cpu.instruction_sets()))


def _memory_mb() -> int | None:
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024  # the kernel says kB and means KiB
    return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text("utf-8", errors="replace").strip()
    except OSError:
        return None
