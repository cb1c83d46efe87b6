"""A bundle's file that is cut short or overwritten in place while a session is open.

There is an answer, or an error that says what happened, and never a signal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.bundle.bundle import COPIED_BYTES
from edgekit.errors import BundleError
from tests.fixtures.bundles import small_bundle
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle

ROOT = Path(__file__).parents[3]
APP = """
import sys
import numpy as np
from edgekit.errors import EdgeKitError
from edgekit.runtime import Session

path, before = sys.argv[1:]
feeds = {"x": np.arange(6, dtype=np.float32).reshape(1, 6)}
with Session(path, threads=1) as session:
    if before == "unpacked":
        from edgekit.runtime.loading import unpacked_files
        for variant in session.bundle.variants:
            unpacked_files.unpack(session.bundle, variant)
    assert session.active.variant == "first"
    print("open", flush=True)
    sys.stdin.readline()
    def fails(feeds):
        raise RuntimeError("the engine died")
    session.runner.run = fails
    try:
        answer = session.run(feeds)
        print(session.active.variant, np.array_equal(answer["y"], 2 * feeds["x"]))
    except EdgeKitError as problem:
        print(type(problem).__name__, problem)
"""


def saved(folder: Path) -> Path:
    first, second = onnx_bytes(DOUBLES), onnx_bytes(DOUBLES.replace("Add(x, x)", "Sum(x, x)"))
    return ort_bundle(first=first, second=second).save(folder / "b.edgekit")


def story(path: Path, change: Callable[[Path], object], before: str = "") -> str:
    """What a process says whose bundle is changed while it is open, and whose first variant then fails."""
    command = [sys.executable, "-c", APP, str(path), before]
    app = subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, stderr=-1, text=True)
    assert app.stdout is not None
    opened = app.stdout.readline()
    change(path)
    said, complaint = app.communicate("\n", timeout=120)
    assert (opened, app.returncode) == ("open\n", 0), (app.returncode, complaint)
    assert "Traceback" not in complaint
    return said


def overwritten(path: Path) -> None:
    """As ``cp other.edgekit b.edgekit`` does: the same file, other content."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(b"\1" * size)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: os.truncate(path, 0), "the file ends {} bytes too early; it was changed since"),
    "cut": (
        lambda path: os.truncate(path, path.stat().st_size - 1),
        "the file ends 1 bytes too early; it was changed since it was opened",
    ),
    "overwritten": (overwritten, "its sha256 is not the one in the manifest"),
}


@pytest.mark.needs_ort
@pytest.mark.parametrize("name", CHANGES)
def test_a_fallback_after_the_file_was_changed_in_place_is_an_error_that_says_so(
    name: str, tmp_path: Path
) -> None:
    change, why = CHANGES[name]
    path = saved(tmp_path)
    with Bundle.open(path) as bundle:
        why = why.format(bundle.size_bytes("v/second.onnx"))
    said = story(path, change)
    assert said.startswith(f"NoVariantError no variant of {path} works here\n")
    assert f"{path} is damaged" in said
    assert f"entry v/second.onnx: {why}" in said


@pytest.mark.needs_ort
@pytest.mark.parametrize("name", CHANGES)
def test_what_was_unpacked_before_answers_all_the_same(name: str, tmp_path: Path) -> None:
    assert story(saved(tmp_path), CHANGES[name][0], "unpacked") == "second True\n"


@pytest.mark.needs_ort
def test_a_file_that_is_replaced_stays_what_it_was_to_who_has_it_open(tmp_path: Path) -> None:
    def replaced(path: Path) -> None:
        (tmp_path / "other").write_bytes(b"another bundle")
        os.replace(tmp_path / "other", path)

    assert story(saved(tmp_path), replaced) == "second True\n"


def test_what_is_read_is_hashed_each_time(tmp_path: Path) -> None:
    """An entry that was sound when it was first read need not be so the next time."""
    big = bytes(range(256)) * (COPIED_BYTES // 128)  # more than one piece
    path = small_bundle(entries={"big": big}).save(tmp_path / "b.edgekit")
    content = path.read_bytes()
    with Bundle.open(path) as bundle:
        first = bundle.read("big")
        x = bundle.golden[0][0]["x"].copy()
        with open(path, "r+b") as file:
            file.seek(content.index(big) + len(big) - 1)
            file.write(b"\0")
        with pytest.raises(BundleError, match="entry big: its sha256 is not the one in the manifest"):
            bundle.read("big")
        with pytest.raises(BundleError, match="entry big: its sha256 is not the one in the manifest"):
            bundle.save(tmp_path / "copy.edgekit")
        assert not (tmp_path / "copy.edgekit").exists()
        os.truncate(path, 0)
        assert bytes(first) == big
        np.testing.assert_array_equal(bundle.golden[0][0]["x"], x)
        for read in (lambda: bundle.read("big"), bundle.verify_entries):
            with pytest.raises(BundleError, match="bytes too early; it was changed since it was opened"):
                read()
    path.write_bytes(content)
    with Bundle.open(path) as bundle:
        bundle.verify_entries()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("/proc tells of the descriptors")
    path = small_bundle().save(tmp_path / "b.edgekit")
    bad = tmp_path / "bad.edgekit"
    bad.write_bytes(path.read_bytes()[:-1])
    before = len(list(folder.iterdir()))
    for _ in range(5):
        bundle = Bundle.open(path)
        bundle.read("golden/0/x.npy")
        bundle.close()
        Bundle.open(path)
        with pytest.raises(BundleError):
            Bundle.open(bad)
    assert len(list(folder.iterdir())) == before
