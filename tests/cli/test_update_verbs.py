"""`edgekit release publish` and `edgekit store update`, from the first key to an installed bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.command_line import Call, answer
from tests.release.updates.file_server import serving

pytest.importorskip("tuf")


@pytest.fixture
def site(tmp_path: Path, call: Call) -> Path:
    made = call(
        "release",
        "publish",
        "--init",
        *where(tmp_path),
        "--offline-keys",
        tmp_path / "usb",
        "--channel",
        "stable",
    )
    assert made.exit_code == 0, made.stderr
    assert "next: edgekit release publish BUNDLE" in made.stdout
    for name in "ab":
        small_bundle([variant(name, "ort")]).save(tmp_path / f"{name}.edgekit")
    return tmp_path / "site"


def where(folder: Path) -> list[object]:
    return ["--repo", folder / "site", "--keys", folder / "online"]


def test_from_keys_to_an_installed_bundle(
    tmp_path: Path, site: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    stable = [*where(tmp_path), "--channel", "stable"]
    found = answer(
        call("release", "publish", tmp_path / "a.edgekit", "--model", "detector", *stable, "--json")
    )
    assert (found["target"], found["release"]) == ("stable/detector/1.edgekit", 1)
    again = call("release", "publish", tmp_path / "a.edgekit", "--model", "detector", *stable)
    assert again.exit_code == 2
    assert "is release 1 of detector in stable already" in again.stderr
    with serving(site) as server:
        device = ["--store", tmp_path / "store", "--repo-url", server.url, "--channel", "stable"]
        without = call("store", "update", *device)
        assert without.exit_code == 2
        assert "give --root, a copy of its metadata/1.root.json" in without.stderr
        root = ["--root", site / "metadata" / "1.root.json"]
        assert (
            answer(call("store", "update", *device, *root, "--dry-run", "--json"))["outcome"] == "available"
        )
        assert answer(call("store", "update", *device, "--json"))["outcome"] == "installed"
        published = answer(
            call(
                "release",
                "publish",
                tmp_path / "b.edgekit",
                "--model",
                "detector",
                "--rollout",
                0,
                *stable,
                "--json",
            )
        )
        assert published["percent"] == 0
        assert "release 2 is released to 0 % of the devices" in call("store", "update", *device).stdout
        assert call("release", "publish", "--rollout", 100, *stable).exit_code == 0
        assert answer(call("store", "update", *device, "--json"))["release"] == 2
        assert "devices go to the one before" in call("release", "publish", "--withdraw", 2, *stable).stdout
        assert answer(call("store", "update", *device, "--json"))["release"] == 1
        call("release", "publish", "--stop-installs", "--reason", "investigating", *stable)
        stopped = answer(call("store", "update", *device, "--json"))
        assert (stopped["outcome"], stopped["notes"]) == (
            "stopped",
            ["channel stable is stopped: investigating"],
        )
    monkeypatch.setattr(
        "edgekit.release.updates.http_files.random.uniform", lambda low, high: 0.0
    )  # waits no second
    gone = call("store", "update", *device, "--json")
    assert gone.exit_code == 1
    assert "the repository can't be read" in gone.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "give one of BUNDLE, --rollout, --init"),
        (["--stop-installs", "--resume-installs", "--channel", "stable"], "give one of BUNDLE"),
        (["--refresh", "--reason", "x"], "--reason needs --stop-installs or --withdraw"),
        (["--refresh", "--channel", "stable"], "--channel does not go with --refresh"),
        (["--stop-installs"], "give one --channel"),
        (
            ["--stop-installs", "--add-model", "--channel", "stable"],
            "--add-model needs the BUNDLE that is published",
        ),
        (["--rollout", "5", "--add-model", "--channel", "stable"], "give one of BUNDLE"),
        (["--rollout", "101", "--channel", "stable"], "has no model (give --model)|0 to 100 percent"),
        (["--add-channel", "Stable"], "cannot name a channel"),
        (["--rotate", "nobody"], "unknown role nobody"),
        (["--rotate", "timestamp"], "signed with its offline key: give --offline-keys"),
        (["a.edgekit", "--channel", "beta"], "file not found|has no channel beta"),
        (["--rollout", "5", "--channel", "beta"], " --offline-keys FOLDER --add-channel beta makes it"),
    ],
)
def test_wrong_use(tmp_path: Path, site: Path, call: Call, words: list[str], why: str) -> None:
    found = call("release", "publish", *where(tmp_path), *words)
    assert found.exit_code == 2
    assert any(part in found.stderr for part in why.split("|")), found.stderr
