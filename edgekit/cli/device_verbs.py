"""The verb ``devices``, and ``--device`` of the verbs that measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    F,
    as_json_option,
    need_writable,
    open_bundle,
    path_option,
    refuse_given,
)
from edgekit.cli.command_group import main
from edgekit.errors import DeviceError, UsageError
from edgekit.system.progress import step

if TYPE_CHECKING:
    from edgekit.devices.measure import Measured
    from edgekit.tensor_spec import Json


device_option = click.option(
    "--device", metavar="USER@HOST[:PORT]|adb:SERIAL", help="Run on this device instead of this machine."
)


def device_options(verb: F) -> F:
    """``--device`` and ``--merge``."""
    merge = click.option("--merge", is_flag=True, help="With --device: add the measurements to BUNDLE.")
    return device_option(merge(verb))


def need_device(device: str | None, merge: bool, others: Mapping[str, Any]) -> None:
    """Refuse ``--merge`` without a device, and with one the options that are for this machine.

    Args:
        others: Flag -> its value, of those that do not go with ``--device``.
    """
    if device is None:
        if merge:
            raise UsageError("--merge needs --device; BUNDLE already has the measurements of this machine")
        return
    flags = [flag for flag, value in others.items() if value]
    if flags:
        raise UsageError(f"--device does not go with {' and '.join(flags)}")


def on_device(bundle: Path, device: str, merge: bool, verb: str, options: Mapping[str, Json]) -> Measured:
    """Run a verb on a device, and add its figures to the bundle if asked to."""
    from edgekit.devices.measure import measure

    if merge:
        from edgekit.compiler.hub.files import is_fetched

        if is_fetched(bundle):
            raise UsageError("--merge writes into BUNDLE; download it from the hub, and pass the file")
        need_writable(bundle, "the bundle")
    with step("measuring") as notify:
        notify(device)
        measured = measure(bundle, device, verb, options, print_line)
    if merge:
        with sound_answer(device):
            digest = measured.merge_into(bundle, verb)
        print_line(f"{bundle} has the figures now; sha256 {digest[:12]}...")
    return measured


@contextmanager
def sound_answer(device: str) -> Iterator[None]:
    """Raise DeviceError if the device's rows that the block reads are not what ``--json`` has."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        raise DeviceError(
            f"{device} sent an invalid response: {type(problem).__name__}: {problem}\n  nothing was written"
        ) from problem


def print_line(line: str) -> None:
    """Print a line for the user while the device is busy."""
    click.echo(f"  {line}", err=True)


def verified_text(device: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """``edgekit verify`` of another machine."""
    from edgekit.system.formats.plain_text import table

    return "\n".join(table(("variant", f"on {device}"), [(row["variant"], row["status"]) for row in rows]))


@main.command()
@click.argument("device", nargs=-1)
@path_option(
    "--browser",
    metavar="BUNDLE",
    help="Measure BUNDLE in a phone's browser: serve a page in the local network and wait for its report.",
)
@click.option(
    "--seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="With --browser: Measuring time for each variant.",
)
@click.option("--merge", is_flag=True, help="With --browser: add the measurements to BUNDLE.")
@click.option(
    "--webgpu", is_flag=True, help="With --browser: try the GPU by WebGPU first. Both engines are measured."
)
@path_option(
    "--npm-package",
    "npm_packages",
    multiple=True,
    metavar="FILE",
    help="With --browser: package file of an engine, instead of the one that npm fetches. Repeatable.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="With --browser: Address to listen on.  [default: this machine's, a free port]",
)
@as_json_option
def devices(
    device: tuple[str, ...],
    browser: Path | None,
    seconds: float,
    merge: bool,
    webgpu: bool,
    npm_packages: tuple[Path, ...],
    listen: str | None,
    as_json: bool,
) -> None:
    """List known devices and their capabilities.

    DEVICE, as --device has it: look there now. Nothing is installed by looking. With --browser, DEVICE is
    the phone's name in the list.
    """
    from edgekit.devices import inventory
    from edgekit.devices.measure import inspect

    if browser is not None:
        _measure_in_browser(device, browser, seconds, merge, webgpu, npm_packages, listen, as_json)
        return
    refuse_given(("seconds", "merge", "webgpu", "npm_packages", "listen"), "goes with --browser")
    for text in device:
        inspect(text, print_line)
    rows = inventory.known_devices()
    if device:
        rows = [row for row in rows if row["address"] in device]
    terminal.answer(as_json, {"devices": rows}, inventory.render(rows))


def _measure_in_browser(
    names: tuple[str, ...],
    bundle: Path,
    seconds: float,
    merge: bool,
    webgpu: bool,
    npm_packages: tuple[Path, ...],
    listen: str | None,
    as_json: bool,
) -> None:
    from edgekit.compiler.bench.history import bundle_facts, run_now
    from edgekit.devices import inventory
    from edgekit.web.browser_device import measure_in_browser

    if len(names) > 1:
        raise UsageError("--browser measures one device; give one name for it, or none")
    if merge:
        need_writable(bundle, "the bundle")
    name = names[0] if names else None
    with open_bundle(bundle) as opened:
        facts = bundle_facts(opened)  # of what is measured: --merge makes another
    address, report = measure_in_browser(
        bundle,
        name,
        seconds,
        print_line,
        webgpu=webgpu,
        npm_packages=npm_packages,
        listen=listen,
        merge=merge,
    )
    rows = [row for row in inventory.known_devices() if row["address"] == address]
    device = report.device
    machine = {"cpu": device.cpu, "isa": [], "machine": device.machine, "system": device.system}
    ran = run_now(facts, [row for row in report.results if "p50_ms" in row], machine)
    terminal.answer(as_json, {**ran.as_json(), "devices": rows, "results": report.results}, report.render())
