"""What a file is, without loading it."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest

from edgekit.compiler.importers import file_kinds, keras, pytorch, scikit_learn, ultralytics
from edgekit.compiler.importers.file_kinds import file_kind
from tests.fixtures.framework_files import (
    TENSORS,
    archive,
    exported_program,
    keras_archive,
    opcodes,
    torch_pickle,
    torchscript,
    trap,
)

YOLO = ("ultralytics.nn.tasks", "DetectionModel")
ESTIMATOR = b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x1csklearn.linear_model._logistic\x94."
IMPORTERS = {"keras": keras, "pytorch": pytorch, "scikit-learn": scikit_learn, "ultralytics": ultralytics}


def made(folder: Path, name: str) -> Path:
    path = folder / name
    match name:
        case "program.pt2":
            return exported_program(path)
        case "script.pt":
            return torchscript(path)
        case "state.pth":
            return torch_pickle(path, *TENSORS)
        case "module.pt":
            return torch_pickle(path, *TENSORS, ("torch.nn.modules.linear", "Linear"))
        case "old.pth":
            path.write_bytes(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + opcodes(*TENSORS))
        case "yolo.pt":
            return torch_pickle(path, *TENSORS, YOLO)
        case "model.keras":
            return keras_archive(path)
        case "estimator.pkl":
            path.write_bytes(opcodes(("sklearn.linear_model._base", "LinearRegression")))
        case "estimator4.bin":
            path.write_bytes(ESTIMATOR.replace(b"\x1c", bytes([30]), 1))
        case "compressed.joblib":
            path.write_bytes(b"\x78\x9c" + bytes(20))
        case "protocol0.pkl":
            path.write_bytes(pickle.dumps({"a": 1}, protocol=0))
    return path


@pytest.mark.parametrize(
    ("name", "kind", "whose"),
    [
        ("program.pt2", "pt2", "pytorch"),
        ("script.pt", "torchscript", "pytorch"),
        ("state.pth", "torch pickle", "pytorch"),
        ("old.pth", "torch pickle", "pytorch"),
        ("module.pt", "torch pickle", "pytorch"),
        ("yolo.pt", "torch pickle", "ultralytics"),
        ("model.keras", "keras", "keras"),
        ("estimator.pkl", "pickle", "scikit-learn"),
        ("estimator4.bin", "pickle", "scikit-learn"),
        ("compressed.joblib", "pickle", "scikit-learn"),
        ("protocol0.pkl", "pickle", "scikit-learn"),
    ],
)
def test_the_content_tells(name: str, kind: str, whose: str, tmp_path: Path) -> None:
    path = made(tmp_path, name)
    head = path.read_bytes()[:4096]
    assert file_kind(head, path).kind == kind
    assert [who for who, module in IMPORTERS.items() if module.recognize(head, path)] == [whose]


@pytest.mark.parametrize(("name", "only"), [("state.pth", True), ("old.pth", True), ("module.pt", False)])
def test_a_state_dict_holds_tensors_only(name: str, only: bool, tmp_path: Path) -> None:
    path = made(tmp_path, name)
    assert file_kind(path.read_bytes()[:16], path).is_tensors_only == only


def test_what_is_of_nobody(tmp_path: Path) -> None:
    plain = archive(tmp_path / "photos.zip", {"a.jpg": b"x"})
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"PK\3\4" + bytes(50))
    for path in (plain, broken, tmp_path / "absent.pkl", tmp_path):
        assert file_kind(b"PK\3\4", path).kind == ""
    text = tmp_path / "x.bin"
    text.write_bytes(b"hello")
    assert file_kind(b"hello", text).kind == ""


def test_looking_runs_no_code(tmp_path: Path) -> None:
    path = trap(tmp_path / "model.pkl", tmp_path / "sprung")
    assert file_kind(path.read_bytes()[:16], path).kind == "pickle"
    assert not (tmp_path / "sprung").exists()


def test_limits_of_what_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = archive(tmp_path / "many.pt", {f"m/{k}": b"" for k in range(4)} | {"m/archive_format": b"pt2"})
    monkeypatch.setattr(file_kinds, "MEMBERS_LIMIT", 4)
    assert file_kind(b"PK\3\4", many).kind == ""
    late = tmp_path / "late.pkl"
    late.write_bytes(opcodes(("numpy", "array"), ("sklearn.base", "X")))
    monkeypatch.setattr(file_kinds, "OPCODES_LIMIT", 2)
    assert file_kind(b"\x80", late).modules == {"numpy"}
    long = tmp_path / "long.pkl"
    long.write_bytes(opcodes(("numpy", "array"), ("sklearn.base", "X")))
    monkeypatch.setattr(file_kinds, "PICKLE_LIMIT_BYTES", 20)
    assert file_kind(b"\x80", long).modules == {"numpy"}


def test_a_bomb_is_read_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_kinds, "PICKLE_LIMIT_BYTES", 1000)
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb/data.pkl", opcodes(*TENSORS) + bytes(50_000_000))
        file.writestr("bomb/version", b"3\n")
    assert file_kind(b"PK\3\4", path).kind == "torch pickle"
