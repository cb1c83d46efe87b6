"""Figures from a device put into a bundle: it is read again, added to and replaced by a rename."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.device_evidence import KEY
from edgekit.errors import DeviceError
from edgekit.system.atomic_files import locked, private_folder
from edgekit.system.cache_folder import cache_folder
from edgekit.tensor_spec import Json

KEPT_NODES = 200
"""Of a variant's nodes and values, the slowest and the noisiest: a manifest has a size limit."""
BENCH_FIELDS = (
    "engine", "device", "precision", "threads", "load_ms", "first_ms", "p50_ms", "p50_is", "p95_ms",
    "p99_ms", "runs", "rss_mb", "energy_j", "seconds", "drift_percent",
)  # fmt: skip
EXPLAIN_FIELDS = ("threads", "run_ms", "nodes_ms", "how", "no_times", "against", "no_values")
NODE_FIELDS = ("node", "op", "source", "ms")
VALUE_FIELDS = ("node", "op", "source", "value", "snr_db", "adds_db")
FACTS = ("cpu", "isa", "machine", "system", "python")
LOCK_SECONDS = 60.0


def merge(
    path: Path,
    measured_of: Mapping[str, Json],
    verb: str,
    rows_by_tool: Mapping[str, Sequence[Mapping[str, Any]]],
    device: Mapping[str, Any],
) -> str:
    """Add what was measured to a bundle's file.

    Args:
        measured_of: Its manifest, as it was sent to the device.
        verb: ``bench``, ``verify`` or ``explain``.
        rows_by_tool: ``edgekit``, or the tool or browser's engine that measured -> rows as the verb's
            ``--json`` has them, with ``variant``.
        device: ``cpu``, ``isa``, ``machine``, ``system`` and ``python``. No address: a bundle travels.

    Returns:
        The bundle's new digest.

    Raises:
        DeviceError: the file holds another bundle by now; it is left as it is.
        BundleError: it can't be read or written; it is left as it is.
    """
    locks = cache_folder() / "devices"
    private_folder(locks)
    lock = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    with locked(locks / f".{lock}", LOCK_SECONDS), Bundle.open(path) as bundle:
        if _built(bundle.manifest) != _built(measured_of):
            raise DeviceError(
                f"{path} was built again while the device ran the old one\n"
                "  nothing was written; run it again"
            )
        extensions = dict(bundle.manifest.get("extensions") or {})
        for tool, results in rows_by_tool.items():
            names = {variant["name"] for variant in bundle.manifest["variants"]}
            rows = [
                row for row in results if row["variant"] in names
            ]  # later stages have manifests of their own
            extensions[KEY] = with_results(extensions.get(KEY), verb, rows, device, tool)
        manifest = {**bundle.manifest, "extensions": extensions}
        entries = {entry["name"]: bytes(bundle.read(entry["name"])) for entry in manifest["entries"]}
        merged = Bundle.create(manifest, entries)
        merged.save(path, path.stat().st_mode & 0o777)
    return merged.digest


def with_results(
    devices: Json,
    verb: str,
    results: Sequence[Mapping[str, Any]],
    device: Mapping[str, Any],
    tool: str,
) -> list[Json]:
    """Return the list of devices with new results, which replace those of the same processor, tool, variant
    and threads."""
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    records = [dict(row) for row in devices if isinstance(row, dict)] if isinstance(devices, list) else []
    identity = (device["cpu"], list(device["isa"]), device["machine"], tool)
    record = next(
        (r for r in records if (r.get("cpu"), r.get("isa"), r.get("machine"), r.get("by")) == identity), None
    )
    if record is None:
        record = {"variants": {}}
        records.append(record)
    record |= {name: device[name] for name in FACTS if name in device}
    record["by"] = tool
    variants = record["variants"] = dict(record.get("variants") or {})
    for result in results:
        variant = dict(variants.get(result["variant"]) or {})
        if verb == "bench":
            old = variant.get("bench")
            rows = [
                row
                for row in (old if isinstance(old, list) else [])
                if isinstance(row, dict) and row.get("threads") != result.get("threads")
            ]
            variant["bench"] = [*rows, {**_selected(result, BENCH_FIELDS), "measured": now}]
        else:
            summary = _explained(result) if verb == "explain" else _selected(result, ("status", "outputs"))
            variant[verb] = {**summary, "measured": now}
        variants[result["variant"]] = variant
    return records


def _explained(result: Mapping[str, Any]) -> dict[str, Json]:
    nodes = [_selected(node, NODE_FIELDS) for node in result["nodes"][:KEPT_NODES]]
    values = [_selected(value, VALUE_FIELDS) for value in result["values"][:KEPT_NODES]]
    return {**_selected(result, EXPLAIN_FIELDS), "nodes": nodes, "values": values}


def _selected(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Json]:
    return {name: row[name] for name in names if name in row}


def without_devices(bundle: Bundle) -> Bundle:
    """Return the bundle as it was built, without what was measured on devices."""
    entries = {entry["name"]: bytes(bundle.read(entry["name"])) for entry in bundle.manifest["entries"]}
    return Bundle.create(_built(bundle.manifest), entries)


def _built(manifest: Mapping[str, Json]) -> dict[str, Json]:
    extensions = {key: value for key, value in (manifest.get("extensions") or {}).items() if key != KEY}
    rest = {key: value for key, value in manifest.items() if key != "extensions"}
    return {**rest, "extensions": extensions} if extensions else rest
