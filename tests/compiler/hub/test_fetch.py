"""Models of a Hugging Face Hub, against a server of its protocol on loopback."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.batch.rebuild import rebuild
from edgekit.cli import main
from edgekit.compiler.hub import client as hub_client
from edgekit.compiler.hub import files as hub_files
from edgekit.compiler.hub.address import HubAddress
from edgekit.errors import EdgeKitError, MissingDependency, ModelError, UsageError
from edgekit.runtime import Session
from edgekit.system.cache_folder import cache_folder
from tests.fixtures.classifier_folder import write_folder
from tests.fixtures.hub_server import COMMIT, EARLIER, REPOSITORY, Hub, ask, serving

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (the extra hub)")
pytestmark = pytest.mark.needs_ort
ADDRESS = f"hf://{REPOSITORY}"
MODEL = "onnx/model.onnx"
BESIDE = {
    "README.md": b"# Cats",
    "modeling_cats.py": b"raise SystemExit('code')",
    "pytorch_model.bin": b"\x80\x04.",
    "model.safetensors": b"weights",
}
"""Files that are never fetched for an ONNX model."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A server with a classifier, as Optimum exports it; the library asks it."""
    folder = write_folder(tmp_path / "cats")
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    files = {name: (folder / name).read_bytes() for name in names}
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving(Hub({**files, **BESIDE}, large=(MODEL,))) as served:
        ask(monkeypatch, served.endpoint)
        yield served


def test_a_repository_becomes_the_bundle_of_its_folder(hub: Hub, tmp_path: Path) -> None:
    bundle = edgekit.build(ADDRESS, targets=["ort"])
    assert hub.fetched() == ["config.json", MODEL, "preprocessor_config.json"]
    assert bundle.manifest["source"]["repository"] == f"{ADDRESS}@{COMMIT}"
    path = bundle.save(tmp_path / "cats.edgekit")
    assert b"hf_secret" not in path.read_bytes()
    picture = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    with Session(path) as session:
        scores = session.predict(picture)
    edgekit.build(tmp_path / "cats", targets=["ort"]).save(tmp_path / "same.edgekit")
    with Session(tmp_path / "same.edgekit") as session:
        assert session.predict(picture).as_json() == scores.as_json()
    assert edgekit.draft_card(ADDRESS).card.title == "cats"
    (note,) = edgekit.check(ADDRESS, ["ort"])
    assert note.code == "EK1107"
    tokens = {path.split("/")[1]: token for _, path, token in hub.requests}
    assert tokens == {"api": "Bearer hf_secret", "acme": "Bearer hf_secret", "large": ""}


def test_a_commit_is_fetched_once_and_needs_no_network(hub: Hub, tmp_path: Path) -> None:
    first = edgekit.build(ADDRESS, targets=["ort"])
    path = first.save(tmp_path / "cats.edgekit")
    hub.requests.clear()
    edgekit.check(ADDRESS, ["ort"])
    assert hub.fetched() == []
    assert len(hub.requests) == 1  # the list, which names the commit of the branch
    hub.requests.clear()
    assert edgekit.build(f"{ADDRESS}@{COMMIT}", targets=["ort"]).manifest == first.manifest
    result = rebuild(path, tmp_path / "again.edgekit", seconds=0.1)
    assert result.bundle.manifest["source"] == first.manifest["source"]
    assert hub.requests == []
    moved = {**hub.revisions, "main": EARLIER}
    hub.revisions = moved
    assert edgekit.build(ADDRESS, targets=["ort"]).manifest["source"]["repository"].endswith(EARLIER)
    assert hub.fetched() == ["config.json", MODEL, "preprocessor_config.json"]  # those of the other commit


def test_without_a_network_the_error_names_the_commits_in_the_cache(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(monkeypatch, closed := "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=rf"{closed} can't be reached.*ConnectError.*; check the network"):
        edgekit.check(ADDRESS, ["ort"])
    ask(monkeypatch, hub.endpoint)
    edgekit.check(ADDRESS, ["ort"])
    ask(monkeypatch, closed)
    with pytest.raises(ModelError, match=f"in the cache: {ADDRESS}@{COMMIT}$"):
        edgekit.check(ADDRESS, ["ort"])


def test_the_command_line_builds_from_the_server_of_hf_endpoint(hub: Hub, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "edgekit", "build", f"{ADDRESS}@v1", "-t", "ort"]
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "hf_secret" not in ended.stdout + ended.stderr
    with edgekit.Bundle.open(tmp_path / "cats.edgekit") as bundle:
        assert bundle.manifest["source"]["repository"] == f"{ADDRESS}@{EARLIER}"


def test_commands_name_the_address_in_the_next_step(hub: Hub, tmp_path: Path) -> None:
    checked = CliRunner().invoke(main, ["check", ADDRESS, "-t", "ort"])
    assert f"next: edgekit build {ADDRESS} -t ort" in checked.output
    assert "-o cats.edgekit" in checked.output
    card = tmp_path / "card.toml"
    drafted = CliRunner().invoke(main, ["model", "card", ADDRESS, "-o", str(card)])
    assert f"edgekit build {ADDRESS} --card {card}" in drafted.output
    with pytest.raises(
        ModelError, match="edgekit check, build and model card take an address hf://OWNER/NAME, as"
    ):
        edgekit.check(Path(ADDRESS), ["ort"])


def test_a_path_chooses_one_of_several_files(hub: Hub) -> None:
    content = hub.files.pop(MODEL)
    hub.files |= {"onnx/model_fp16.onnx": b"other", "onnx/model_q4.onnx": content}
    with pytest.raises(
        ModelError, match=r"has 2 ONNX files: onnx/model_fp16.onnx, onnx/model_q4.onnx; name one"
    ):
        edgekit.check(ADDRESS, ["ort"])
    bundle = edgekit.build(f"{ADDRESS}/onnx/model_q4.onnx", targets=["ort"])
    assert hub.fetched() == ["config.json", "onnx/model_q4.onnx", "preprocessor_config.json"]
    assert bundle.manifest["source"]["repository"] == f"{ADDRESS}@{COMMIT}/onnx/model_q4.onnx"
    assert bundle.card is not None
    with pytest.raises(ModelError, match=r"has no ONNX file onnx/other.onnx; it has onnx/model_fp16.onnx, "):
        edgekit.check(f"{ADDRESS}/onnx/other.onnx", ["ort"])


def store_data(hub: Hub, folder: Path, name: str) -> None:
    """Move the weights of the hub's model into a file of this name."""
    import onnx

    model = onnx.load_model_from_string(hub.files[MODEL])
    for tensor in model.graph.initializer:
        tensor.raw_data = tensor.raw_data or onnx.numpy_helper.to_array(tensor).tobytes()
    onnx.save_model(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location=name,
        size_threshold=0,
    )
    hub.files |= {MODEL: (folder / "model.onnx").read_bytes(), f"onnx/{name}": (folder / name).read_bytes()}


def test_external_data_comes_with_its_model(hub: Hub, tmp_path: Path) -> None:
    store_data(hub, tmp_path, "model.onnx_data")
    hub.files["onnx/unused.onnx_data"] = b""
    edgekit.build(ADDRESS, targets=["ort"])
    assert "onnx/model.onnx_data" in hub.fetched()
    assert "onnx/unused.onnx_data" not in hub.fetched()


def test_external_data_with_the_name_of_a_pickle_is_refused(hub: Hub, tmp_path: Path) -> None:
    store_data(hub, tmp_path, "weights.bin")
    with pytest.raises(ModelError, match=r"model.onnx has its data in onnx/weights.bin, a name of a pickle"):
        edgekit.check(ADDRESS, ["ort"])
    assert "onnx/weights.bin" not in hub.fetched()


@pytest.mark.parametrize(
    ("model_type", "name"), [("whisper", "model.safetensors"), ("llama", "model-00001-of-00002.safetensors")]
)
def test_models_of_safetensors_are_fetched_without_onnx(hub: Hub, model_type: str, name: str) -> None:
    hub.files["config.json"] = json.dumps({"model_type": model_type}).encode()
    hub.files |= {
        "tokenizer.json": b"{}",
        "generation_config.json": b"{}",
        "model.safetensors.index.json": b"{}",
    }
    hub.files[name] = hub.files.pop("model.safetensors")
    fetched = hub_files.fetch(HubAddress(ADDRESS))
    assert fetched.path.name == "cats"
    beside = {"config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json"}
    index = {"model.safetensors.index.json"} if "-of-" in name else set()
    assert set(hub.fetched()) == {name, *beside, *index}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"status": 401, "error_code": "RepoNotFound"},
            "no such model that you may read; check the name, or log",
        ),
        (
            {"status": 403, "error_code": "GatedRepo"},
            "is gated; accept its conditions on its page and log in",
        ),
        ({"file_status": 403, "error_code": "GatedRepo"}, "is gated; accept its conditions"),
        ({"status": 404, "error_code": "RevisionNotFound"}, "has no revision v2"),
        ({"status": 500}, "answers 500; try again later"),
        ({"listed": lambda entry: {"size": 3}}, "does not answer as a hub does"),
        ({"listed": lambda entry: {**entry, "size": None}}, "the hub states no size of "),
    ],
)
def test_refusals_are_one_sentence(hub: Hub, settings: dict[str, Any], message: str) -> None:
    vars(hub).update(settings)
    hub.revisions["v2"] = COMMIT
    with pytest.raises(ModelError, match=message) as refused:
        edgekit.check(f"{ADDRESS}@v2", ["ort"])
    assert "hf_secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_repository_without_onnx_is_refused_before_its_weights_come(hub: Hub) -> None:
    del hub.files[MODEL]
    with pytest.raises(
        ModelError, match=r"has no ONNX file; export it \(optimum-cli export onnx --model acme/"
    ):
        edgekit.check(ADDRESS, ["ort"])
    assert hub.fetched() == ["config.json"]


@pytest.mark.parametrize("name", ["../model.onnx", "/etc/model.onnx", "onnx/../../model.onnx", "a\\b.onnx"])
def test_names_that_leave_the_folder_are_refused(hub: Hub, name: str) -> None:
    hub.files[name] = b"x"
    with pytest.raises(ModelError, match="a name that leaves its folder"):
        edgekit.check(ADDRESS, ["ort"])
    assert hub.fetched() == []


def test_an_endless_list_is_stopped(hub: Hub) -> None:

    most = hub_client.LIST_BYTES >> 19  # a test that fails ends too
    hub.list_sent = lambda content: (b" " * (1 << 20) for _ in range(most))
    with pytest.raises(
        ModelError, match=f"its list of files takes more than {hub_client.LIST_BYTES >> 20} MB"
    ):
        edgekit.check(ADDRESS, ["ort"])


def test_a_slow_list_is_stopped(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "LIST_SECONDS", 0.2)

    def slowly(content: bytes) -> Iterator[bytes]:
        for _ in range(50):
            time.sleep(0.1)
            yield b" "

    hub.list_sent = slowly
    with pytest.raises(ModelError, match=r"its list of files takes more than 0.2 s"):
        edgekit.check(ADDRESS, ["ort"])


def test_the_number_of_files_has_a_limit(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "FILES_LIMIT", len(hub.files) - 1)
    with pytest.raises(ModelError, match=f"has {len(hub.files)} files; at most {len(hub.files) - 1} are"):
        edgekit.check(ADDRESS, ["ort"])


def test_the_size_of_all_files_has_a_limit(hub: Hub) -> None:
    hub.listed = lambda entry: {**entry, "size": 40 << 30} if entry["rfilename"] == MODEL else entry
    with pytest.raises(ModelError, match=r"its files have 40.0 GB; at most 32 GB are fetched"):
        edgekit.check(ADDRESS, ["ort"])
    assert MODEL not in hub.fetched()


@pytest.mark.parametrize("name", [MODEL, "preprocessor_config.json"])
def test_a_file_with_another_content_than_listed_is_refused(hub: Hub, name: str) -> None:
    hub.sent = lambda sent, content: content[:-1] + b"\0" if sent == name else content
    with pytest.raises(ModelError, match=f"{name} differs from the hash in the hub's list"):
        edgekit.check(ADDRESS, ["ort"])
    assert list((cache_folder() / "hub").glob("*/")) == []
    hub.sent = lambda sent, content: content
    edgekit.check(ADDRESS, ["ort"])


def test_a_file_larger_than_listed_is_refused(hub: Hub) -> None:
    listed = len(hub.files["preprocessor_config.json"])
    hub.sent = lambda name, content: content + b" " if name == "preprocessor_config.json" else content
    with pytest.raises(
        ModelError, match=f"preprocessor_config.json: the server sends more than the {listed} bytes that"
    ):
        edgekit.check(ADDRESS, ["ort"])


def test_an_endless_file_is_stopped(hub: Hub) -> None:
    blocks = itertools.count()
    most = 400  # a test that fails ends too
    hub.sent = lambda name, content: (
        (bytes(1 << 20) for _ in blocks if next(blocks) < most) if name == MODEL else content
    )
    with pytest.raises(ModelError, match="the server sends more than the "):
        edgekit.check(ADDRESS, ["ort"])
    assert next(blocks) < 100


def test_a_slow_file_is_stopped(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "FILE_SECONDS", 0.2)

    def slowly(name: str, content: bytes) -> Iterator[bytes]:
        for _ in range(50):
            time.sleep(0.1)
            yield b" "

    hub.sent = slowly
    with pytest.raises(ModelError, match=r"config.json did not arrive within 0 s; try again later"):
        hub_files.fetch(HubAddress(ADDRESS))
    assert list((cache_folder() / "hub").glob("*/")) == []


@pytest.mark.parametrize("wait", ["99999999", "999999999999", "inf"])
def test_a_server_does_not_choose_how_long_a_client_waits(
    hub: Hub, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    hub.failures, hub.file_headers = [429, 503], {"Retry-After": wait}
    hub_files.fetch(HubAddress(ADDRESS))
    assert hub.failures == []
    assert 1 <= max(pauses) <= hub_client.PAUSE_SECONDS
    hub.failures = [503] * 9
    with pytest.raises(ModelError, match=r"answers 503; try again later"):
        hub_files.fetch(HubAddress(f"{ADDRESS}@v1"))
    assert len(hub.failures) == 9 - hub_client.ATTEMPTS


def test_no_name_of_a_file_comes_from_a_header(hub: Hub, tmp_path: Path) -> None:
    """An ETag or a disposition with a path; they were part of a name in the library's own download."""
    before = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    hub.file_headers = {"ETag": '"../../../../escaped"', "Content-Disposition": 'filename="../../escaped"'}
    hub_files.fetch(HubAddress(ADDRESS))
    assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} - before <= {tmp_path / "hf"}
    fetched = [path.name for path in (cache_folder() / "hub").rglob("*") if path.is_file()]
    names = ["config.json", "model.onnx", "preprocessor_config.json"]
    assert sorted(name for name in fetched if not name.endswith(".lock")) == sorted(
        [*names, hub_files.RECORD]
    )


def test_a_transfer_that_breaks_is_continued(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    hub.cut = 10
    hub_files.fetch(HubAddress(ADDRESS))
    asked = [path for _, path, _ in hub.requests if path.endswith("/config.json")]
    assert len(asked) == 2


def test_a_hub_that_answers_with_another_commit_is_refused(hub: Hub) -> None:
    hub.revisions["a" * 40] = COMMIT
    with pytest.raises(ModelError, match=f"the hub names another commit, {COMMIT}"):
        edgekit.check(f"{ADDRESS}@{'a' * 40}", ["ort"])
    assert hub.fetched() == []


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        MissingDependency, match=r"huggingface_hub is not installed, and fetching hf://acme/cats"
    ):
        edgekit.check(ADDRESS, ["ort"])


@pytest.mark.parametrize(
    "text",
    ["hf://cats", "hf://acme/cats/", "hf://acme/cats/../x", "hf://../cats", "hf://a/b@c d", "hf://a/b@/x"],
)
def test_addresses_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address of a model; write hf://OWNER/NAME"):
        edgekit.check(text, ["ort"])


def test_a_cached_commit_that_others_may_write_to_is_not_used(hub: Hub) -> None:
    edgekit.check(ADDRESS, ["ort"])
    (record,) = cache_folder().rglob(hub_files.RECORD)
    record.parent.chmod(0o777)
    with pytest.raises((EdgeKitError, OSError), match="other users can write to"):
        edgekit.check(ADDRESS, ["ort"])
