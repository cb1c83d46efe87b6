"""A device's store by hand: install from a folder, look, commit, roll back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgekit.cli import main
from edgekit.runtime.store.bundle_store import Store
from tests.fixtures.bundles import small_bundle, variant


@pytest.fixture
def stick(tmp_path: Path) -> Path:
    """A USB stick with two bundles, one of them in a folder."""
    folder = tmp_path / "stick" / "models"
    folder.mkdir(parents=True)
    small_bundle([variant("a", "ort")]).save(folder / "detector-3.edgekit")
    small_bundle([variant("b", "ort")]).save(folder.parent / "reader.edgekit")
    (folder.parent / "holiday.jpg").write_bytes(b"?")
    return tmp_path / "stick"


def run(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(*arguments: object) -> str:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    return done.stderr


def test_install_start_commit_and_roll_back(tmp_path: Path, stick: Path) -> None:
    store = tmp_path / "store"
    found = run("store", "install", stick, "--store", store, "--name", "detector")
    assert (found["bundle"], found["phase"]) == (str(stick / "models" / "detector-3.edgekit"), "staged")
    given = ("--store", store, "--name", "detector")
    assert "its staged bundle was not started yet" in refused("store", "commit", *given)
    app = Store(store, stick / "reader.edgekit", name="detector")
    assert app.begin().stem == found["digest"]
    (model,) = run("store", "status", "--store", store)["models"]
    assert model["name"] == "detector"
    assert [(each["phase"], each["starts"], each["note"]) for each in model["bundles"]] == [
        ("candidate", 1, "runs, 1 unconfirmed starts")
    ]
    assert run("store", "commit", "--store", store) == {"committed": found["digest"]}  # the only model
    assert app.state.good == (found["digest"],)
    assert "it has no candidate" in refused("store", "commit", *given)
    assert run("store", "rollback", *given, "--reason", "slow") == {"given_up": found["digest"], "next": ""}
    assert app.state.given_up == ((found["digest"], "slow"),)
    assert "the next start is the factory's bundle's" in refused("store", "rollback", *given)
    text = CliRunner().invoke(main, ["store", "status", *map(str, given)]).stdout
    assert text == (
        f"{store}, detector\n  next start: the factory bundle\n  given up: {found['digest'][:12]}  slow\n"
    )


def test_a_folder_with_several_bundles_or_none(tmp_path: Path, stick: Path) -> None:
    store = tmp_path / "store"
    assert refused("store", "install", stick, "--store", store) == (
        f"error: {stick} has 2 bundles: name one of them\n"
        f"  {stick / 'reader.edgekit'}\n  {stick / 'models' / 'detector-3.edgekit'}\n"
    )
    assert "has no bundle of other (NAME.edgekit), 3 folders deep" in refused(
        "store", "install", stick, "--store", store, "--name", "other"
    )
    assert "file not found" in refused("store", "install", stick / "none.edgekit", "--store", store)
    assert not store.exists()
    for verb in ("status", "commit", "rollback"):
        assert "has no store; `edgekit store install` makes one" in refused("store", verb, "--store", store)


def test_several_models_need_a_name_and_a_damaged_bundle_changes_nothing(tmp_path: Path, stick: Path) -> None:
    store = tmp_path / "store"
    for name in ("detector", "reader"):
        run("store", "install", stick, "--store", store, "--name", name)
    assert "has several models: give --name detector or reader" in refused(
        "store", "rollback", "--store", store
    )
    models = run("store", "status", "--store", store)["models"]
    path = stick / "reader.edgekit"
    content = path.read_bytes()
    path.write_bytes(content[:-70] + bytes(70))
    assert "is damaged" in refused("store", "install", path, "--store", store, "--name", "detector")
    assert run("store", "status", "--store", store)["models"] == models


def test_a_version_is_kept_and_older_ones_are_refused(tmp_path: Path, stick: Path) -> None:
    store, path = tmp_path / "store", stick / "reader.edgekit"
    run("store", "install", path, "--store", store, "--bundle-version", 7)
    Store(store, path).begin()
    run("store", "commit", "--store", store)
    other = stick / "models" / "detector-3.edgekit"
    assert "its version is 6, but version 7" in refused(
        "store", "install", other, "--store", store, "--bundle-version", 6
    )
    assert run("store", "status", "--store", store)["models"][0]["bundles"][0]["version"] == 7
