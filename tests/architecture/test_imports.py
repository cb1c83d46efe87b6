"""The rules of the tree, kept: who may import whom, how long a file may be, what it may be called."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = (
    # Modules directly in ``edgekit``.
    "_version",
    "errors",
    "diagnostics",
    "tensor_spec",
    # Device side: standard library and numpy only, at run time.
    "system",
    "signing",
    "target",
    "processing",
    "bundle",
    "runtime.clopper_pearson",
    "runtime.device_builds",
    "runtime.gallery",
    "runtime.generated_text",
    "runtime.http_connection",
    "runtime.local_timings",
    "runtime.session_card",
    "runtime.session_state",
    "runtime.background",
    "runtime.fallback",
    "runtime.outbox",
    "runtime.deadline",
    "runtime.predictor",
    "runtime.cascade",
    "runtime.loading",
    "runtime.metrics",
    "runtime.caching",
    "runtime.chain",
    "runtime.generate",
    "runtime.remote",
    "runtime.streaming",
    "runtime.ab_testing",
    "runtime.latency",
    "runtime.scheduling",
    "runtime.session",
    "runtime.store",
    "runtime",
    "release.updates",
    # Host side.
    "compiler.toolchains",
    "compiler.model",
    "compiler.importers",
    "compiler.passes",
    "compiler.card_inference",
    "compiler.lowering",
    "compiler.evaluate",
    "compiler.quantize",
    "compiler.compress",
    "compiler.build",
    "compiler.sandbox",
    "compiler.explain",
    "compiler.bench",
    "release.provenance",
    "release.export",
    "release.fleet",
    "devices",
    "report",
    "serve",
    "batch",
    "cli",
)
"""From the ground up: a file imports its own floor and those below it."""
DEVICE = FLOORS[: FLOORS.index("compiler.toolchains")]
BELOW_ALL = ("compiler", "release")
"""Folders of floors: their ``__init__`` holds a docstring and nothing else."""
HOST_OF_TASK = {"metric": "compiler.evaluate", "recognize": "compiler.card_inference"}
"""First word of a file in a task's folder -> the floor of this part of the task, which no device loads."""
PACKAGES_OF = {
    "onnx_runtime.py": {"onnxruntime"},  # the only import of it, for targets and host alike
    "drawing.py": {"PIL"},  # host only
    "toml_files.py": {
        "tomli",
        "tomllib",
    },  # host only: a bundle carries profiles as JSON
    "mqtt.py": {"paho"},  # an extra
    "tokenizer.py": {"tokenizers"},  # an extra
    "guidance.py": {"llguidance"},  # an extra
    "template_sandbox.py": {"jinja2"},  # an extra
    "signing_keys.py": {"cryptography"},  # an extra
    "tuf_metadata.py": {"tuf"},  # an extra, as the next three
    "repository.py": {"tuf"},
    "delta.py": {"zstandard"},
    "repository_keys.py": {"cryptography", "securesystemslib"},
}
"""Files of the device side that import one more package."""
ON_DEVICE = ("run.py", "decoder.py")
"""Files of a target that are its device side; the second one runs language models."""
BESIDE_RUN = ("device", "interpreter")
"""Folders of a target that are its device side too: ``run.py`` may import them, and they ``run.py``."""
VENDOR = {
    "edgekit_coreml": {"coremltools"},
    "edgekit_openvino": {"openvino"},
    "edgekit_rknn": {"rknnlite"},
    "edgekit_qnn": {"onnxruntime_qnn"},
    "edgekit_tensorrt": {"tensorrt"},
    "edgekit_tflite": {"ai_edge_litert", "tflite_runtime"},
    "edgekit_tflm": {"tflite_micro"},
}
NAMELESS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "handler"}
LINE_LIMIT = 400


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """``edgekit.system.cpu`` of ``edgekit/system/cpu.py``; a folder's of its ``__init__.py``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(module: str) -> str:
    """``system`` of ``edgekit.system.cpu``, ``compiler.model`` of ``edgekit.compiler.model.reference``."""
    parts = module.split(".")[1:]
    if parts[:2] == ["processing", "tasks"] and (host := HOST_OF_TASK.get(parts[-1].partition("_")[0])):
        return host
    return ".".join(parts[: 2 if parts[:1] in (["compiler"], ["release"], ["runtime"]) else 1])


def height(module: str) -> float:
    if module == "edgekit":
        return len(FLOORS) - 1.5  # below the command line
    return -1 if floor(module) in BELOW_ALL else FLOORS.index(floor(module))


CORE = {module_of(path): path for path in sorted((ROOT / "edgekit").rglob("*.py"))}
TARGETS = sorted(path for path in (ROOT / "targets").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SOURCES = sorted([*CORE.values(), *TARGETS, *TESTS, *(ROOT / "samples").rglob("*.py")])
DEVICE_FILES = [
    *(path for module, path in CORE.items() if floor(module) in DEVICE),
    *(path for path in TARGETS if path.name in ON_DEVICE or path.parent.name in BESIDE_RUN),
]


def imports(path: Path, *, for_types: bool = False, inside_functions: bool = True) -> Iterator[str]:
    """Modules and names that a file imports.

    Args:
        path: The file.
        for_types: Also what stands under ``if TYPE_CHECKING``.
        inside_functions: Also what is imported when a function is called.
    """
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not for_types:
            waiting += node.orelse
        elif inside_functions or not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


def core_imports(path: Path) -> set[str]:
    """Modules of the core that a file imports in any way, itself left out."""
    found = set()
    for name in imports(path, for_types=True):
        module = name if name in CORE else name.rpartition(".")[0]
        if module in CORE:
            found.add(module)
    return found - {module_of(path)}


def test_every_file_is_on_a_floor() -> None:
    assert {floor(module) for module in CORE if module != "edgekit"} == {*FLOORS, *BELOW_ALL}


@pytest.mark.parametrize("path", CORE.values(), ids=name_of)
def test_no_import_goes_up(path: Path) -> None:
    """``edgekit/__init__`` offers the public names, loaded lazily; only the command line imports them."""
    own = height(module_of(path))
    assert [m for m in core_imports(path) if height(m) > own] == []


def test_no_imports_go_in_a_circle() -> None:
    """Not for types either: files that need each other's types are one file, or lack a third."""
    graph = {module: core_imports(path) for module, path in CORE.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


@pytest.mark.parametrize("path", DEVICE_FILES, ids=name_of)
def test_device_side_imports_numpy_and_one_engine(path: Path) -> None:
    owner = path.relative_to(ROOT).parts[1]
    allowed = {"numpy", "edgekit", *VENDOR.get(owner, set())} | set(sys.stdlib_module_names)
    foreign = {name for name in imports(path) if name.split(".")[0] not in allowed}
    foreign = {name for name in foreign if name.split(".")[0] not in PACKAGES_OF.get(path.name, set())}
    own = tuple(f"{owner}.{name}" for name in ("run", "decoder", *BESIDE_RUN))
    assert not {name for name in foreign if not name.startswith(own)}


@pytest.mark.parametrize("path", DEVICE_FILES, ids=name_of)
def test_importing_the_device_side_imports_no_host_side(path: Path) -> None:
    """A function that only the host calls may import the host side when it is called."""
    ours = {name for name in imports(path, inside_functions=False) if name.startswith("edgekit.")}
    assert not {name for name in ours if floor(name) not in DEVICE}


@pytest.mark.parametrize("path", CORE.values(), ids=name_of)
def test_edgekit_imports_no_target(path: Path) -> None:
    assert not [name for name in imports(path) if name.startswith("edgekit_")]


@pytest.mark.parametrize("path", TARGETS, ids=name_of)
def test_targets_do_not_import_each_other(path: Path) -> None:
    own = path.relative_to(ROOT / "targets").parts[0]
    assert not [n for n in imports(path) if n.startswith("edgekit_") and n.split(".")[0] != own]


@pytest.mark.parametrize("path", [p for p in TARGETS if p.name in ON_DEVICE], ids=name_of)
def test_runners_do_not_import_their_compile_side(path: Path) -> None:
    own = [name for name in imports(path) if name.startswith(path.parent.name)]
    beside = tuple(f"{path.parent.name}.{each}" for each in ("run", *BESIDE_RUN))
    assert not [name for name in own if not name.startswith(beside)]


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_no_test_module_is_imported(path: Path) -> None:
    """What several test modules need has a file of its own."""
    assert not [name for name in imports(path) if ".test_" in name and name.startswith("tests.")]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_is_short_and_has_a_name(path: Path) -> None:
    assert path.stem not in NAMELESS
    assert len(path.read_text("utf-8").splitlines()) <= LINE_LIMIT


def test_importing_the_runtime_loads_no_host_side() -> None:
    script = "import sys, edgekit.runtime; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"edgekit", "numpy"} <= loaded
    host = {"onnx", "onnx_ir", "onnxscript", "onnxruntime", "openvino", "ai_edge_litert", "click"}
    assert not loaded & host


@pytest.mark.parametrize(
    "module",
    [
        "cli.doctor",
        "compiler.bench.bench",
        "compiler.evaluate.run_bundle",
        "compiler.evaluate.verify_bundle",
        "compiler.explain.explain",
        "release.export.export",
    ],
)
def test_the_verbs_of_a_device_load_no_package_of_the_host(module: str) -> None:
    """A device has numpy, click and one engine; what needs more is imported where it is used."""
    script = f"import sys, edgekit.{module}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    host = {
        "onnx",
        "onnx_ir",
        "onnxscript",
        "onnxruntime",
        "openvino",
        "ai_edge_litert",
        "PIL",
        "flatbuffers",
    }
    assert not set(done.stdout.split()) & host
