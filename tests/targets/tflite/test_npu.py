"""Files for the NPUs of phones: compiled by LiteRT's plug-in with Qualcomm's libraries, never run.

The compilation needs Qualcomm's libraries, which onnxruntime-qnn brings, all but one that is not called
(libQnnLpai.so); the tests of refusals need none.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from edgekit_tflite.npu import SDKS, npu_files

import edgekit
from edgekit.cli import main
from edgekit.errors import EngineError, MissingDependency, UsageError
from tests.fixtures import models
from tests.targets.tflite.running import compiled, files_of, model_of

pytestmark = [
    pytest.mark.needs_tflite,
    pytest.mark.skipif(
        sys.platform != "linux" or find_spec("ai_edge_litert") is None, reason="LiteRT compiles on Linux"
    ),
]
SDK = 'from pathlib import Path\n\n\ndef path_to_sdk_libs():\n    return Path(__file__).parent / "libs"\n'


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of libraries of Qualcomm's package, without a library."""
    libraries = tmp_path / "packages" / "ai_edge_litert_sdk_qualcomm" / "libs"
    libraries.mkdir(parents=True)
    (libraries.parent / "__init__.py").write_text(SDK, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"), prepend=":")
    return libraries


@pytest.fixture
def qualcomm(sdk: Path) -> Path:
    """The same with Qualcomm's libraries."""
    package = find_spec("onnxruntime_qnn")
    if package is None or package.origin is None or shutil.which("cc") is None:
        pytest.skip("onnxruntime-qnn, whose libraries compile for Qualcomm's NPUs, is not installed, or cc")
    folder = Path(package.origin).parent
    for library in [*folder.glob("*.so"), *(folder.parent / "onnxruntime_qnn.libs").glob("*")]:
        (sdk / library.name).symlink_to(library)
    missing = ["cc", "-shared", "-x", "c", "/dev/null", "-o", str(sdk / "libQnnLpai.so")]
    subprocess.run(missing, check=True, timeout=60)
    return sdk


def files() -> dict[str, bytes]:
    network = "c = Conv <pads = [1, 1, 1, 1]> (x, w)\n g = GlobalAveragePool(c)\n y = Flatten(g)"
    return files_of(compiled(model_of("float[1, 3, 4, 6] x", network, "float[5, 3, 3, 3] w")))


def test_without_the_vendors_sdk_it_is_named() -> None:
    for vendor, sdk in SDKS.items():
        with pytest.raises(
            MissingDependency, match=f"^{sdk.package} is not installed, and compiling for the "
        ):
            npu_files({}, f"{vendor} chip")


@pytest.mark.parametrize("chip", ["Apple M1", "Qualcomm", ""])
def test_a_chip_of_no_vendor_is_refused(chip: str) -> None:
    with pytest.raises(UsageError, match=r"give VENDOR CHIP.*vendors: Google, MediaTek, Qualcomm, Samsung$"):
        npu_files({}, chip)


def test_an_unknown_chip_is_refused_with_those_that_are_known(sdk: Path) -> None:
    with pytest.raises(UsageError, match=r"^--npu Qualcomm SM1: LiteRT compiles for .*SM8650, SM8750"):
        npu_files(files(), "Qualcomm SM1")


def test_the_reason_of_litert_is_told(sdk: Path) -> None:
    with pytest.raises(
        EngineError, match=r"compiler for Qualcomm SM8650 failed: Could not load shared .*Qnn"
    ):
        npu_files(files(), "Qualcomm SM8650")


def test_an_export_that_fails_writes_nothing(sdk: Path, tmp_path: Path) -> None:
    bundle, folder = tmp_path / "m.edgekit", tmp_path / "raw"
    edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["tflite"]).save(bundle)
    for wrong in (["--npu", "Qualcomm SM8650"], ["--npu", "Apple M1"]):
        result = CliRunner().invoke(main, ["export", str(bundle), "tflite-fp32", "-o", str(folder), *wrong])
        assert (result.exit_code > 0, folder.exists()) == (True, False)


def test_the_npu_takes_the_network(qualcomm: Path, tmp_path: Path) -> None:
    """Its file has the ends of the verified one, and one operator: the vendor's program."""
    from ai_edge_litert.interpreter import Interpreter

    model = files()
    made = npu_files(model, "Qualcomm SM8650")
    assert sorted(made) == ["Qualcomm_SM8650.tflite", "Qualcomm_SM8650.txt"]
    text = made["Qualcomm_SM8650.txt"].decode()
    assert "operators are compiled for the NPU of Qualcomm SM8650, in 1 part.\nNot run: " in text
    done, _, of = text.partition(" of ")
    assert done == of.split()[0]  # all of them
    ends = []
    for content in (model["model.tflite"], made["Qualcomm_SM8650.tflite"]):
        interpreter = Interpreter(model_content=content)
        (signature,) = interpreter.get_signature_list().items()
        shapes = [
            [(list(entry["shape"]), entry["dtype"]) for entry in entries]
            for entries in (interpreter.get_input_details(), interpreter.get_output_details())
        ]
        ends.append((signature, shapes))
    assert ends[0] == ends[1]
    assert b"DISPATCH_OP" in made["Qualcomm_SM8650.tflite"]
