"""Inventory of a device, and the devices known on this machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgekit.errors import DeviceError
from edgekit.system import cache_folder, cpu, json_records
from edgekit.system.formats import strict_json
from edgekit.system.formats.plain_text import size, table
from edgekit.tensor_spec import Json

KNOWN_LIMIT = 200
"""Devices remembered."""
RECORD_LIMIT_BYTES = 65_536
WORDS_LIMIT_CHARS = 200
"""Maximum length of a name in a device's answer."""
DISTRIBUTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VERSION = re.compile(r"[0-9][A-Za-z0-9.!+_-]{0,63}")
"""Both stand in lines of a file that pip reads here, in which another line could name an index."""


@dataclass(frozen=True)
class Inventory:
    """A device as it was found.

    Attributes:
        machine: Kind of processor that its Python is for, e.g. ``aarch64``, ``armv7l``; ``browser`` of a
            device that only its browser describes.
        cpu: The processor's name; "" if the system does not tell.
        isa: Its instruction set extensions (``cpu.EXTENSIONS``).
        system: ``Linux 6.1.0``.
        libc: Name and version, e.g. ``("glibc", "2.36")``; ``("", "")`` if it is another one.
        python: Version; empty if there is none that runs EdgeKit.
        memory_mb: Memory of the machine in MB. None means unknown.
        free_mb: Free disk space in EdgeKit's folder, in MB. 0 means none, or unknown.
        packages: Name (normalized as in PEP 503) -> version of the packages of its Python.
        tools: Name of a vendor's tool -> path.
    """

    machine: str
    cpu: str = ""
    isa: tuple[str, ...] = ()
    system: str = ""
    libc: tuple[str, str] = ("", "")
    python: tuple[int, ...] = ()
    memory_mb: int | None = None
    free_mb: int = 0
    packages: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)

    @property
    def python_text(self) -> str:
        return ".".join(map(str, self.python))

    def as_json(self) -> dict[str, Json]:
        row = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "packages"}
        row |= {name: list(row[name]) for name in ("isa", "libc", "python")}
        return row | {"tools": dict(self.tools)}


def normalized(name: str) -> str:
    """Normalize a distribution's name (PEP 503).

    >>> normalized("ai_edge.Litert")
    'ai-edge-litert'
    """
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def read_inventory(reported: Mapping[str, Any], device: str) -> Inventory:
    """Check and convert the inventory that the script on the device reports.

    Raises:
        DeviceError: it is malformed, or there are no wheels for the device's Python.
    """
    try:
        if reported["implementation"] != "cpython":
            raise DeviceError(
                f"{device}: its Python is {reported['implementation']}; the engines need CPython"
            )
        texts: dict[str, str] = dict(reported["texts"])
        facts = cpu.parse_cpuinfo(texts.get("/proc/cpuinfo", ""))
        memory = cpu.parse_cpuinfo(texts.get("/proc/meminfo", "")).get("memtotal", "").split()
        libc_name, libc_version = map(words, reported["libc"])
        major, minor, patch = reported["python"]
        return Inventory(
            machine=_of_python(words(reported["machine"]), int(reported["bits"])),
            cpu=cpu.name_in(facts),
            isa=cpu.extensions_in(facts),
            system=f"{words(reported['system'])} {words(reported['release'])}",
            libc=(libc_name, libc_version),
            python=(int(major), int(minor), int(patch)),
            memory_mb=int(memory[0]) >> 10 if memory and memory[0].isdigit() else None,
            free_mb=int(reported["free_bytes"]) >> 20,
            packages={
                normalized(name): version
                for name, version in reported["packages"].items()
                if DISTRIBUTION.fullmatch(name) and VERSION.fullmatch(version)
            },
            tools={words(name): words(path) for name, path in reported["tools"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DeviceError(
            f"{device} sent an invalid description: {type(problem).__name__}: {problem}"
        ) from None


def words(value: Any) -> str:
    """Check a device's text for one line of a table.

    Raises:
        ValueError: it is not valid: too long, or with control characters or line ends.
    """
    if not isinstance(value, str) or len(value) > WORDS_LIMIT_CHARS or not value.isprintable():
        raise ValueError(f"{strict_json.brief(value)} is not a name")
    return value


def _of_python(machine: str, bits: int) -> str:
    """Return the architecture of the Python program. A 64-bit kernel with 32-bit programs, as in older
    Raspberry Pi OS, reports ``aarch64`` too."""
    kind = cpu.processor_kind(machine)
    return {"aarch64": "armv7l", "x86_64": "i686"}.get(kind, kind) if bits == 32 else kind


# --- devices known here ----------------------------------------------------------------------------------


def remember(address: str, inventory: Inventory, engines: Sequence[str] = ()) -> None:
    """Note what was found on a device. Where it can't be written nothing is noted.

    Args:
        engines: Distributions with which it ran, its own and those brought, e.g. ``onnxruntime 1.23.2``.
    """
    timestamp = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    row = {"address": address, "seen": timestamp, "engines": list(engines), **inventory.as_json()}
    json_records.record(_folder(), hashlib.sha256(address.encode()).hexdigest(), row, KNOWN_LIMIT)


def known_devices() -> list[dict[str, Any]]:
    """Return the remembered devices, by address: ``Inventory.as_json``, ``address``, ``seen``,
    ``engines``."""
    rows = []
    for path in sorted(_folder().glob("*.json")):
        row = json_records.recall(_folder(), path.stem, RECORD_LIMIT_BYTES)
        if isinstance(row, dict) and isinstance(row.get("address"), str):
            rows.append(row)
    return sorted(rows, key=lambda row: str(row["address"]))


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "  no device is known here: add one with edgekit devices user@host"
    lines = table(
        ("device", "processor", "system", "Python", "memory", "free", "engines and tools", "seen (UTC)"),
        [
            (
                row["address"],
                f"{row['machine']} {row['cpu']}".strip(),
                row["system"],
                ".".join(map(str, row["python"])) or "none",
                size(row["memory_mb"] << 20) if row["memory_mb"] else "-",
                size(row["free_mb"] << 20) if row["free_mb"] else "-",
                ", ".join([*row["engines"], *row["tools"]]) or "-",
                row["seen"],
            )
            for row in rows
        ],
    )
    return "\n".join(lines)


def _folder() -> Path:
    return cache_folder.cache_folder() / "devices"
