"""``edgekit export BUNDLE --web DIR``: what it writes, notes and refuses."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.errors import BundleError, MissingDependency, UsageError
from edgekit.web import engine, folder
from tests.fixtures.bundles import pack, packed_parts, small_bundle, variant
from tests.fixtures.command_line import Call, answer
from tests.native.models import COLOUR_CARD, colours_bundle

needs_ort = pytest.mark.needs_ort


@pytest.mark.needs_npm
@needs_ort
def test_a_folder_with_a_bundle_and_its_page(npm_package: Path, tmp_path: Path, call: Call) -> None:
    path = colours_bundle().save(tmp_path / "colours.edgekit")
    arguments = ["export", str(path), "--web", str(tmp_path / "site"), "--npm-package", str(npm_package)]
    result = call(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "  runs      colours\n" in result.stdout
    assert f"next: python -m http.server -d {tmp_path / 'site'}" in result.stdout
    site = tmp_path / "site"
    assert (site / "model.edgekit").read_bytes() == path.read_bytes()
    worker = (site / "service-worker.js").read_text()
    kept = json.loads(re.search(r"const FILES = (\{.*?\});", worker, re.DOTALL)[1])  # type: ignore[index]
    files = {str(each.relative_to(site)) for each in site.rglob("*") if each.is_file()}
    assert set(kept) == files - {"service-worker.js", "edgekit.d.ts", "package.json"}
    named = set(re.findall(r"new URL\('\./([^']+)'", (site / "files.js").read_text()))
    assert named == {name for name in files if name.startswith("onnxruntime/")} | {"edgekit.wasm"}
    package = json.loads((site / "package.json").read_text())
    assert package["version"] == edgekit.__version__
    assert not [name for name in package["files"] if not (site / name).exists() and "litert" not in name]
    assert re.search(r"const VERSION = '?\"[0-9a-f]{16}\"", worker)
    again = call(*arguments)
    assert (again.exit_code, again.stderr) == (
        2,
        f"error: {site} is not an empty folder; choose another one. Nothing was written\n",
    )
    found = answer(call("export", str(path), "--web", str(tmp_path / "other"), "--json"))  # from the cache
    assert found["variants"] == ["colours"]
    assert (tmp_path / "other" / "service-worker.js").read_text() == worker


@pytest.mark.needs_npm
@needs_ort
def test_a_changed_file_in_the_cache_is_not_used(npm_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = engine.engine_files(["ort"], [npm_package])
    (kept,) = Path(os.environ["EDGEKIT_CACHE"]).glob("web/*/ort.wasm.min.mjs")
    kept.write_bytes(b"alert(1)")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingDependency, match=r"npm is not installed, and fetching onnxruntime-web@"):
        engine.engine_files(["ort"])
    assert engine.engine_files(["ort"], [npm_package]) == right
    assert engine.engine_files(["ort"]) == right


def test_another_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"another")
    said = (
        r"x\.tgz is not a package that a page uses: its integrity is sha512-\S+; fetch it with npm pack onnx"
    )
    with pytest.raises(UsageError, match=said):
        engine.engine_files(["ort"], [tmp_path / "x.tgz"])
    with pytest.raises(UsageError, match=r"y\.tgz cannot be read"):
        engine.engine_files(["ort"], [tmp_path / "y.tgz"])
    assert not (Path(os.environ["EDGEKIT_CACHE"]) / "web").exists()


def test_bundles_that_a_page_cannot_run(tmp_path: Path) -> None:
    for made in (
        small_bundle([variant("a", "tflite")]),
        small_bundle([variant("a", "ort", status="rejected: wrong")]),
        small_bundle([variant("a", "ort")]),  # no limit of its outputs
    ):
        with pytest.raises(UsageError, match=r"no variant that a page runs; it has a \(\w+\)\. A page"):
            folder.write_web(made, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@needs_ort
def test_a_damaged_bundle_is_not_published(tmp_path: Path) -> None:
    path = colours_bundle().save(tmp_path / "c.edgekit")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with Bundle.open(path) as bundle, pytest.raises(BundleError, match="is damaged"):
        folder.write_web(bundle, tmp_path / "site")


def _without_a_card(manifest: dict[str, Any]) -> None:
    manifest["card"] = None


def _with_another_task(manifest: dict[str, Any]) -> None:
    manifest["card"] = {**COLOUR_CARD, "task": {**COLOUR_CARD["task"], "kind": "embed"}}


@needs_ort
@pytest.mark.parametrize(
    ("change", "note"),
    [
        (_without_a_card, "the bundle has no card: the page checks engines, but predicts nothing"),
        (_with_another_task, "the card's inputs or task are not those of a page: it checks engines, but"),
    ],
)
def test_what_a_page_does_not_do_is_noted(tmp_path: Path, change: Any, note: str) -> None:
    manifest, data = packed_parts(colours_bundle())
    change(manifest)
    (tmp_path / "c.edgekit").write_bytes(pack(json.dumps(manifest).encode(), data))
    with Bundle.open(tmp_path / "c.edgekit") as bundle:
        assert [one.startswith(note) for one in folder._notes(bundle, ["colours"])] == [True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--web", "d", "--triton", "t"],
            "one of -o DIR, --triton DIR, --package DIR, --deepstream DIR and --web DIR",
        ),
        (["--npm-package", "p", "--triton", "t"], "--npm-package and --webgpu go with --web"),
        (["v", "--web", "d"], "--web takes no VARIANT: the page chooses one, as a device does"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], said: str, call: Call, tmp_path: Path) -> None:
    path = small_bundle().save(tmp_path / "b.edgekit")
    result = call("export", str(path), *words)
    assert result.exit_code == 2
    assert said in result.stderr
