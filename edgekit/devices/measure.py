"""Run of a verb on a device: look at the device, install missing packages, measure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.device_evidence import BY_EDGEKIT
from edgekit.bundle.kept_variants import kept_variants
from edgekit.bundle.variant import Variant
from edgekit.devices import inventory as inventories
from edgekit.devices import merge, provision, vendor_tools
from edgekit.devices.address import DeviceAddress, parse_address
from edgekit.devices.connection import Connection, NoPython
from edgekit.devices.inventory import Inventory
from edgekit.errors import DeviceError
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
        """Return all rows."""
        return [row for rows in self.rows_by_tool.values() for row in rows]

    @property
    def by_tools(self) -> bool:
        """Return whether a vendor's tool measured."""
        return BY_EDGEKIT not in self.rows_by_tool

    def merge_into(self, path: Path, verb: str) -> str:
        """Add the results to the bundle's file with :func:`edgekit.devices.merge.merge`."""
        return merge.merge(path, self.manifest, verb, self.rows_by_tool, self.device)


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
    """Look at a device and remember what is there.

    Raises:
        UsageError: the address is none.
        DeviceError: it can't be reached.
    """
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
        path: Path of the bundle, which is not changed.
        device: Address in the format of ``--device``.
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
        content = b"".join(merge.without_devices(bundle).pieces())  # the same after each --merge
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
