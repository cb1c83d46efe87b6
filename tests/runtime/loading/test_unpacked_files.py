"""Unpacking: once, whole or not at all, checked when opened again, and elsewhere when it must be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.errors import BundleError, EngineError
from edgekit.runtime.loading import unpacked_files
from edgekit.system import cache_folder, timings
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.disk_calls import flushed_before, recorded, renamed_to


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return Bundle.open(small_bundle([variant("a", "ort"), variant("b", "ort")]).save(tmp_path / "b.edgekit"))


@pytest.fixture
def artifacts() -> Path:
    return cache_folder.cache_folder() / "artifacts"


def folders(artifacts: Path) -> list[Path]:
    return [path for path in artifacts.iterdir() if path.name != ".lock"]


def test_a_variant_is_unpacked_once(bundle: Bundle, artifacts: Path) -> None:
    first = unpacked_files.unpack(bundle, bundle.variants[0])
    assert {name: path.read_bytes() for name, path in first.items()} == {"model.bin": b"a"}
    (folder,) = folders(artifacts)
    assert folder.name == timings.files_digest({"model.bin": b"a"})
    inode = os.stat(first["model.bin"]).st_ino
    assert unpacked_files.unpack(bundle, bundle.variants[0]) == first
    assert os.stat(first["model.bin"]).st_ino == inode
    assert unpacked_files.unpack(bundle, bundle.variants[1])["model.bin"].read_bytes() == b"b"
    assert len(folders(artifacts)) == 2


@pytest.mark.parametrize(
    "damage", ["shorter", "edited", "absent", "link", "no marker", "marker of garbage", "empty"]
)
def test_damage_is_found_and_mended(bundle: Bundle, artifacts: Path, damage: str) -> None:
    path = unpacked_files.unpack(bundle, bundle.variants[0])["model.bin"]
    (folder,) = folders(artifacts)
    match damage:
        case "shorter":
            path.write_bytes(b"")
        case "edited":
            path.write_bytes(b"x")
            os.utime(path, (1, 1))
        case "absent":
            path.unlink()
        case "link":
            path.rename(artifacts / "elsewhere")
            path.symlink_to(artifacts / "elsewhere")
        case "no marker":
            (folder / unpacked_files.MARKER).unlink()
        case "marker of garbage":
            (folder / unpacked_files.MARKER).write_bytes(b"\xff[")
        case "empty":
            (folder / unpacked_files.MARKER).write_bytes(b"[]")
    mended = unpacked_files.unpack_noted(bundle, bundle.variants[0])
    assert mended.note == ""
    assert mended.files == {"model.bin": path}
    assert path.read_bytes() == b"a"
    assert not path.is_symlink()


def test_what_a_killed_process_left_is_not_taken_and_removed(bundle: Bundle, artifacts: Path) -> None:
    digest = timings.files_digest({"model.bin": b"a"})
    left = artifacts / f".{digest}.0123" / "files"
    left.mkdir(parents=True)
    (left / "model.bin").write_bytes(b"half")
    unpacked_files.unpack(bundle, bundle.variants[0])
    assert [path.name for path in folders(artifacts)] == [digest]


@pytest.mark.parametrize("call", ["fsync", "rename", "replace"])
def test_a_disk_that_fails_leaves_nothing_behind(
    bundle: Bundle, artifacts: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Full disk at any step: the file is unpacked elsewhere, and the cache has no half of it."""
    real = getattr(os, call)

    def failing(*args: object) -> object:
        if call == "fsync" or str(artifacts) in str(args[0]):
            raise OSError(28, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, call, failing)
    if call == "fsync":  # fails everywhere
        with pytest.raises(EngineError, match="cannot be unpacked") as error:
            unpacked_files.unpack(bundle, bundle.variants[0])
        assert str(error.value) == (
            f"variant a cannot be unpacked: {artifacts} cannot be used: No space left on device; nor in a "
            "temporary folder: No space left on device; free some space, or set EDGEKIT_CACHE to a "
            "writable folder"
        )
    else:
        unpacked = unpacked_files.unpack_noted(bundle, bundle.variants[0])
        assert unpacked.files["model.bin"].read_bytes() == b"a"
        assert unpacked.note == (
            f"{artifacts} cannot be used: No space left on device; unpacked for this process only. Set "
            "EDGEKIT_CACHE to a writable folder"
        )
        assert unpacked_files.unpack_noted(bundle, bundle.variants[0]) == unpacked
    assert folders(artifacts) == []


def test_a_damaged_entry_is_refused_and_leaves_nothing(tmp_path: Path, artifacts: Path) -> None:
    path = small_bundle([variant("a", "ort")]).save(tmp_path / "b.edgekit")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with Bundle.open(path) as bundle, pytest.raises(BundleError, match="its sha256 is not the one"):
        unpacked_files.unpack(bundle, bundle.variants[0])
    assert folders(artifacts) == []


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
@pytest.mark.parametrize("above", [False, True])
def test_a_folder_that_others_can_write_to_is_not_trusted(
    bundle: Bundle, artifacts: Path, above: bool
) -> None:
    unpacked_files.unpack(bundle, bundle.variants[0])
    assert artifacts.stat().st_mode & 0o777 == 0o700
    (artifacts.parent if above else artifacts).chmod(0o777)
    what = f"{artifacts.parent}, where it is" if above else "it"
    unpacked = unpacked_files.unpack_noted(bundle, bundle.variants[0])
    assert artifacts not in unpacked.files["model.bin"].parents
    assert unpacked.note.startswith(f"{artifacts} cannot be used: other users can write to {what}; unpacked ")


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
@pytest.mark.parametrize("what", ["folder", "marker", "file"])
def test_what_others_could_have_written_is_unpacked_again(bundle: Bundle, artifacts: Path, what: str) -> None:
    path = unpacked_files.unpack(bundle, bundle.variants[0])["model.bin"]
    (folder,) = folders(artifacts)
    place = {"folder": folder, "marker": folder / unpacked_files.MARKER, "file": path}[what]
    inode = path.stat().st_ino
    place.chmod(0o666 if place.is_file() else 0o777)
    assert unpacked_files.unpack(bundle, bundle.variants[0]) == {"model.bin": path}
    assert path.stat().st_ino != inode
    assert not path.stat().st_mode & 0o022


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
@pytest.mark.parametrize("mask", [0o000, 0o002])
def test_what_was_unpacked_under_any_umask_is_taken_again(artifacts: Path, mask: int) -> None:
    files = {"Data/model/weights.bin": "w"}
    each = Variant("v", "coreml", "c", "fp32", files, {}, "verified")
    bundle = small_bundle([each], {"w": b"weights"})
    before = os.umask(mask)
    try:
        path = unpacked_files.unpack(bundle, each)["Data/model/weights.bin"]
        inode = path.stat().st_ino
        assert unpacked_files.unpack(bundle, each)["Data/model/weights.bin"].stat().st_ino == inode
    finally:
        os.umask(before)
    assert artifacts in path.parents
    for above in (path, *path.parents):
        if artifacts in (above, *above.parents):
            assert not above.stat().st_mode & 0o077


@pytest.mark.skipif(os.name != "posix", reason="needs folders that can be flushed")
def test_unpacked_files_are_on_the_disk_before_their_folder_has_its_name(
    bundle: Bundle, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch)
    path = unpacked_files.unpack(bundle, bundle.variants[0])["model.bin"]
    (folder,) = folders(artifacts)
    named = renamed_to(calls, folder)
    for each in (path, path.parent, folder / unpacked_files.MARKER, folder):
        assert flushed_before(calls, each, named)
    assert flushed_before(calls[named:], artifacts, len(calls))


def test_a_cache_that_is_a_file(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "file"))
    unpacked = unpacked_files.unpack_noted(bundle, bundle.variants[0])
    assert unpacked.files["model.bin"].read_bytes() == b"a"
    assert "Not a directory" in unpacked.note


def test_what_was_opened_longest_ago_goes_first(
    bundle: Bundle, artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in bundle.variants:
        unpacked_files.unpack(bundle, each)
    old, new = (artifacts / timings.files_digest({"model.bin": content}) for content in (b"a", b"b"))
    os.utime(old, (1e9, 1e9))
    os.utime(new, (2e9 - 1, time.time() - 2 * unpacked_files.KEPT_SECONDS))
    third = small_bundle([variant("c", "ort")])
    unpacked_files.unpack(third, third.variants[0])
    assert len(folders(artifacts)) == 3
    new_bytes = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
    monkeypatch.setattr(unpacked_files, "CACHE_LIMIT_BYTES", 3 * new_bytes)
    fourth = small_bundle([variant("d", "ort")])
    unpacked_files.unpack(fourth, fourth.variants[0])
    assert not old.exists()
    assert new.exists()
    monkeypatch.setattr(unpacked_files, "CACHE_LIMIT_BYTES", 0)
    fifth = small_bundle([variant("e", "ort")])
    unpacked_files.unpack(fifth, fifth.variants[0])
    assert not new.exists()
    assert len(folders(artifacts)) == 3  # those of today stay, though there is too much


def test_many_processes_unpack_at_once_from_damage(bundle: Bundle, artifacts: Path) -> None:
    """Eight processes meet the same damaged folder: each gets whole files, at the same place."""
    path = unpacked_files.unpack(bundle, bundle.variants[0])["model.bin"]
    path.write_bytes(b"")
    script = (
        "import sys; from edgekit.bundle import Bundle; from edgekit.runtime.loading import unpacked_files\n"
        "bundle = Bundle.open(sys.argv[1]); sys.stdin.read()\n"
        "path = unpacked_files.unpack(bundle, bundle.variants[0])['model.bin']\n"
        "print(path, path.read_bytes())"
    )
    command = [sys.executable, "-c", script, bundle.name]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(8)]
    for process in running:
        assert process.stdin is not None
        process.stdin.close()
    for process in running:
        assert process.stdout is not None
        assert process.stdout.read() == f"{path} b'a'\n"
        process.stdout.close()
        assert process.wait() == 0
    assert len(folders(artifacts)) == 1
