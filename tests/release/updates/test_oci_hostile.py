"""Hostile OCI image layouts: each refused with one error that says why, and nothing installed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import BundleError, UpdateError
from edgekit.release.updates.oci_layout import LayoutBundle, open_artifact, update
from edgekit.release.updates.oci_publishing import publish
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import small_bundle

FILE_PATH = "org.cncf.model.filepath"
REF_NAME = "org.opencontainers.image.ref.name"


def published(folder: Path) -> LayoutBundle:
    """``a.edgekit`` in ``folder/layout``, of tag v1."""
    return publish(folder / "layout", small_bundle().save(folder / "a.edgekit"), "v1")


class Crafted:
    """A layout whose JSON is changed and stored again under digests that fit."""

    def __init__(self, folder: Path, published: LayoutBundle) -> None:
        self.folder, self.blobs = folder, folder / "blobs" / "sha256"
        self.bundle = published.bundle
        self.index: Any = json.loads((folder / "index.json").read_bytes())
        self.manifest: Any = json.loads((self.blobs / published.digest[7:]).read_bytes())
        self.weights = self.manifest["layers"][0]

    def blob(self, content: bytes, media_type: str = "application/x") -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def write(self) -> None:
        entry = self.index["manifests"][0]
        entry.update(self.blob(json.dumps(self.manifest).encode(), entry["mediaType"]))
        (self.folder / "index.json").write_text(json.dumps(self.index))

    def raw_manifest(self, content: bytes) -> None:
        entry = self.index["manifests"][0]
        entry.update(self.blob(content, entry["mediaType"]))
        (self.folder / "index.json").write_text(json.dumps(self.index))

    def name(self, name: str) -> None:
        self.weights["annotations"][FILE_PATH] = name
        self.write()

    def descriptor(self, **fields: Any) -> None:
        self.weights.update(fields)
        self.write()

    def entry(self, **fields: Any) -> None:
        self.index["manifests"][0].update(fields)
        (self.folder / "index.json").write_text(json.dumps(self.index))

    def field(self, key: str, value: Any) -> None:
        self.manifest[key] = value
        self.write()

    def layers(self, *more: dict[str, Any]) -> None:
        self.manifest["layers"] += more
        self.write()

    def replaced(self, path: Path, link: bool = False, pipe: bool = False) -> None:
        moved = self.folder.parent / "moved"
        path.rename(moved)
        if link:
            path.symlink_to(moved)
        if pipe:
            os.mkfifo(path)


def _changed(crafted: Crafted) -> None:
    content = crafted.bundle.read_bytes()
    crafted.bundle.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def _second_tag(crafted: Crafted) -> None:
    crafted.index["manifests"] *= 2
    crafted.write()


HOSTILE: dict[str, tuple[Callable[[Crafted], object], str]] = {
    "a digest with a path": (
        lambda c: c.descriptor(digest="sha256:../../../../etc/passwd"),
        "is not a sha256 digest",
    ),
    "a digest of another algorithm": (
        lambda c: c.descriptor(digest=f"md5:{'0' * 32}"),
        "not a sha256 digest",
    ),
    "a digest in capitals": (lambda c: c.descriptor(digest=f"sha256:{'A' * 64}"), "not a sha256 digest"),
    "a name with a path": (lambda c: c.name("../../x.edgekit"), "not a plain relative name"),
    "an absolute name": (lambda c: c.name("/etc/x.edgekit"), "not a plain relative name"),
    "a name with control characters": (lambda c: c.name("\x1b[2J.edgekit"), "half of a surrogate pair"),
    "a changed byte": (_changed, "is damaged: its sha256 differs"),
    "a truncated bundle": (lambda c: os.truncate(c.bundle, 100), "has 100 bytes where"),
    "a missing bundle": (lambda c: c.bundle.unlink(), r".*blobs/sha256\S* does not exist"),
    "a bundle that is a link": (lambda c: c.replaced(c.bundle, link=True), "it is a symbolic link"),
    "a bundle that is a pipe": (lambda c: c.replaced(c.bundle, pipe=True), "it is not a regular file"),
    "blobs that are a link": (lambda c: c.replaced(c.folder / "blobs", link=True), "or is a link"),
    "sha256 that is a link": (lambda c: c.replaced(c.blobs, link=True), "or is a link"),
    "an index that is a link": (lambda c: c.replaced(c.folder / "index.json", link=True), "symbolic link"),
    "an index that is a pipe": (
        lambda c: c.replaced(c.folder / "index.json", pipe=True),
        "not a regular file",
    ),
    "no index": (lambda c: c.replaced(c.folder / "index.json"), ".*index.json does not exist"),
    "no oci-layout": (lambda c: c.replaced(c.folder / "oci-layout"), ".*oci-layout does not exist"),
    "another version": (
        lambda c: (c.folder / "oci-layout").write_text('{"imageLayoutVersion": "2.0.0"}'),
        "'2.0.0' where '1.0.0' is expected",
    ),
    "a huge index": (lambda c: os.truncate(c.folder / "index.json", 1 << 40), "more than 4 MB"),
    "a deep index": (
        lambda c: (c.folder / "index.json").write_bytes(b"[" * 100_000),
        "index.json: .*(deep|JSON)",
    ),
    "an index of many entries": (
        lambda c: (c.folder / "index.json").write_text(
            json.dumps({**c.index, "manifests": c.index["manifests"] * 10_001})
        ),
        "10001 items; the limit is 10000",
    ),
    "two of one tag": (_second_tag, "its index has 2 entries of tag v1"),
    "an image index": (
        lambda c: c.entry(mediaType="application/vnd.oci.image.index.v1+json"),
        "is not an image manifest",
    ),
    "annotations that are no text": (lambda c: c.entry(annotations={REF_NAME: ["v1"]}), "a text is expected"),
    "a manifest that cannot be written as JSON": (lambda c: c.raw_manifest(b"\xff\xfe"), "is not UTF-8"),
    "a manifest that is deep": (lambda c: c.raw_manifest(b'{"a":' * 40 + b"1" + b"}" * 40), "32 deep"),
    "a manifest with a key twice": (lambda c: c.raw_manifest(b'{"a":1,"a":2}'), "is twice"),
    "a huge manifest": (lambda c: c.raw_manifest(bytes(5 << 20)), "more than 4 MB"),
    "a manifest of another size": (lambda c: c.entry(size=1), "bytes where 1 are expected"),
    "another kind of artifact": (
        lambda c: c.field("artifactType", "application/vnd.example+json"),
        "manifest.artifactType",
    ),
    "no layers": (lambda c: c.field("layers", []), "it has 0 bundles"),
    "many layers": (lambda c: c.field("layers", [c.weights] * 65), "65 items; the limit is 64"),
    "the same name twice": (lambda c: c.layers(c.weights), "two of its layers are 'a.edgekit'"),
    "two bundles": (
        lambda c: c.layers({**c.weights, "annotations": {FILE_PATH: "b.edgekit"}}),
        "it has 2 bundles",
    ),
    "no bundle": (lambda c: c.name("model.onnx"), "it has 0 bundles"),
    "a bundle in a tar": (
        lambda c: c.descriptor(mediaType="application/vnd.cncf.model.weight.v1.tar"),
        "its bundle is a layer of type",
    ),
    "another configuration": (
        lambda c: c.field("config", {**c.manifest["config"], "mediaType": "application/x"}),
        "a configuration of type",
    ),
    "a configuration that cannot be written as JSON": (
        lambda c: c.field("config", c.blob(b"no", c.manifest["config"]["mediaType"])),
        "configuration: .* is not JSON",
    ),
    "a size that is a text": (lambda c: c.descriptor(size="9"), "where a whole number"),
    "a negative size": (lambda c: c.descriptor(size=-1), "where a whole number"),
    "a size beyond the limit": (lambda c: c.descriptor(size=1 << 62), "at most 2048 MB are read"),
    "many sizes beyond the limit": (
        lambda c: c.layers(
            *[{**c.weights, "size": 1 << 30, "annotations": {}}] * 2, c.weights | {"annotations": {}}
        ),
        "at most 2048 MB are read",
    ),
    "another layer that is damaged": (
        lambda c: c.layers({"mediaType": "application/x", "digest": f"sha256:{'0' * 64}", "size": 1}),
        "does not exist",
    ),
    "a signature that is too large": (
        lambda c: c.layers(c.blob(bytes(300_000)) | {"annotations": {FILE_PATH: "a.edgekit.sig"}}),
        "its signature is too large",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_layouts_are_refused_with_one_error(tmp_path: Path, case: str) -> None:
    layout = tmp_path / "layout"
    spoil, expected = HOSTILE[case]
    spoil(Crafted(layout, published(tmp_path)))
    store = Store(tmp_path / "store", None)
    with pytest.raises(UpdateError, match=rf"layout:v1 is refused: .*{expected}") as found:
        update(store, f"{layout}:v1")
    assert "nothing has changed; copy the artifact from its registry again" in str(found.value)
    assert "\x1b" not in str(found.value)
    assert not store.root.exists()


def test_a_blob_that_is_no_bundle_is_the_stores_to_refuse(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    crafted = Crafted(layout, published(tmp_path))
    crafted.descriptor(**crafted.blob(b"#!/bin/sh", crafted.weights["mediaType"]))
    store = Store(tmp_path / "store", None)
    with pytest.raises(BundleError, match="is not a bundle that EdgeKit can open"):
        update(store, f"{layout}:v1")
    assert store.state.current == ""


def test_layers_of_other_tools_are_let_be(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    crafted = Crafted(layout, published(tmp_path))
    readme = crafted.blob(b"# Cars", "application/vnd.cncf.model.doc.v1.raw")
    crafted.layers(readme | {"annotations": {FILE_PATH: "README.md"}}, crafted.blob(b"x"))
    assert open_artifact(f"{layout}:v1").file == "a.edgekit"
