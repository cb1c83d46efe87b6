"""`edgekit release publish --hub`, against a server of the hub's protocol on loopback, and the way back."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.hub.address import HubAddress
from edgekit.compiler.hub.files import fetch_bundle
from edgekit.errors import BundleError, MissingDependency, UpdateError, UsageError
from edgekit.processing.task_table import task_kinds
from edgekit.release.export import hub_publishing
from edgekit.release.export.hub_publishing import publish
from edgekit.runtime import Session
from edgekit.signing.trusted_keys import signature_path
from tests.fixtures.classifier_folder import write_folder
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call
from tests.fixtures.hub_server import COMMIT, REPOSITORY, Hub, ask, serving
from tests.fixtures.text2text_folders import write_text2text

huggingface_hub = pytest.importorskip(
    "huggingface_hub", reason="huggingface_hub is not installed (the extra hub)"
)
pytestmark = pytest.mark.needs_ort
ADDRESS = f"hf://{REPOSITORY}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    return edgekit.build(write_folder(folder / "cats"), targets=["ort"]).save(folder / "cats.edgekit")


@pytest.fixture
def bundle(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(built, tmp_path))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server without the repository; uploads are LFS's, not Xet's."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving(Hub({}, is_missing=True)) as served:
        ask(monkeypatch, served.endpoint)
        yield served


def test_a_new_repository_is_private_and_has_the_bundle_and_its_card(
    hub: Hub, bundle: Path, call: Call
) -> None:
    signature_path(bundle).write_bytes(b"signature")
    done = call("release", "publish", bundle, "--hub", ADDRESS, "--json")
    document = answer(done)
    assert "hf_secret" not in done.stdout + done.stderr
    assert hub.is_private
    commit = hub.revisions["main"]
    assert document["address"] == f"{ADDRESS}@{commit}"
    assert (document["is_new"], document["keeps_readme"]) == (True, False)
    assert document["files"] == ["cats.edgekit", "README.md", "cats.edgekit.sig"]
    assert hub.files["cats.edgekit"] == bundle.read_bytes()
    assert "cats.edgekit" in hub.large  # by LFS: the commit has its hash only
    assert hub.files["cats.edgekit.sig"] == b"signature"
    readme = hub.files["README.md"].decode()
    assert hashlib.sha256(bundle.read_bytes()).hexdigest() in readme
    storage_tokens = {token for method, _, token in hub.requests if method == "PUT"}
    assert storage_tokens == {""}  # the storage is another host
    text = call("release", "publish", bundle, "--hub", ADDRESS).stdout
    assert f"next: edgekit inspect {ADDRESS}@{commit}" in text  # nothing has changed: no new commit


def test_a_published_bundle_runs_by_its_address(
    hub: Hub, bundle: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = publish(HubAddress(ADDRESS), bundle).address
    inspected = answer(call("inspect", ADDRESS, "--json"))
    assert inspected["sha256"] == answer(call("inspect", bundle, "--json"))["sha256"]
    picture = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    with Session(fetch_bundle(HubAddress(ADDRESS))) as session, Session(bundle) as local:
        assert session.predict(picture).as_json() == local.predict(picture).as_json()
    hub.requests.clear()
    assert call("verify", address).exit_code == 0
    assert hub.requests == []  # a commit in the cache needs no network
    ask(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(BundleError, match=rf"can't be reached, .*; in the cache: {address}$"):
        fetch_bundle(HubAddress(ADDRESS))
    (cached,) = (tmp_path / "cache").rglob("*.edgekit")
    ask(monkeypatch, hub.endpoint)
    refused = call("verify", address, "--device", "user@host", "--merge")
    assert "--merge writes into BUNDLE; download it from the hub" in refused.stderr
    assert cached.read_bytes() == bundle.read_bytes()


def test_a_model_card_has_the_evidence(hub: Hub, bundle: Path) -> None:
    publish(HubAddress(ADDRESS), bundle)
    readme = hub.files["README.md"].decode()
    data = huggingface_hub.ModelCard(readme).data.to_dict()
    assert data["library_name"] == "edgekit"
    assert data["pipeline_tag"] == "image-classification"
    assert data["tags"] == ["edgekit", "ort"]
    with edgekit.Bundle.open(bundle) as opened:
        (variant,) = opened.variants
        assert f"{variant.evidence['timing']['p50_ms']:.3g} ms" in readme
        assert opened.manifest["source"]["sha256"] in readme
    assert f"    edgekit run {ADDRESS} -i " in readme
    assert hub_publishing.PIPELINES.keys() - {"generate"} == set(task_kinds()) - {"detect-text"}


def test_a_model_card_runs_a_model_that_writes_texts_on_one_file(hub: Hub, tmp_path: Path) -> None:
    built = edgekit.build(write_text2text(tmp_path / "model", "marian"), targets=["ort"])
    publish(HubAddress(ADDRESS), built.save(tmp_path / "translate.edgekit"))
    readme = hub.files["README.md"].decode()
    assert huggingface_hub.ModelCard(readme).data.to_dict()["pipeline_tag"] == "text2text-generation"
    assert f"    edgekit run {ADDRESS} -i FILE\n" in readme


def test_a_readme_of_somebody_else_stays(hub: Hub, bundle: Path, call: Call) -> None:
    hub.is_missing, hub.files = False, {"README.md": b"# Cats\n"}
    text = call("release", "publish", bundle, "--hub", ADDRESS).stdout
    assert "its README stays: EdgeKit did not write it" in text
    assert hub.files["README.md"] == b"# Cats\n"
    assert hub.files["cats.edgekit"] == bundle.read_bytes()
    hub.files["README.md"] = f"{hub_publishing.MARK} -->\n".encode()
    assert publish(HubAddress(ADDRESS), bundle).keeps_readme is False
    assert b"## Variants" in hub.files["README.md"]


def test_a_commit_beside_this_one_is_not_lost(hub: Hub, bundle: Path) -> None:
    hub.is_missing, hub.before_commit = False, lambda: hub.revisions.update(main="d" * 40)
    with pytest.raises(UpdateError, match="it changed while this was published; publish again"):
        publish(HubAddress(ADDRESS), bundle)
    assert hub.files == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"refusals": {"create": 401}}, "the token is not valid; set HF_TOKEN, or log in"),
        ({"refusals": {"create": 403}}, "the token may not write to it; take one with the permission"),
        ({"writers": (), "is_missing": False}, "the token may not write to it"),
        ({"refusals": {"storage": 403}}, "the token may not write to it"),
        ({"refusals": {"batch": 413}}, "the hub refuses a file of this size"),
        ({"refusals": {"commit": 400}}, "answers 400; try again later"),
        ({"status": 500}, "answers 500; try again later"),
        (
            {"ignored": ("cats.edgekit",)},
            "does not have cats.edgekit as it was sent; look at the repository's",
        ),
    ],
)
def test_a_refused_publication_is_one_sentence_and_no_bundle(
    hub: Hub, bundle: Path, settings: dict[str, Any], message: str
) -> None:
    vars(hub).update(settings)
    with pytest.raises(UpdateError, match=message) as refused:
        publish(HubAddress(ADDRESS), bundle)
    assert "hf_secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "cats.edgekit" not in hub.files


def test_without_a_network_a_token_or_the_library(
    hub: Hub, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, closed := "http://127.0.0.1:9")
    with pytest.raises(
        UpdateError,
        match=rf"{closed} can't be reached.*check the network, and by {closed}/{REPOSITORY} whether",
    ):
        publish(HubAddress(ADDRESS), bundle)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UsageError, match=f"publishing to {ADDRESS} needs a token: set HF_TOKEN, or log in"):
        publish(HubAddress(ADDRESS), bundle)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingDependency, match="is not installed, and publishing to hf://acme/cats"):
        publish(HubAddress(ADDRESS), bundle)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("address", "name", "message"),
    [
        ("acme/cats", "", "is not an address of a model; write hf://OWNER/NAME"),
        ("hf://acme/cats@v1", "", "a bundle is published to the main branch; write hf://acme/cats"),
        ("hf://acme/cats--dogs", "", "acme/cats--dogs is not a name that the hub permits"),
        (ADDRESS, "a:b", "cannot be published: .*; give --model NAME"),
    ],
)
def test_wrong_names_are_refused_before_a_request(
    hub: Hub, bundle: Path, address: str, name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        publish(HubAddress(address), bundle, name)
    assert hub.requests == []


def test_a_damaged_bundle_is_not_published(hub: Hub, bundle: Path) -> None:
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)
    with pytest.raises(BundleError):
        publish(HubAddress(ADDRESS), bundle)
    assert hub.requests == []


def test_which_bundle_of_a_repository_is_fetched(hub: Hub, bundle: Path) -> None:
    hub.is_missing, hub.files = False, {"README.md": b"# Cats\n"}
    with pytest.raises(BundleError, match=r"has no bundle \(\*.edgekit\); it has none"):
        fetch_bundle(HubAddress(ADDRESS))
    hub.files |= {"a.edgekit": bundle.read_bytes()}
    with pytest.raises(edgekit.EdgeKitError, match=f"has a bundle and no ONNX file; edgekit run {ADDRESS}"):
        edgekit.check(ADDRESS, ["ort"])
    hub.files |= {"b.edgekit": b"other"}
    with pytest.raises(
        BundleError, match=f"has 2 bundles: a.edgekit, b.edgekit; name one .*, e.g. {ADDRESS}@{COMMIT}/a.e"
    ):
        fetch_bundle(HubAddress(ADDRESS))
    assert fetch_bundle(HubAddress(f"{ADDRESS}/a.edgekit")).read_bytes() == bundle.read_bytes()
    with pytest.raises(BundleError, match=r"has no bundle c.edgekit; it has a.edgekit, b.edgekit"):
        fetch_bundle(HubAddress(f"{ADDRESS}/c.edgekit"))
    assert json.loads(next(bundle.parent.rglob("files.json")).read_bytes())["address"].startswith(
        f"{ADDRESS}@{COMMIT}"
    )
