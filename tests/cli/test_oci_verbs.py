"""`edgekit release publish --oci` and `edgekit store update --oci`. They need no extra."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.bundles import small_bundle
from tests.fixtures.command_line import Call, answer


def test_from_a_bundle_to_an_installed_one(tmp_path: Path, call: Call) -> None:
    path, layout = small_bundle().save(tmp_path / "a.edgekit"), tmp_path / "layout"
    told = call("release", "publish", path, "--oci", layout, "--tag", "v3", "--model", "detector")
    assert told.exit_code == 0, told.stderr
    assert "detector.edgekit" in told.stdout
    assert f"next: oras cp --from-oci-layout {layout}:v3 REGISTRY/NAME:v3" in told.stdout
    made = answer(call("release", "publish", path, "--oci", layout, "--model", "detector", "--json"))
    assert (made["tag"], made["file"], made["signed"]) == ("latest", "detector.edgekit", False)
    device = ["--store", tmp_path / "store", "--oci", f"{layout}:v3"]
    assert answer(call("store", "update", *device, "--dry-run", "--json"))["outcome"] == "available"
    found = answer(call("store", "update", *device, "--json"))
    assert (found["outcome"], found["digest"]) == ("installed", made["digest"])
    assert found["notes"] == ["digests show damage, not who made it; --key demands a signature"]
    assert "up to date" in call("store", "update", *device).stdout
    (layout / "index.json").write_text("{")
    refused = call("store", "update", *device)
    assert refused.exit_code == 1
    assert "layout:v3 is refused: index.json" in refused.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["release", "publish", "a.edgekit"], "give --repo and --keys, or --oci"),
        (["release", "publish", "--oci", "x"], "give the BUNDLE that is published"),
        (
            ["release", "publish", "a.edgekit", "--oci", "x", "--repo", "site"],
            "--repo does not go with --oci",
        ),
        (
            ["release", "publish", "a.edgekit", "--oci", "x", "--channel", "stable"],
            "--channel does not go with --oci",
        ),
        (
            ["release", "publish", "a.edgekit", "--oci", "x", "--stop-installs"],
            "--stop-installs does not go with --oci",
        ),
        (
            ["release", "publish", "a.edgekit", "--repo", "s", "--keys", "k", "--tag", "v1"],
            "--tag needs --oci",
        ),
        (["store", "update", "--store", "s"], "give --repo-url and --channel, or --oci"),
        (
            ["store", "update", "--store", "s", "--oci", "x", "--every", "1h"],
            "--every does not go with --oci",
        ),
        (["store", "update", "--store", "s", "--oci", "nowhere:v1"], "nowhere: the folder does not exist"),
    ],
)
def test_wrong_use(words: list[str], why: str, call: Call) -> None:
    found = call(*words)
    assert found.exit_code == 2
    assert why in found.stderr
