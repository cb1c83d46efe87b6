"""A bundle pushed to a real registry and pulled again, by skopeo (Debian: docker-registry, skopeo)."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.release.updates.oci_layout import open_artifact, update
from edgekit.release.updates.oci_publishing import publish
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.ports import unused_port

needs_tools = pytest.mark.skipif(
    not (shutil.which("docker-registry") and shutil.which("skopeo")), reason="no docker-registry or skopeo"
)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    address = f"127.0.0.1:{unused_port()}"
    (tmp_path / "registry.yml").write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {tmp_path / 'registry'}}}}}\nhttp: {{addr: '{address}'}}\n"
    )
    server = subprocess.Popen(["docker-registry", "serve", str(tmp_path / "registry.yml")])
    try:
        host, port = address.split(":")
        while server.poll() is None:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        assert server.poll() is None
        yield address
    finally:
        server.kill()
        server.wait()


@needs_tools
def test_a_registry_gives_back_the_same_artifact(tmp_path: Path, registry: str) -> None:
    made = {}
    for name in "ab":
        path = small_bundle([variant(name, "ort")]).save(tmp_path / f"{name}.edgekit")
        path.with_name(f"{name}.edgekit.sig").write_bytes(name.encode())
        made[name] = publish(tmp_path / "here", path, name, "detector")
    (tmp_path / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    copy = ["skopeo", "--policy", str(tmp_path / "policy.json"), "copy", "--quiet"]
    for name in "ab":
        there = f"docker://{registry}/models/detector:{name}"
        here, back = f"oci:{tmp_path / 'here'}:{name}", f"oci:{tmp_path / 'back'}:{name}"
        subprocess.run([*copy, "--dest-tls-verify=false", here, there], check=True)
        subprocess.run([*copy, "--src-tls-verify=false", there, back], check=True)
    store = Store(tmp_path / "store", None)
    for name, expected in made.items():
        reference = f"{tmp_path / 'back'}:{name}"
        found = open_artifact(reference)
        assert found.digest == expected.digest
        assert found.signature is not None
        assert found.signature.read_bytes() == name.encode()
        assert update(store, reference)[0] == "installed"
