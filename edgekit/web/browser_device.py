"""Measurement of a bundle by the browser of a phone, or of another device, in the local network."""

from __future__ import annotations

import datetime
import io
import ipaddress
import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from edgekit.bundle.bundle import Bundle
from edgekit.devices import inventory
from edgekit.devices.measure import Measured
from edgekit.errors import DeviceError, UsageError, need_package
from edgekit.system.listen_address import Address, address_of
from edgekit.tensor_spec import Json
from edgekit.web.browser_report import BrowserReport, read_report
from edgekit.web.folder import PAGE, write_web
from edgekit.web.report_server import ReportServer

WAIT_SECONDS = 1800.0
"""Time in which a report must arrive, beside the measuring time of all variants and engines."""
SECONDS_LIMIT = 600.0
PAGES = ("measure.html", "measure.js")
LONGEST_NAME = 60
HOURS = 24


def measure_in_browser(
    path: Path,
    name: str | None,
    seconds: float,
    notify: Callable[[str], None],
    *,
    webgpu: bool = False,
    npm_packages: Sequence[Path] = (),
    listen: str | None = None,
    merge: bool = False,
) -> tuple[str, BrowserReport]:
    """Serve a bundle and its page until a device's browser has measured it; add the device to the known ones.

    Args:
        name: Name of the device in the list; None: the model that its browser tells.
        seconds: Measuring time for each variant and engine.
        notify: Takes lines for the user: the address, its QR code, the certificate.
        webgpu: Whether to measure WebGPU before WebAssembly.
        npm_packages: Package files of engines; others come from the cache, or are fetched by npm.
        listen: ``HOST:PORT`` with an IP address; None: this machine's address in its network, a free port.
        merge: Whether to add the figures to the bundle.

    Returns:
        The device's address in the inventory, ``browser:NAME``, and the report.

    Raises:
        UsageError: no variant runs in a page, the time or the address is not valid.
        MissingDependency: cryptography or npm is not installed.
        DeviceError: no report arrived in time, or the bundle was built again meanwhile.
        BundleError: the bundle is damaged, or cannot be written to.
    """
    if not 0 < seconds <= SECONDS_LIMIT:
        raise UsageError(f"--seconds is {seconds:g}; it must be above 0, and at most {SECONDS_LIMIT:g}")
    if name is not None and not (name.isprintable() and 0 < len(name) <= LONGEST_NAME):
        raise UsageError(f"the device's name must be 1 to {LONGEST_NAME} printable characters")
    address = _network_address() if listen is None else address_of(listen)
    try:
        context, fingerprint = own_certificate(address.host)
    except ValueError:
        raise UsageError(
            f"--listen is {listen!r}; it must begin with an IP address of this machine"
        ) from None
    providers = ["webgpu", "wasm"] if webgpu else ["wasm"]
    with TemporaryDirectory() as folder, Bundle.open(path) as bundle:
        site = write_web(bundle, Path(folder, "web"), npm_packages, webgpu=webgpu)
        files = {file.relative_to(Path(folder, "web")).as_posix(): file for file in site.files}
        files |= {page: PAGE / page for page in PAGES}
        title = (bundle.card or {}).get("title") or bundle.name
        plan = {"title": title, "seconds": seconds, "variants": site.variants, "providers": providers}
        files["measure.json"] = Path(folder, "measure.json")
        files["measure.json"].write_text(json.dumps(plan), "utf-8")
        received: list[BrowserReport] = []
        began = time.monotonic()

        def accept(body: bytes) -> None:
            elapsed = time.monotonic() - began
            received.append(read_report(body, bundle, site.variants, providers, seconds, elapsed))

        server = ReportServer(address, context, files, accept)
        for line in _invitation(server.url, fingerprint):
            notify(line)
        if not server.wait(WAIT_SECONDS + seconds * len(site.variants) * len(providers)):
            raise DeviceError(f"no report arrived in {WAIT_SECONDS / 60:g} minutes; nothing was written")
        (report,) = received
        manifest = bundle.manifest
    label = name or report.device.cpu[:LONGEST_NAME]
    device = replace(report.device, cpu=label) if name else report.device
    engines = sorted({row["engine"] for row in report.results if "p50_ms" in row})
    inventory.remember(f"browser:{label}", report.device, engines)
    if merge:
        _merge(path, manifest, BrowserReport(device, report.results))
    return f"browser:{label}", report


def _merge(path: Path, manifest: Mapping[str, Json], report: BrowserReport) -> None:
    device = report.device
    facts = {"cpu": device.cpu, "isa": [], "machine": device.machine, "system": device.system, "python": ""}
    by_tool = report.by_tool()
    timed = {tool: [row for row in rows if "p50_ms" in row] for tool, rows in by_tool.items()}
    Measured(facts, timed, manifest).merge_into(path, "bench")
    Measured(facts, by_tool, manifest).merge_into(path, "verify")


def _network_address() -> Address:
    """Return this machine's address in the network of its default route; loopback where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of RFC 5737; connecting a datagram socket sends nothing
            return Address(probe.getsockname()[0], 0)
        except OSError:
            return Address("127.0.0.1", 0)


def _invitation(url: str, fingerprint: str) -> list[str]:
    lines = ["open this address on the device, in the same network:", url]
    if find_spec("segno"):
        import segno

        drawn = io.StringIO()
        segno.make(url, error="l").terminal(out=drawn, compact=True)
        lines += drawn.getvalue().rstrip("\n").split("\n")
    lines += [
        "the browser warns, because nobody else signed the certificate; its sha256 is",
        fingerprint,
        "waiting for one report; Ctrl-C ends",
    ]
    return lines


def own_certificate(host: str) -> tuple[ssl.SSLContext, str]:
    """Return a server's TLS context with a new key and certificate, and the certificate's sha256.

    Raises:
        MissingDependency: cryptography is not installed.
    """
    with need_package("cryptography", "a certificate for https", extra="browser"):
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "EdgeKit")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # the phone's clock may be behind
        .not_valid_after(now + datetime.timedelta(hours=HOURS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with TemporaryDirectory() as folder:  # of mode 0700; the ssl module reads keys from files only
        path = Path(folder, "certificate.pem")
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(private + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return context, certificate.fingerprint(hashes.SHA256()).hex(":").upper()
