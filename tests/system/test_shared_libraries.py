"""Libraries that are cut short are refused before they are loaded; whole ones never are."""

from __future__ import annotations

import os
import shutil
import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import edgekit
from edgekit.system.shared_libraries import ENDINGS, HEADER_BYTES, least_size
from tests.fixtures.child_processes import run_python
from tests.fixtures.models import SMALL_CNN, write

SCRIPT = """
import sys, numpy as np
from edgekit.runtime import Session
with Session(sys.argv[1], engine=sys.argv[2], threads=1) as session:
    session.run({"image": np.zeros((1, 3, 16, 16), np.float32)})
    print(session.active.variant)
    print(session.fallbacks[0].reason)
"""


def libraries() -> list[Path]:
    """Every shared library of this environment."""
    return [
        path
        for folder in {Path(edgekit.__file__).parent, *map(Path, sys.path)}
        if folder.name == "site-packages"
        for path in folder.rglob("*")
        if (path.name.endswith((*ENDINGS, ".exe")) or ".so." in path.name) and path.is_file()
    ]


def test_a_whole_library_is_as_long_as_its_header_says() -> None:
    found = libraries()
    assert len(found) > 50
    for path in found:
        with path.open("rb") as file:
            least = least_size(file.read(HEADER_BYTES))
        assert 0 < least <= path.stat().st_size, path


def test_any_cut_of_an_elf_file_is_found() -> None:
    spec = find_spec("numpy")
    assert spec is not None
    assert spec.origin is not None
    whole = next(path for path in Path(spec.origin).parent.rglob("*.so")).read_bytes()
    if whole[:4] != b"\x7fELF":
        pytest.skip("this system's libraries are not ELF files")
    least = least_size(whole[:HEADER_BYTES])
    for size in [0, 1, 3, 4, 40, 63, 64, 500, 4095, 4096, 5000, least // 2, least - 1]:
        assert least_size(whole[: min(size, HEADER_BYTES)]) > size


def test_other_formats() -> None:
    pe = bytearray(600)
    pe[:2], pe[60:64] = b"MZ", struct.pack("<I", 128)
    pe[128:132], pe[134:136], pe[148:150] = b"PE\0\0", struct.pack("<H", 2), struct.pack("<H", 240)
    pe[408:416] = struct.pack("<2I", 512, 1024)
    assert least_size(bytes(pe)) == 1536
    segment = struct.pack("<2I16s4Q4I", 0x19, 72, b"__LINKEDIT", 0, 0, 4096, 900, 0, 0, 0, 0)
    mach_o = b"\xcf\xfa\xed\xfe" + struct.pack("<7I", 0, 0, 6, 1, len(segment), 0, 0) + segment
    assert least_size(mach_o) == 4996
    assert least_size(b"INPUT ( libm.so.6 )") == 0  # a linker script


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cut")
    built = edgekit.build(write(folder, SMALL_CNN), targets=["ort", "openvino", "tflite"])
    return built.save(folder / "small.edgekit")


def with_a_cut_library(package: str, library: str, home: Path) -> Path:
    """A package of links to the installed one, but with the first tenth of one library."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    (cut,) = root.glob(library)
    for path in root.rglob("*"):
        place = home / package / path.relative_to(root)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if path == cut:
            with path.open("rb") as file:
                place.write_bytes(file.read(path.stat().st_size // 10))
        elif path.suffix == ".py":
            shutil.copyfile(path, place)  # a link would be followed to the whole package
        else:
            place.symlink_to(path)
    return home / package / cut.relative_to(root)


@pytest.mark.needs_ort
@pytest.mark.needs_openvino
@pytest.mark.needs_tflite
@pytest.mark.skipif(sys.platform != "linux", reason="the names of the libraries are those of Linux")
@pytest.mark.parametrize(
    ("engine", "package", "library"),
    [
        ("ort", "onnxruntime", "capi/onnxruntime_pybind11_state.*.so"),
        ("openvino", "openvino", "libs/libopenvino_intel_cpu_plugin.so"),
        ("openvino", "openvino", "libs/libopenvino_ir_frontend.so.*"),
        ("tflite", "ai_edge_litert", "libpywrap_litert_common.so"),
    ],
)
def test_a_session_falls_back_to_another_engine(
    bundle: Path, tmp_path: Path, engine: str, package: str, library: str
) -> None:
    cut = with_a_cut_library(package, library, tmp_path)
    done = run_python(
        SCRIPT, bundle, engine, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    )
    assert done.returncode == 0, done.stderr
    active, reason = done.stdout.splitlines()
    assert not active.startswith(engine)
    size = cut.stat().st_size
    assert reason.startswith(f"{cut} is cut short: it has {size} bytes, and its header says at least ")
    assert reason.endswith(f"; install {package.replace('_', '-')} again with pip's --force-reinstall")
