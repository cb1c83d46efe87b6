"""Run of a verb on a device: look at the device, install missing packages, measure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.device_evidence import BY_EDGEKIT, KEY
from edgekit.bundle.kept_variants import kept_variants
from edgekit.bundle.variant import Variant
from edgekit.devices import inventory as inventories
from edgekit.devices import provision, vendor_tools
from edgekit.devices.connection import Connection, NoPython
from edgekit.devices.inventory import Inventory
from edgekit.devices.transport import DeviceAddress, parse_address
from edgekit.errors import DeviceError
from edgekit.system.atomic_files import locked, private_folder
from edgekit.system.cache_folder import cache_folder
from edgekit.system.formats.plain_text import size
from edgekit.tensor_spec import Json

NEEDS = {"explain": ("build",)}
"""Extras that a verb needs besides engines. LiteRT's operators are timed as graphs cut out of the file, and
their names are read from it."""
ROOM = 4
"""Required space as a multiple of an archive's size: the archive and its unpacked files."""


@dataclass(frozen=True)
class Measured:
    """Results of a verb on a device.

    Attributes:
        device: Facts of the device: ``{cpu, isa, machine, system, python, cores}``.
        rows_by_tool: ``edgekit``, or each vendor's tool that measured -> rows as in the verb's ``--json``.
        manifest: Manifest of the measured bundle.
    """

    device: Mapping[str, Any]
    rows_by_tool: Mapping[str, list[Any]]
    manifest: Mapping[str, Json]

    @property
    def results(self) -> list[Any]:
        return [row for rows in self.rows_by_tool.values() for row in rows]

    @property
    def by_tools(self) -> bool:
        """Return whether a vendor's tool measured."""
        return BY_EDGEKIT not in self.rows_by_tool

    def merge_into(self, path: Path, verb: str) -> str:
        """Add the results to the bundle's file with :func:`merge`."""
        return merge(path, self.manifest, verb, self.rows_by_tool, self.device)


def look(address: DeviceAddress, notify: Callable[[str], None]) -> tuple[Connection, Inventory]:
    """Reach a device and see what is there.

    Raises:
        DeviceError: it can't be reached.
        NoPython: nothing there runs EdgeKit.
    """
    connection = Connection(address, notify)
    inventory = inventories.read_inventory(connection.ask({"do": "inventory"}), address.text)
    libc = " ".join(inventory.libc).strip() or "a libc other than glibc"
    notify(f"{address.text}: {inventory.machine}, CPython {inventory.python_text}, {libc}")
    return connection, inventory


def inspect(device: str, notify: Callable[[str], None]) -> Inventory:
    """Look at a device and remember what is there."""
    address = parse_address(device)
    try:
        _, inventory = look(address, notify)
    except NoPython:
        inventory = vendor_tools.look_for_tools(address)
        notify(f"{device}: {inventory.machine}, no Python 3.10 or newer")
    inventories.remember(address.text, inventory)
    return inventory


def measure(
    path: Path,
    device: str,
    verb: str,
    options: Mapping[str, Json],
    notify: Callable[[str], None],
    samples: provision.Samples | None = None,
) -> Measured:
    """Run a verb on a device.

    Args:
        verb: ``bench``, ``evaluate``, ``explain`` or ``verify``.
        options: The verb's, by the names of its Python function.
        notify: Takes lines for the user: what was found, what is brought, a connection that was lost.
        samples: Samples that the verb needs.

    Raises:
        UsageError: the address is none.
        DeviceError: the device can't be reached, or lacks what can't be brought.
        BundleError: the bundle is damaged.
        NoVariantError: the build rejected every variant.
    """
    address = parse_address(device)
    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        content = b"".join(without_devices(bundle).pieces())  # the same after each --merge
        targets = _targets(bundle, options)
        manifest = bundle.manifest
    try:
        connection, inventory = look(address, notify)
    except NoPython:
        if verb == "bench":
            notify(f"{device} has no Python 3.10 or newer: looking for vendors' tools")
            return _by_tools(path, address, options, notify)
        raise DeviceError(f"{device} has no Python 3.10 or newer, which {verb} needs") from None
    extras = NEEDS.get(verb, ()) if samples is None else samples.extras
    needed = provision.missing_packages(targets, inventory, extras)
    archives = [provision.edgekit_archive(targets)]
    packages = provision.packages_archive(needed, inventory, device)
    if packages is not None:
        archives.insert(0, packages)
    request: dict[str, Json] = {"verb": verb, "options": dict(options)}
    if samples is not None:
        archives.append(samples.archive)
        request["samples"] = f"{samples.archive.digest}/{samples.folder}"
    room_mb = (ROOM * sum(len(archive.content) for archive in archives) + len(content)) >> 20
    if inventory.free_mb < room_mb:
        raise DeviceError(
            f"{device} has {inventory.free_mb} MB of free space but needs {room_mb} MB; free some space"
        )
    for archive in archives:
        sent = connection.send(archive.content, archive.digest, unpack=True)
        if sent:
            notify(f"{device}: brought {', '.join(archive.holds)} ({size(len(archive.content))})")
    digest = hashlib.sha256(content).hexdigest()
    connection.send(content, digest, unpack=False)
    answer = connection.ask(
        {"do": "measure", "packages": [a.digest for a in archives], "bundle": digest, "request": request}
    )
    engines = [f"{name} {version}" for name, version in needed.present.items()]
    inventories.remember(address.text, inventory, [*engines, *(packages.holds if packages else ())])
    facts, results = _checked(answer, verb, manifest, device)
    return Measured(facts, {BY_EDGEKIT: results}, manifest)


def _by_tools(
    path: Path, address: DeviceAddress, options: Mapping[str, Json], notify: Callable[[str], None]
) -> Measured:
    inventory = vendor_tools.look_for_tools(address)
    threads = int(options.get("threads") or 1)
    with Bundle.open(path) as bundle:
        chosen = _chosen(bundle, options)
        rows = vendor_tools.bench_by_tools(
            bundle, chosen, address, inventory, threads, float(options["seconds"]), notify
        )
        manifest = bundle.manifest
    inventories.remember(address.text, inventory)
    facts = {
        "cpu": inventory.cpu,
        "isa": list(inventory.isa),
        "machine": inventory.machine,
        "system": inventory.system,
    }
    return Measured({**facts, "python": ""}, rows, manifest)


def _targets(bundle: Bundle, options: Mapping[str, Json]) -> list[str]:
    targets = {variant.target for variant in _chosen(bundle, options) or kept_variants(bundle)}
    for name in bundle.stages:
        of_stage = {variant.target for variant in kept_variants(bundle.stage(name))}
        targets |= of_stage & targets or of_stage
    return sorted(targets)


def _chosen(bundle: Bundle, options: Mapping[str, Json]) -> list[Variant]:
    variants = kept_variants(bundle)
    engine, variant, name = (options.get(key) for key in ("engine", "variant", "name"))
    return [
        v
        for v in variants
        if engine in (None, v.target)
        and variant in (None, v.name)
        and name in (None, v.name, v.profile, v.target)
    ]


def _checked(
    answer: Any, verb: str, manifest: Mapping[str, Json], device: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Check an answer, which comes from another machine, and return its device facts and results."""
    try:
        facts, results = dict(answer["device"]), [dict(row) for row in answer["results"]]
        texts = [facts["cpu"], facts["machine"], facts["system"], facts["python"], *facts["isa"]]
        rows = results[0]["variants"] if verb == "evaluate" else results
        variant_names = {variant["name"] for variant in manifest["variants"]}
        later = tuple(f"{stage['name']}: " for stage in manifest.get("cascade", {}).get("stages", ()))
        if any(row["variant"] not in variant_names and not row["variant"].startswith(later) for row in rows):
            raise ValueError("a variant is not in the bundle")
        if verb == "bench":
            texts += [row["engine"] for row in results]
            numbers = [row[key] for row in results for key in ("p50_ms", "p95_ms", "p99_ms", "threads")]
        else:
            numbers = []
        for text in texts:
            inventories.words(text)
        if not all(isinstance(number, (int, float)) and number > 0 for number in numbers):
            raise ValueError("a time is not a number above 0")
    except (LookupError, TypeError, ValueError) as problem:
        raise DeviceError(f"{device} sent an invalid response: {problem}") from None
    return facts, results


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
