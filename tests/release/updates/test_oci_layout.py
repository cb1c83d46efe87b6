"""Bundles in an OCI image layout: what is written, what is installed from it, what is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BundleError, SignatureError, UsageError
from edgekit.release.updates import oci_publishing
from edgekit.release.updates.oci_layout import open_artifact, parse_reference, update
from edgekit.release.updates.oci_publishing import publish
from edgekit.runtime.store.bundle_store import Store
from edgekit.system.atomic_files import write_atomically
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.keys import KINDS, key_files

FILE_PATH = "org.cncf.model.filepath"
REF_NAME = "org.opencontainers.image.ref.name"


def bundle(folder: Path, name: str, **facts: Any) -> Path:
    return small_bundle([variant(name, "ort", **facts)]).save(folder / f"{name}.edgekit")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def signed(path: Path, folder: Path, key: str = "key") -> Path:
    """Sign a bundle; the public key."""
    pytest.importorskip("cryptography")
    from edgekit.signing.signing_keys import load_private_key
    from edgekit.signing.trusted_keys import sign_file, signature_path

    private, public = key_files(folder, key, KINDS["P-256"]())
    signature_path(path).write_bytes(sign_file(path, load_private_key(private)))
    return public


# --- writing ---------------------------------------------------------------------------------------------


def test_the_artifact_is_what_the_specifications_ask_for(tmp_path: Path) -> None:
    """The image manifest's required fields, ModelPack's, and every digest and size."""
    path = small_bundle([variant("a", "ort"), variant("b", "ort", precision="int8-mixed-2")]).save(
        tmp_path / "detector.edgekit"
    )
    (tmp_path / "detector.edgekit.sig").write_bytes(b"{}")
    layout = tmp_path / "layout"
    made = publish(layout, path, "v3")
    assert json.loads((layout / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_bytes())
    assert (index["schemaVersion"], index["mediaType"]) == (2, "application/vnd.oci.image.index.v1+json")
    (entry,) = index["manifests"]
    assert entry["annotations"] == {REF_NAME: "v3"}
    assert entry["mediaType"] == "application/vnd.oci.image.manifest.v1+json"

    def blob(descriptor: dict[str, Any]) -> bytes:
        content: bytes = (layout / "blobs" / "sha256" / descriptor["digest"][7:]).read_bytes()
        assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert descriptor["size"] == len(content)
        return content

    manifest = json.loads(blob(entry))
    assert manifest["schemaVersion"] == 2
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert manifest["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.model.config.v1+json"
    weights, signature = manifest["layers"]
    assert weights["mediaType"] == "application/vnd.cncf.model.weight.v1.raw"
    assert weights["annotations"][FILE_PATH] == "detector.edgekit"
    assert weights["annotations"]["org.opencontainers.image.title"] == "detector.edgekit"
    assert blob(weights) == path.read_bytes()
    assert signature["mediaType"] == "application/vnd.cncf.model.doc.v1.raw"
    assert signature["annotations"][FILE_PATH] == "detector.edgekit.sig"
    assert blob(signature) == b"{}"
    assert json.loads(blob(manifest["config"])) == {
        "descriptor": {"name": "detector"},
        "config": {"format": "edgekit", "precision": "float32,int8"},
        "modelfs": {"type": "layers", "diffIds": [weights["digest"], signature["digest"]]},
    }
    assert made.digest == entry["digest"]


def test_the_same_bundle_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        publish(tmp_path / name, bundle(tmp_path, "a"), "v1")
        publish(tmp_path / name, bundle(tmp_path, "b"), "v2")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    publish(tmp_path / "one", bundle(tmp_path, "b"), "v2")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_card_and_version_are_in_the_configuration(tmp_path: Path) -> None:
    about = {"author": "A. Maker", "license": "Apache-2.0", "description": 7}
    plain = small_bundle()
    manifest = {**plain.manifest, "card": {"title": "Cars", "about": about}, "extensions": {"version": 4}}
    entries = {entry["name"]: bytes(plain.read(entry["name"])) for entry in plain.manifest["entries"]}
    path = Bundle.create(manifest, entries).save(tmp_path / "cars.edgekit")
    made = publish(tmp_path / "layout", path)
    artifact = json.loads((tmp_path / "layout/blobs/sha256" / made.digest[7:]).read_bytes())
    config = (tmp_path / "layout/blobs/sha256" / artifact["config"]["digest"][7:]).read_bytes()
    assert json.loads(config)["descriptor"] == {
        "name": "cars",
        "title": "Cars",
        "authors": ["A. Maker"],
        "licenses": ["Apache-2.0"],
        "version": "4",
    }


def test_a_tag_moves_and_what_other_tools_wrote_stays(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    publish(layout, bundle(tmp_path, "a"), "stable")
    index = json.loads((layout / "index.json").read_bytes())
    other = {
        "mediaType": "application/xml",
        "digest": f"sha256:{'0' * 64}",
        "size": 7,
        "platform": {"os": "x"},
    }
    index["manifests"].append(other)
    index["annotations"] = {"by": "another tool"}
    (layout / "index.json").write_text(json.dumps(index))
    publish(layout, bundle(tmp_path, "b"), "stable")
    found = json.loads((layout / "index.json").read_bytes())
    assert found["annotations"] == {"by": "another tool"}
    assert [entry.get("annotations") for entry in found["manifests"]] == [None, {REF_NAME: "stable"}]
    assert found["manifests"][0] == other
    assert open_artifact(f"{layout}:stable").file == "b.edgekit"


@pytest.mark.parametrize("existing", [False, True])
def test_when_the_disk_fails_the_layout_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    layout, path = tmp_path / "layout", bundle(tmp_path, "b")
    if existing:
        publish(layout, bundle(tmp_path, "a"), "v1")
    before = tree(layout)
    write = write_atomically
    for failing in range(1, 6):  # oci-layout, bundle, configuration, manifest, index
        calls = 0

        def flaky(*args: Any, failing: int = failing) -> None:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise OSError(28, "No space left on device")
            write(*args)

        monkeypatch.setattr(oci_publishing, "write_atomically", flaky)
        with pytest.raises(OSError, match="No space left"):
            publish(layout, path, "v2")
        left = tree(layout)
        assert left.get("index.json") == before.get("index.json")
        if failing < 5:
            assert left == before
            assert layout.exists() == existing
    monkeypatch.setattr(oci_publishing, "write_atomically", write)
    publish(layout, path, "v2")
    assert open_artifact(f"{layout}:v2").file == "b.edgekit"


def test_nothing_is_published_of_what_does_not_fit(tmp_path: Path) -> None:
    path, layout = bundle(tmp_path, "a"), tmp_path / "layout"
    with pytest.raises(UsageError, match="cannot be a tag"):
        publish(layout, path, "../v1")
    with pytest.raises(UsageError, match="not a plain relative name"):
        publish(layout, path, "v1", "../a")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BundleError):
        publish(layout, path)
    assert not layout.exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(UsageError, match=r"cannot be added to .*photos: .*oci-layout does not exist"):
        publish(tmp_path / "photos", bundle(tmp_path, "a"))
    assert list(tree(tmp_path / "photos")) == ["cat.jpg"]


def test_blobs_that_are_a_link_are_not_written_through(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    publish(layout, bundle(tmp_path, "a"))
    (layout / "blobs").rename(tmp_path / "elsewhere")
    (layout / "blobs").symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is not a folder, or is a link"):
        publish(layout, bundle(tmp_path, "b"))
    assert tree(tmp_path / "elsewhere") == before


# --- installing ------------------------------------------------------------------------------------------


def test_from_a_layout_into_a_store(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    for name in "ab":
        publish(layout, bundle(tmp_path, name), f"v-{name}", "detector")
    store = Store(tmp_path / "store", None)
    with pytest.raises(UsageError, match=r"has 2 artifacts, of tags v-a, v-b; give .*layout:TAG"):
        update(store, str(layout))
    with pytest.raises(UsageError, match="has no tag v-c; it has: v-a, v-b"):
        update(store, f"{layout}:v-c")
    with pytest.raises(UsageError, match="the folder does not exist"):
        update(store, str(tmp_path / "nowhere"))
    assert update(store, f"{layout}:v-a", dry_run=True)[0] == "available"
    assert not store.root.exists()
    outcome, artifact, digest = update(store, f"{layout}:v-a")
    assert (outcome, artifact.tag, artifact.file) == ("installed", "v-a", "detector.edgekit")
    assert store.state.current == digest
    assert update(store, f"{layout}:v-a")[0] == "up to date"
    assert update(store, f"{layout}:v-b")[0] == "installed"
    with Bundle.open(store.path) as opened:
        assert opened.variants[0].name == "b"


def test_signatures_go_with_the_artifact_and_are_what_shows_its_origin(tmp_path: Path) -> None:
    ours, layout = bundle(tmp_path, "ours"), tmp_path / "layout"
    public = signed(ours, tmp_path)
    publish(layout, ours, "v1")
    publish(layout, bundle(tmp_path, "unsigned"), "v2")
    theirs = bundle(tmp_path, "theirs")
    signed(theirs, tmp_path, "other")
    publish(layout, theirs, "v3")  # every digest holds
    store = Store(tmp_path / "store", None, [public])
    assert update(store, f"{layout}:v1", signed=True)[0] == "installed"
    with pytest.raises(SignatureError, match=r"it has no unsigned.edgekit.sig"):
        update(store, f"{layout}:v2", signed=True)
    with pytest.raises(SignatureError, match="is not trusted here"):
        update(store, f"{layout}:v3", signed=True)
    with Bundle.open(Store(tmp_path / "store", None, [public]).path) as opened:
        assert opened.variants[0].name == "ours"


def test_references() -> None:
    assert parse_reference("/models/x:v1.2_a") == (Path("/models/x"), "v1.2_a")
    assert parse_reference("C:\\models") == (Path("C:\\models"), "")
    assert parse_reference("models:") == (Path("models:"), "")
    assert parse_reference(":v1") == (Path(":v1"), "")
