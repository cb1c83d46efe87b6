from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.bundle import Variant
from edgekit.errors import UsageError
from edgekit.release.export.export import export_title, export_variant
from edgekit.runtime import Session
from edgekit.system.atomic_files import write_atomically
from tests.fixtures import models
from tests.fixtures.bundles import small_bundle, variant


def test_files_are_written_with_their_content(tmp_path: Path) -> None:
    (path,) = export_variant(small_bundle(), "ort-fp32", tmp_path / "a" / "b")
    assert path == tmp_path / "a" / "b" / "m-ort-fp32.bin"
    assert path.read_bytes() == b"ort-fp32"


def test_variants_of_a_model_fit_into_one_folder(tmp_path: Path) -> None:
    bundle = small_bundle([variant("a-fp32", "ort"), variant("a-int8", "ort")])
    for name in ("a-fp32", "a-int8"):
        export_variant(bundle, name, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m-a-fp32.bin", "m-a-int8.bin"]
    with pytest.raises(UsageError) as error:
        export_variant(bundle, "a-int8", tmp_path)
    there = tmp_path / "m-a-int8.bin"
    assert str(error.value) == f"{there} already exists; choose another folder. Nothing was written"


@pytest.mark.parametrize(
    ("source", "name", "title"),
    [
        ("yolox_nano.onnx", "rpi5-int8-mixed-2", "yolox_nano-rpi5-int8-mixed-2"),
        ("a.b.onnx", "v", "a.b-v"),
        ("model", "v", "model-v"),
        ("../../etc/passwd", "../x", "passwd-x"),
        ("C:\\a b.onnx", "v", "a_b-v"),
        (".onnx", "", "onnx-model"),
        ("x" * 300 + ".onnx", "v", "x" * 80 + "-v"),
    ],
)
def test_no_name_leads_out_of_the_folder(source: str, name: str, title: str) -> None:
    assert export_title(source, name) == title


@pytest.mark.needs_ort
@pytest.mark.needs_openvino
def test_openvinos_files_come_with_the_settings_that_they_were_verified_with(tmp_path: Path) -> None:
    """With them its own API answers as a Session does; without, by the processor."""
    import openvino  # type: ignore[import-untyped,unused-ignore]

    bundle = edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["openvino"])
    written = export_variant(bundle, "openvino-fp32", tmp_path / "raw")
    names = [f"model-openvino-fp32{suffix}" for suffix in (".xml", ".bin", ".README.txt")]
    assert sorted(path.name for path in written) == sorted(names)
    text = (tmp_path / "raw" / names[2]).read_text("utf-8")
    settings = "INFERENCE_PRECISION_HINT=f32, DYNAMIC_QUANTIZATION_GROUP_SIZE=0"
    assert text.startswith(f"These files were verified with the settings\n    {settings}\n")
    line = next(line for line in text.splitlines() if "compile_model(" in line)
    assert line == (
        '    compiled = openvino.Core().compile_model("model-openvino-fp32.xml", "CPU", '
        '{"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"})'
    )
    compiled = openvino.Core().compile_model(
        str(tmp_path / "raw" / names[0]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    feeds, _ = bundle.golden[0]
    with Session(bundle, engine="openvino", strict=True) as session:
        expected = session.run(feeds)
    for port, array in compiled(dict(feeds)).items():
        np.testing.assert_array_equal(array, expected[port.get_any_name()])


def test_a_target_that_is_not_installed_has_nothing_to_say(tmp_path: Path) -> None:
    (path,) = export_variant(small_bundle([variant("v", "another")]), "v", tmp_path)
    assert path.name == "m-v.bin"


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

    monkeypatch.setattr("edgekit.release.export.export.write_atomically", full_disk)
    files = {"a.bin": "variants/v/a", "b.bin": "variants/v/b"}
    entries = {"variants/v/a": b"a", "variants/v/b": b"b"}
    bundle = small_bundle([Variant("v", "ort", "ort", "fp32", files)], entries)
    with pytest.raises(UsageError, match="No space left on device"):
        export_variant(bundle, "v", tmp_path)
    assert written == [tmp_path / "m-v.a.bin"]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="No space left on device"):
        export_variant(bundle, "v", tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


def test_a_target_without_an_app_export(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        export_variant(small_bundle(), "ort-fp32", tmp_path / "raw", metadata=True)
    assert str(error.value) == "ort embeds no metadata; export ort-fp32 without --metadata"
    assert not (tmp_path / "raw").exists()
