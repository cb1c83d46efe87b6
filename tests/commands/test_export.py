from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundle import Variant
from edgekit.commands.export import export_variant
from edgekit.errors import UsageError
from edgekit.system.atomic_files import write_atomically
from tests.fixtures.bundles import small_bundle, variant


def test_files_are_written_with_their_content(tmp_path: Path) -> None:
    (path,) = export_variant(small_bundle(), "ort-fp32", tmp_path / "a" / "b")
    assert path == tmp_path / "a" / "b" / "model.bin"
    assert path.read_bytes() == b"ort-fp32"


def test_a_rejected_variant_says_why(tmp_path: Path) -> None:
    bundle = small_bundle([variant("v", "ort", status="rejected: 2.00x the time of w")])
    with pytest.raises(UsageError) as error:
        export_variant(bundle, "v", tmp_path / "raw")
    assert str(error.value) == "v has no files in the bundle: rejected: 2.00x the time of w"
    assert not (tmp_path / "raw").exists()


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "raw").touch()
    with pytest.raises(UsageError) as error:
        export_variant(small_bundle(), "ort-fp32", tmp_path / "raw")
    assert str(error.value) == (
        f"can't write to {tmp_path / 'raw'}: File exists; choose another folder. Nothing was written"
    )


def test_all_files_are_written_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def full_disk(path: Path, pieces: list[bytes]) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        write_atomically(path, pieces)

    monkeypatch.setattr("edgekit.commands.export.write_atomically", full_disk)
    files = {"a.bin": "variants/v/a", "b.bin": "variants/v/b"}
    entries = {"variants/v/a": b"a", "variants/v/b": b"b"}
    bundle = small_bundle([Variant("v", "ort", "ort", "fp32", files)], entries)
    with pytest.raises(UsageError, match="No space left on device"):
        export_variant(bundle, "v", tmp_path)
    assert written == [tmp_path / "a.bin"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="No space left on device"):
        export_variant(bundle, "v", tmp_path / "made")
    assert list(tmp_path.iterdir()) == []
