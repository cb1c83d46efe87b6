"""The rules of the tree, kept: who may import whom, how long a file may be, what it may be called."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DEVICE = (
    "edgekit/_version.py",
    "edgekit/bundle.py",
    "edgekit/card.py",
    "edgekit/durable.py",
    "edgekit/errors.py",
    "edgekit/json_checks.py",
    "edgekit/manifest.py",
    "edgekit/measured.py",
    "edgekit/npy.py",
    "edgekit/onnx_runtime.py",
    "edgekit/plain_file.py",
    "edgekit/precisions.py",
    "edgekit/ownership.py",
    "edgekit/profile.py",
    "edgekit/records.py",
    "edgekit/report.py",
    "edgekit/strict_json.py",
    "edgekit/strict_table.py",
    "edgekit/target.py",
    "edgekit/runtime",
)
"""What a device imports: standard library and numpy only, at run time."""
BESIDE_RUN = ("device", "interpreter")
"""Folders of a target that are its device side too: ``run.py`` may import them, and they ``run.py``."""
VENDOR = {
    "edgekit_coreml": {"coremltools"},
    "onnx_runtime.py": {"onnxruntime"},  # for every target and the host; see tests/test_telemetry.py
    "edgekit_openvino": {"openvino"},
    "edgekit_tensorrt": {"tensorrt"},
    "edgekit_tflite": {"ai_edge_litert", "tflite_runtime"},
}
NAMELESS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "handler"}
LINE_LIMIT = 400
SOURCES = sorted(
    path
    for folder in ("edgekit", "targets", "tests", "samples")
    for path in (ROOT / folder).rglob("*.py")
    if "generated" not in path.parts
)


def _imports(path: Path, *, at_import: bool = False) -> Iterator[str]:
    """Names that a file imports at run time, or only those that importing it imports.

    What stands under ``if TYPE_CHECKING`` is for type checkers and is left out.
    """
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += node.orelse
        elif not (at_import and isinstance(node, ast.FunctionDef)):
            waiting += ast.iter_child_nodes(node)


def _device_files() -> list[Path]:
    files = []
    for name in DEVICE:
        path = ROOT / name
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    targets = ROOT / "targets"
    beside = [path for folder in BESIDE_RUN for path in targets.glob(f"*/{folder}/*.py")]
    return files + sorted([*targets.glob("*/run.py"), *beside])


@pytest.mark.parametrize("path", _device_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_device_side_imports_numpy_and_one_engine(path: Path) -> None:
    owner = path.relative_to(ROOT).parts[1]
    allowed = {"numpy", "edgekit", *VENDOR.get(owner, set())} | set(sys.stdlib_module_names)
    if path.name == "profile.py":
        allowed |= {
            "tomli",
            "tomllib",
        }  # host: CPython 3.10 has no tomllib; a bundle carries its profiles as JSON
    if path.name == "mqtt.py":
        allowed.add("paho")  # an extra
    foreign = {name for name in _imports(path) if name.split(".")[0] not in allowed}
    own = tuple(f"{owner}.{name}" for name in ("run", *BESIDE_RUN))
    assert not {name for name in foreign if not name.startswith(own)}


@pytest.mark.parametrize("path", _device_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_importing_the_device_side_imports_no_host_side(path: Path) -> None:
    """A function that only the host calls may import the host side when it is called."""
    device = {Path(name).stem for name in DEVICE}
    ours = [name.split(".") for name in _imports(path, at_import=True) if name.startswith("edgekit.")]
    assert not [".".join(name) for name in ours if name[1] not in device]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "edgekit").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_edgekit_imports_no_target(path: Path) -> None:
    assert not [name for name in _imports(path) if name.startswith("edgekit_")]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "targets").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_targets_do_not_import_each_other(path: Path) -> None:
    own = path.relative_to(ROOT / "targets").parts[0]
    assert not [n for n in _imports(path) if n.startswith("edgekit_") and n.split(".")[0] != own]


@pytest.mark.parametrize("path", sorted((ROOT / "targets").glob("*/run.py")), ids=lambda p: p.parent.name)
def test_runners_do_not_import_their_compile_side(path: Path) -> None:
    own = [name for name in _imports(path) if name.startswith(path.parent.name)]
    beside = tuple(f"{path.parent.name}.{folder}" for folder in BESIDE_RUN)
    assert not [name for name in own if not name.startswith(beside)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_is_short_and_has_a_name(path: Path) -> None:
    assert path.stem not in NAMELESS
    assert len(path.read_text("utf-8").splitlines()) <= LINE_LIMIT


def test_importing_the_runtime_loads_no_host_side() -> None:
    script = "import sys, edgekit.runtime; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"edgekit", "numpy"} <= loaded
    assert not loaded & {
        "onnx",
        "onnx_ir",
        "onnxscript",
        "onnxruntime",
        "openvino",
        "ai_edge_litert",
        "click",
    }
