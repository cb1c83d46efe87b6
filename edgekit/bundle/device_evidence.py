"""Measurements of a bundle on devices, kept in ``extensions.devices`` of its manifest.

docs/bundle-format.md has the form. A reader that does not know it ignores it, and this one ignores malformed
records. The figures help to choose and are shown; nothing depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from edgekit.errors import printable
from edgekit.system import cpu
from edgekit.system.formats.plain_text import milliseconds, table
from edgekit.system.timings import milliseconds_of
from edgekit.tensor_spec import Json

KEY = "devices"
BY_EDGEKIT = "edgekit"
"""Measured by ``edgekit bench``, ``verify`` or ``explain`` there, and not by a vendor's tool."""
COLUMNS = ("variant", "p50", "p95", "first", "threads", "on this device")


class DeviceRecord(NamedTuple):
    """Measurements on one kind of device.

    Attributes:
        isa: Its instruction set extensions; with ``cpu`` the result of ``edgekit.system.cpu.identity`` there.
        by: Tool that measured: ``edgekit``, ``benchmark_model``, ``trtexec``, or a browser's engine.
        variants: Variant -> ``bench``: rows, one for each number of threads; ``verify``; ``explain``.
    """

    cpu: str
    isa: tuple[str, ...]
    machine: str
    system: str
    by: str
    variants: Mapping[str, Mapping[str, Json]]

    @property
    def title(self) -> str:
        """Return the device in words."""
        attribution = "" if self.by == BY_EDGEKIT else f", by {self.by}"
        return f"{self.cpu} ({self.machine}, {self.system}){attribution}"

    def rows(self, variant: str) -> list[Mapping[str, Any]]:
        """Return the ``bench`` rows of a variant that have a time."""
        bench_rows = self.variants[variant].get("bench")
        rows = bench_rows if isinstance(bench_rows, list) else []
        return [row for row in rows if isinstance(row, dict) and milliseconds_of(row) is not None]


def device_records(manifest: Mapping[str, Json]) -> list[DeviceRecord]:
    """Return the well-formed records of a manifest."""
    extensions = manifest.get("extensions")
    listed = extensions.get(KEY) if isinstance(extensions, Mapping) else None
    records = (_record(row) for row in (listed if isinstance(listed, list) else []))
    return [record for record in records if record is not None]


def _record(row: Json) -> DeviceRecord | None:
    if not isinstance(row, Mapping):
        return None
    texts: list[Any] = [row.get(name) for name in ("cpu", "machine", "system", "by")]
    isa, variants = row.get("isa"), row.get("variants")
    if not isinstance(isa, list) or not isinstance(variants, Mapping):
        return None
    if not all(isinstance(text, str) for text in (*texts, *isa)):
        return None
    name, machine, system, measured_by = map(printable, texts)
    valid_variants = {key: value for key, value in variants.items() if isinstance(value, Mapping)}
    return DeviceRecord(name, tuple(isa), machine, system, measured_by, valid_variants)


def times_of_this_processor(manifest: Mapping[str, Json], threads: int) -> dict[str, float]:
    """Return times that were measured on a processor with the name, kind and instruction sets of this one.

    Args:
        threads: Number of threads of a run; times with another number are left out.

    Returns:
        Variant -> median of a run through a Session, in ms.
    """
    times: dict[str, float] = {}
    if KEY not in (manifest.get("extensions") or {}):
        return times
    for record in device_records(manifest):
        same = [record.cpu, *record.isa] == cpu.identity() and record.machine == cpu.processor_kind()
        if not same or record.by != BY_EDGEKIT:
            continue
        for variant in record.variants:
            for row in record.rows(variant):
                if row.get("threads") == threads:
                    times[variant] = float(row["p50_ms"])
    return times


def tables(manifest: Mapping[str, Json]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return the title and the rows under ``COLUMNS`` for each device."""
    sections = []
    for record in device_records(manifest):
        rows = [row for variant in record.variants for row in _rows(record, variant)]
        if rows:
            sections.append((record.title, rows))
    return sections


def lines(manifest: Mapping[str, Json]) -> list[str]:
    """Return the tables as text."""
    text_lines: list[str] = []
    for title, rows in tables(manifest):
        text_lines += ["", f"  measured on {title}", *table(COLUMNS, rows)]
    return text_lines


def _rows(record: DeviceRecord, variant: str) -> Sequence[tuple[str, ...]]:
    verified = record.variants[variant].get("verify")
    status = str(verified.get("status", "-")) if isinstance(verified, Mapping) else "-"
    rows = [
        (variant, *(_time(row, name) for name in ("p50_ms", "p95_ms", "first_ms")), str(row.get("threads")))
        for row in record.rows(variant)
    ]
    empty = [(variant, "-", "-", "-", "-")] if status != "-" else []
    return [tuple(map(printable, (*row, status))) for row in rows or empty]


def _time(row: Mapping[str, Json], name: str) -> str:
    value = milliseconds_of({"p50_ms": row.get(name)})
    average = " (average)" if name == "p50_ms" and row.get("p50_is") == "average" else ""
    return "-" if value is None else f"{milliseconds(value)}{average}"
