"""What a device lacks, and wheels for it by the pip that is here."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from edgekit.devices.inventory import Inventory, read_inventory
from edgekit.devices.provision import (
    MissingPackages,
    _platforms,
    edgekit_archive,
    missing_packages,
    packages_archive,
)
from edgekit.errors import DeviceError

PI5 = Inventory("aarch64", system="Linux 6.6", libc=("glibc", "2.36"), python=(3, 11, 2))
PI2 = Inventory("armv7l", system="Linux 6.1", libc=("glibc", "2.36"), python=(3, 11, 2))
FOUND = {
    "python": [3, 11, 2], "implementation": "cpython", "bits": 64, "machine": "aarch64", "system": "Linux",
    "release": "6.6", "libc": ["glibc", "2.36"], "free_bytes": 1 << 30, "packages": {"Onnx_Runtime": "1.2"},
    "tools": {},
    "texts": {
        "/proc/cpuinfo": "Features: fp asimd asimddp\nCPU part: 0xd0b\nModel: Raspberry Pi 5\n",
        "/proc/meminfo": "MemTotal:  8245024 kB\n",
    },
}  # fmt: skip


def test_an_inventory_is_read() -> None:
    found = read_inventory(FOUND, "pi@board")
    assert (found.machine, found.cpu, found.isa) == ("aarch64", "Raspberry Pi 5 0xd0b", ("asimd", "asimddp"))
    assert (found.memory_mb, found.free_mb, found.packages) == (8051, 1024, {"onnx-runtime": "1.2"})


def test_a_32_bit_python_on_a_64_bit_kernel_is_32_bit() -> None:
    assert read_inventory({**FOUND, "bits": 32}, "pi@board").machine == "armv7l"


def test_another_python_is_told() -> None:
    with pytest.raises(DeviceError, match="pi@board: its Python is pypy; the engines need CPython"):
        read_inventory({**FOUND, "implementation": "pypy"}, "pi@board")


def names(found: MissingPackages) -> list[str]:
    return sorted(text.split(">")[0].split("<")[0] for text in found.missing)


def test_requirements_are_those_of_the_device() -> None:
    """Markers are read for its processor and Python, not for this machine's."""
    assert names(missing_packages(["tflite"], PI5)) == ["ai-edge-litert", "numpy"]
    assert names(missing_packages(["tflite"], PI2)) == ["numpy", "numpy", "tflite-runtime"]
    assert names(missing_packages(["ort"], PI5)) == ["numpy", "onnxruntime"]


def test_what_is_there_is_not_brought() -> None:
    there = Inventory(
        "aarch64", system="Linux 6.6", python=(3, 11, 2), packages={"numpy": "1.26.4", "onnxruntime": "1.19"}
    )
    found = missing_packages(["ort"], there)
    assert names(found) == ["onnxruntime"]  # it is too old
    assert found.present == {"numpy": "1.26.4"}


def test_what_has_no_wheels_is_told() -> None:
    found = missing_packages(["tensorrt", "elsewhere"], PI5)
    assert found.without["tensorrt"] == "it comes with NVIDIA's JetPack"
    assert "unknown target 'elsewhere'" in found.without["elsewhere"]


def test_platforms_go_down_from_its_libc() -> None:
    assert _platforms(PI5)[:2] == ["manylinux_2_36_aarch64", "manylinux_2_35_aarch64"]
    assert _platforms(PI5)[-3:] == ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64"]
    alpine = Inventory("aarch64", system="Linux 6.6", libc=("", ""), python=(3, 12, 1))
    assert _platforms(alpine) == ["musllinux_1_2_aarch64", "musllinux_1_1_aarch64"]


def wheel(folder: Path, tag: str, content: str) -> None:
    """A wheel of the package ``board_engine``, by PEP 427."""
    about = "board_engine-1.5.dist-info"
    with zipfile.ZipFile(folder / f"board_engine-1.5-{tag}.whl", "w") as file:
        file.writestr("board_engine/__init__.py", content)
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: board-engine\nVersion: 1.5\n")
        file.writestr(
            f"{about}/WHEEL", f"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: false\nTag: {tag}\n"
        )
        file.writestr(f"{about}/RECORD", "")


@pytest.fixture
def no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds packages in a folder alone."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, value in (
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(folder)),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)
    return folder


def test_pip_takes_the_wheel_of_the_device(no_index: Path) -> None:
    for tag in ("cp311-cp311-manylinux_2_28_aarch64", "cp311-cp311-manylinux_2_28_x86_64"):
        wheel(no_index, tag, f"TAG = {tag!r}\n")
    archive = packages_archive(MissingPackages(("board-engine>=1",), {}, {}), PI5, "pi@board")
    assert archive is not None
    assert archive.holds == ("board-engine 1.5",)
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as packed:
        module = packed.extractfile("board_engine/__init__.py")
        assert module is not None
        assert b"aarch64" in module.read()
    for path in no_index.iterdir():
        path.unlink()
    assert (
        packages_archive(MissingPackages(("board-engine>=1",), {}, {}), PI5, "pi@board") == archive
    )  # it was kept


def test_a_device_without_wheels_is_told(no_index: Path) -> None:
    wheel(no_index, "cp311-cp311-manylinux_2_39_aarch64", "")  # for a newer libc
    with pytest.raises(DeviceError) as caught:
        packages_archive(MissingPackages(("board-engine>=1",), {}, {}), PI5, "pi@board")
    assert str(caught.value).startswith(
        "pi@board lacks board-engine>=1, and pip has no wheels for its CPython 3.11.2 on aarch64, glibc 2.36:"
        "\n  ERROR: No matching distribution found for board-engine>=1"
    )


def test_edgekit_is_packed_without_other_targets() -> None:
    archive = edgekit_archive(["tflite"])
    assert archive == edgekit_archive(["tflite"])  # the same bytes: a device keeps what it has
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as packed:
        there = packed.getnames()
        points = packed.extractfile(next(name for name in there if name.endswith("entry_points.txt")))
        assert points is not None
        assert points.read() == b"[edgekit.runners]\ntflite = edgekit_tflite.run\n"
    assert {name.split("/")[0].split("-")[0] for name in there} == {
        "edgekit",
        "edgekit_tflite",
        "edgekit_sdk",
    }
    assert not [name for name in there if name.startswith("/") or ".." in name]
