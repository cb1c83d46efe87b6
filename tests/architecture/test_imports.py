"""The rules of the tree, kept: who may import whom, how long a function may be, what a file may be called."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
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
    "runtime",
    "release.updates",
    # Host side.
    "compiler.toolchains",
    "compiler.model",
    "compiler.hub",
    "compiler.importers",
    "compiler.passes",
    "compiler.card_inference",
    "compiler.lowering",
    "compiler.evaluate",
    "compiler.quantize",
    "compiler.compress",
    "compiler.pipeline",
    "compiler.sandbox",
    "compiler.accuracy",
    "compiler.explain",
    "compiler.bench",
    "tasks",  # of these, a device loads all files but those of HOST_OF_TASK
    "generate",  # of these, a device loads all files but those of its folder ``host``
    "release.provenance",
    "release.export",
    "release.fleet",
    "devices",
    "report",
    "serve",
    "batch",
    "native",
    "web",
    "cli",
    "__main__",
)
"""From the ground up: a file imports its own floor and those below it."""
DEVICE = FLOORS[: FLOORS.index("compiler.toolchains")]
BELOW_ALL = ("compiler", "release")
"""Folders of floors: their ``__init__`` holds a docstring and nothing else."""
HOST_OF_TASK = ("accuracy", "metric", "recognize")
"""First words of the files in a task's folder that no device loads."""
HOST_OF_GENERATE = "edgekit.generate.host"
PACKAGES_OF = {
    "onnx_runtime.py": {"onnxruntime"},  # the only import of it, for targets and host alike
    "drawing.py": {"PIL"},  # for people: where images are read, drawn or shown
    "picture_files.py": {"PIL", "simplejpeg"},
    "live_line.py": {"IPython"},  # in a notebook
    "strict_tables.py": {
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
    "delta.py": {"zstandard", "onnx"},  # a publisher compares by tensor, if onnx is installed
    "repository_keys.py": {"cryptography", "securesystemslib"},
}
"""Files of the device side that import one more package."""
ON_DEVICE = ("run.py", "decoder.py", "accelerators.py")
"""Files of a target that are its device side; the second one runs language models."""
BESIDE_RUN = ("device", "interpreter", "kept_blob")
"""Folders of a target that are its device side too: ``run.py`` may import them, and they ``run.py``."""
VENDOR = {
    "edgekit_coreai": {"coreai"},
    "edgekit_coreml": {"coremltools"},
    "edgekit_ncnn": {"ncnn"},
    "edgekit_openvino": {"openvino"},
    "edgekit_rknn": {"rknnlite"},
    "edgekit_qnn": {"onnxruntime_qnn"},
    "edgekit_tensorrt": {"tensorrt"},
    "edgekit_tflite": {"ai_edge_litert", "tflite_runtime"},
    "edgekit_tflm": {"tflite_micro"},
}
NAMELESS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "handler"}
FUNCTION_LINES = 75
"""Most lines of a function, its docstring not counted."""
LONG_FUNCTIONS = {
    "edgekit/compiler/model/plugin_functions.py:_efficient_nms",
    "edgekit/generate/device/template_sandbox.py:_environment",
}


def module_of(path: Path) -> str:
    """``edgekit.system.cpu`` of ``edgekit/system/cpu.py``; a folder's of its ``__init__.py``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(module: str) -> str:
    """``system`` of ``edgekit.system.cpu``, ``compiler.model`` of ``edgekit.compiler.model.reference``."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] in (["compiler"], ["release"]) else 1])


def on_device(module: str) -> bool:
    """Whether a device may load the module."""
    if floor(module) == "tasks":
        return module.rpartition(".")[2].partition("_")[0] not in HOST_OF_TASK
    if floor(module) == "generate":
        return not module.startswith(HOST_OF_GENERATE)
    return floor(module) in DEVICE


def height(module: str) -> float:
    if module == "edgekit":
        return FLOORS.index("cli") - 0.5  # below the command line
    return -1 if floor(module) in BELOW_ALL else FLOORS.index(floor(module))


CORE = {module_of(path): path for path in sorted((ROOT / "edgekit").rglob("*.py"))}
TARGETS = sorted(path for path in (ROOT / "targets").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
SOURCES = sorted([*CORE.values(), *TARGETS, *TESTS, *(ROOT / "samples").rglob("*.py")])
DEVICE_FILES = [
    *(path for module, path in CORE.items() if on_device(module)),
    *(path for path in TARGETS if path.name in ON_DEVICE or path.parent.name in BESIDE_RUN),
]


def imports(path: Path, *, for_types: bool = False, inside_functions: bool = True) -> set[str]:
    """Return the modules and names that a file imports.

    Args:
        path: The file.
        for_types: Also what stands under ``if TYPE_CHECKING``.
        inside_functions: Also what is imported when a function is called.
    """
    return {
        name
        for name, in_types, in_function in _imports(path)
        if (for_types or not in_types) and (inside_functions or not in_function)
    }


@cache
def _imports(path: Path) -> frozenset[tuple[str, bool, bool]]:
    """Return each name with whether it is imported for types, and whether inside a function."""
    found = set()
    waiting: list[tuple[ast.AST, bool, bool]] = [(ast.parse(path.read_text("utf-8")), False, False)]
    while waiting:
        node, in_types, in_function = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {(alias.name, in_types, in_function) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(f"{node.module}.{alias.name}", in_types, in_function) for alias in node.names}
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += ((child, True, in_function) for child in node.body)
            waiting += ((child, in_types, in_function) for child in node.orelse)
        elif not isinstance(node, ast.expr):  # no expression holds an import
            inside = in_function or isinstance(node, ast.FunctionDef)
            waiting += ((child, in_types, inside) for child in ast.iter_child_nodes(node))
    return frozenset(found)


def faults_of(paths: Iterable[Path], fault: Callable[[Path], object]) -> dict[str, object]:
    """Return each file's fault, without the files that have none."""
    found = {str(path.relative_to(ROOT)): fault(path) for path in paths}
    return {name: what for name, what in found.items() if what}


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


def test_no_import_goes_up() -> None:
    """``edgekit/__init__`` offers the public names, loaded lazily; only the command line imports them."""

    def going_up(path: Path) -> list[str]:
        own = height(module_of(path))
        return sorted(module for module in core_imports(path) if height(module) > own)

    assert faults_of(CORE.values(), going_up) == {}


def test_no_imports_go_in_a_circle() -> None:
    """Not for types either: files that need each other's types are one file, or lack a third."""
    graph = {module: core_imports(path) for module, path in CORE.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_device_side_imports_numpy_and_one_engine() -> None:
    def foreign(path: Path) -> set[str]:
        owner = path.relative_to(ROOT).parts[1]
        allowed = {"numpy", "edgekit", *VENDOR.get(owner, set()), *PACKAGES_OF.get(path.name, set())}
        allowed |= set(sys.stdlib_module_names)
        own = tuple(f"{owner}.{name}" for name in ("run", "decoder", *BESIDE_RUN))
        return {n for n in imports(path) if n.split(".")[0] not in allowed and not n.startswith(own)}

    assert faults_of(DEVICE_FILES, foreign) == {}


def test_importing_the_device_side_imports_no_host_side() -> None:
    """A function that only the host calls may import the host side when it is called."""

    def of_the_host(path: Path) -> set[str]:
        ours = {name for name in imports(path, inside_functions=False) if name.startswith("edgekit.")}
        return {name for name in ours if not on_device(name if name in CORE else name.rpartition(".")[0])}

    assert faults_of(DEVICE_FILES, of_the_host) == {}


def test_the_device_half_of_generate_imports_no_compiler() -> None:
    """Neither inside a function nor for types: a device may lack these files."""

    def of_the_host(path: Path) -> list[str]:
        return sorted(m for m in core_imports(path) if m.startswith(("edgekit.compiler", HOST_OF_GENERATE)))

    halves = [path for module, path in CORE.items() if module.startswith("edgekit.generate.device")]
    assert halves
    assert faults_of(halves, of_the_host) == {}


def test_edgekit_imports_no_target() -> None:
    assert faults_of(CORE.values(), lambda path: [n for n in imports(path) if n.startswith("edgekit_")]) == {}


def test_targets_do_not_import_each_other() -> None:
    def of_others(path: Path) -> list[str]:
        own = path.relative_to(ROOT / "targets").parts[0]
        return [n for n in imports(path) if n.startswith("edgekit_") and n.split(".")[0] != own]

    assert faults_of(TARGETS, of_others) == {}


def test_runners_do_not_import_their_compile_side() -> None:
    def of_the_compiler(path: Path) -> list[str]:
        own = [name for name in imports(path) if name.startswith(path.parent.name)]
        beside = tuple(f"{path.parent.name}.{each}" for each in ("run", *BESIDE_RUN))
        return [name for name in own if not name.startswith(beside)]

    assert faults_of((path for path in TARGETS if path.name in ON_DEVICE), of_the_compiler) == {}


def test_no_test_module_is_imported() -> None:
    """What several test modules need has a file of its own."""

    def tests_of(path: Path) -> list[str]:
        return [name for name in imports(path) if ".test_" in name and name.startswith("tests.")]

    assert faults_of(TESTS, tests_of) == {}


def test_a_file_has_a_name() -> None:
    assert [str(path) for path in SOURCES if path.stem in NAMELESS] == []


def lengths(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and the number of lines of each function, without its docstring.

    >>> list(lengths(ast.parse("def f(x): return x")))
    [('f', 1)]
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            yield node.name, lines


def test_a_function_is_short() -> None:
    long = {
        f"{path.relative_to(ROOT).as_posix()}:{name}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] in ("edgekit", "targets")
        for name, count in lengths(ast.parse(path.read_text("utf-8")))
        if count > FUNCTION_LINES
    }
    assert long - LONG_FUNCTIONS == set()


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
        "generate.device.bench_text",
        "generate.device.text_session",
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
