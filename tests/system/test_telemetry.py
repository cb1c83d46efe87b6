"""No engine, verb or session asks for a network or leaves something to send, seen below Python.

Each process starts with an empty home and without a variable that would silence an engine (CI is one).
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from edgekit.cli import doctor
from tests.fixtures import native_sockets
from tests.fixtures.models import SMALL_CNN, write
from tests.fixtures.native_sockets import Done, FilterRefused

ROOT = Path(__file__).resolve().parents[2]
ONE_PLACE = "edgekit/system/onnx_runtime.py"
SWITCH = "ORT_DISABLE_TELEMETRY"
STAYS_S = 13.0
"""ONNX Runtime 1.31.1 asks for its first socket 9.0 s after its import."""
MODULES = {
    "ort": "onnxruntime",
    "openvino": "openvino",
    "tflite": "ai_edge_litert",
    "coreml": "coremltools",
    "ncnn": "ncnn",
    "tensorrt": "onnxruntime",  # which stands in for it
}
"""Target -> what has to be installed to build and verify for it here."""
ENGINES = ("ort", "openvino", "tflite", "coreml", "ncnn")
WAYS = (
    "from edgekit_ort.run import engine_version; engine_version()",
    "from edgekit_coreml.interpreter.one_node import onnxruntime as ours; ours()",
    "from edgekit.compiler.model.reference import reference_version; reference_version()",
    "from edgekit.compiler.model.node_evaluation import session_options; session_options(1, True)",
)
"""Ours to ONNX Runtime, of the device and of the host."""
REFUSED_MODEL = """
try:
    onnxruntime.InferenceSession(b"no model")
    raise SystemExit("it was taken")
except Exception:
    pass
"""


def sources() -> list[Path]:
    folders = ("edgekit", "targets", "samples")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Every module that a file names to import it, by a statement or by a call."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__"):
                values = (one.value for one in node.args if isinstance(one, ast.Constant))
                yield from (value for value in values if isinstance(value, str))


def test_one_file_imports_onnx_runtime() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in sources()
        if any(name.split(".")[0] == "onnxruntime" for name in imported(path))
    ]
    assert found == [ONE_PLACE]


def watched(
    home: Path, *command: str, folder: Path = ROOT, switch: str | None = None, until_first: bool = False
) -> Done:
    """Run Python on it, with nothing around it but ``switch``; skipped where nothing can be watched."""
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(home)}
    environment |= {"XDG_CACHE_HOME": str(home / "cache")}
    if switch is not None:
        environment[SWITCH] = switch
    try:
        return native_sockets.run(
            [sys.executable, *command], environment=environment, folder=folder, until_first=until_first
        )
    except FilterRefused as why:
        pytest.skip(f"native sockets can't be watched here: {why}")


def left_behind(home: Path) -> list[str]:
    """Files in the home and the cache; EdgeKit's own are not to be sent and don't count."""
    files = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    return sorted(str(path) for path in files if path.parts[:2] != ("cache", "edgekit"))


@pytest.fixture
def sends() -> None:
    """Skips where the installed ONNX Runtime has no uploader, so that nothing could be seen of it."""
    spec = find_spec("onnxruntime")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        if any(SWITCH.encode() in path.read_bytes() for path in Path(folder, "capi").glob("*.so*")):
            return
    pytest.skip("the installed ONNX Runtime has no uploader")


NATIVE = """
import ctypes, socket, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def ask(*given):
    print(libc.socket(*given), ctypes.get_errno())
socket.socketpair()
thread = threading.Thread(target=ask, args=(socket.AF_INET6, socket.SOCK_DGRAM, 0))
thread.start(); thread.join()
subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL(None).socket(2, 1, 0)"], check=True)
libc.syscall(425, 8, 0)  # io_uring_setup
"""


def test_native_sockets_are_seen_and_refused(tmp_path: Path) -> None:
    """Of a thread, of a child and past the call; a local one is nobody's business."""
    done = watched(tmp_path / "home", "-c", NATIVE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["-1", "13"]
    what = [told.partition(" by ")[0].partition(" of ")[0] for told in done.sockets]
    assert what == ["AF_INET6 SOCK_DGRAM", "AF_INET SOCK_STREAM", "call 425"]


SESSIONS = """
import sys, time
import numpy as np
from edgekit.runtime import Session
bundle, stays_s, *targets = sys.argv[1:]
feeds = {"image": np.ones((1, 3, 16, 16), np.float32)}
sessions = [Session(bundle, engine=name, strict=True, probe=True, warm=True) for name in targets]
until = time.monotonic() + float(stays_s)
while time.monotonic() < until:
    for session in sessions:
        assert session.run(feeds)["scores"].shape == (1, 4)
        assert all(result.answer["scores"].shape == (1, 4) for result in session.stream([feeds] * 2))
    time.sleep(0.2)
print(*(session.active.variant for session in sessions))
"""

STAND_IN = """
import sys
from pathlib import Path
import numpy as np
from edgekit_tensorrt.reference_executor import open_runner
runner = open_runner({"model.onnx": Path(sys.argv[1])}, [], [], {"precision": "fp32"}, 1)
print(runner.run({"image": np.ones((1, 3, 16, 16), np.float32)})["scores"].shape)
"""


def here(*targets: str) -> list[str]:
    """Those whose engine is installed."""
    return [name for name in targets if find_spec(MODULES[name]) is not None]


def cli(home: Path, folder: Path, line: str) -> Done:
    """Run ``edgekit`` in ``folder``; ``ALL`` in the line is every target that can be built here."""
    every = " ".join(f"-t {name}" for name in here(*MODULES))
    script = "from edgekit.cli import main; main(prog_name='edgekit')"
    return watched(home, "-c", script, *line.replace("ALL", every).split(), folder=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, samples and a bundle for every target."""
    folder = tmp_path_factory.mktemp("built")
    write(folder, SMALL_CNN)
    np.save(folder / "x.npy", np.ones((1, 3, 16, 16), np.float32))
    (folder / "samples").mkdir()
    for number in range(4):
        image = np.random.default_rng(number).random((1, 3, 16, 16), np.float32)
        np.savez(folder / "samples" / f"{number}.npz", image=image)
    done = cli(folder / "home", folder, "build model.onnx ALL -o b.edgekit -q")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    "line",
    [
        "targets",
        "doctor",
        "check model.onnx ALL",
        "build model.onnx ALL -o fp32.edgekit -q",
        "build model.onnx ALL -o int8.edgekit --precision int8 --samples samples -q",
        "inspect b.edgekit",
        "verify b.edgekit",
        "explain b.edgekit",
        *(f"run b.edgekit -i image=x.npy --engine {name} --strict" for name in ENGINES),
        *(f"bench b.edgekit --engine {name} --seconds 0.1" for name in ENGINES),
        *(f"export b.edgekit {name}-fp32 -o raw-{name}" for name in MODULES),
    ],
)
def test_a_verb_asks_for_no_socket_and_leaves_nothing(folder: Path, tmp_path: Path, line: str) -> None:
    absent = [name for name in MODULES if name not in here(*MODULES)]
    if any(name in line for name in absent):
        pytest.skip(f"not installed: {', '.join(absent)}")
    done = cli(tmp_path / "home", folder, line)
    assert (done.sockets, left_behind(tmp_path / "home")) == ([], [])
    # 1: on a busy machine int8 may be slower than fp32, and is then rejected.
    assert done.returncode in ((0, 1) if "int8" in line else (0,)), done.stderr


class LongLived(NamedTuple):
    """Processes that wait for what ONNX Runtime sends, both at once."""

    home: Path
    plain: Future[Done]
    sessions: Future[Done]


@pytest.fixture(scope="module")
def long_lived(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongLived]:
    home = tmp_path_factory.mktemp("homes")
    script = f"import onnxruntime, time; time.sleep({STAYS_S})"
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(watched, home / "plain", "-c", script, until_first=True)
        given = (str(folder / "b.edgekit"), str(STAYS_S), *here(*ENGINES))
        sessions = pool.submit(watched, home / "sessions", "-c", SESSIONS, *given)
        yield LongLived(home, plain, sessions)


@pytest.mark.slow
@pytest.mark.needs_ort
@pytest.mark.usefixtures("sends")
def test_onnx_runtime_as_it_is_asks_for_a_socket(long_lived: LongLived) -> None:
    """ONNX Runtime sends without EdgeKit. If this fails, a release has changed, and the other tests prove
    nothing."""
    done = long_lived.plain.result()
    assert done.sockets
    assert left_behind(long_lived.home / "plain")


@pytest.mark.slow
@pytest.mark.needs_ort
def test_sessions_ask_for_no_socket_however_long_they_live(long_lived: LongLived) -> None:
    """One of each engine, in a process that is still there when ONNX Runtime would send."""
    done = long_lived.sessions.result()
    assert (done.sockets, left_behind(long_lived.home / "sessions")) == ([], [])
    assert done.stdout.split() == [f"{name}-fp32" for name in here(*ENGINES)], done.stderr


@pytest.mark.needs_tensorrt
def test_what_stands_in_for_tensorrt_asks_for_no_socket(folder: Path, tmp_path: Path) -> None:
    done = watched(tmp_path / "home", "-c", STAND_IN, str(folder / "model.onnx"))
    assert (done.sockets, left_behind(tmp_path / "home")) == ([], [])
    assert done.stdout == "(1, 4)\n", done.stderr


@pytest.mark.needs_ort
@pytest.mark.usefixtures("sends")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_onnx_runtime_turns_it_off_before_the_import(tmp_path: Path, way: str) -> None:
    """As the vendor's package is, a device id and a queue are in the cache as soon as it is imported."""
    assert watched(tmp_path / "as it is", "-c", "import onnxruntime").returncode == 0
    assert len(left_behind(tmp_path / "as it is")) >= 2
    done = watched(tmp_path / "home", "-c", f"{way}\nimport os; print(os.environ['{SWITCH}'])")
    assert (done.stdout, done.sockets, left_behind(tmp_path / "home")) == ("1\n", [], []), done.stderr


@pytest.mark.needs_ort
@pytest.mark.usefixtures("sends")
@pytest.mark.parametrize("way", WAYS)
def test_later_events_are_off_where_the_app_imported_it_first(tmp_path: Path, way: str) -> None:
    """The uploader is there then; a model that it refuses is an event only where events are on."""
    for name, before, reported in (("as it is", "", True), ("ours", way, False)):
        done = watched(tmp_path / name, "-c", f"import onnxruntime\n{before}\n{REFUSED_MODEL}")
        queued = b"".join(p.read_bytes() for p in (tmp_path / name).rglob("*.db*"))
        assert (done.returncode, b"ProcessInfo" in queued) == (0, True), done.stderr
        assert (b"RuntimeError" in queued) is reported


@pytest.mark.needs_ort
@pytest.mark.usefixtures("sends")
def test_who_asks_for_telemetry_gets_it(tmp_path: Path) -> None:
    """And is told so; nothing is turned off behind his back, nor on behind that of one who turned it off."""
    for value, on in (("0", True), ("off", True), ("1", False), ("True", False), ("", False)):
        home = tmp_path / f"value {value}"
        script = f"{WAYS[0]}\nimport onnxruntime, os; print(os.environ['{SWITCH}'])\n{REFUSED_MODEL}"
        done = watched(home, "-c", script, switch=value)
        assert done.stdout == f"{value or '1'}\n", done.stderr
        queued = b"".join(path.read_bytes() for path in home.rglob("*.db*"))
        assert (bool(left_behind(home)), b"RuntimeError" in queued) == (on, on)


LEFT = "from edgekit.system import onnx_runtime as o; o.onnxruntime(); print(o.telemetry_left())"


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("before", "value", "told"),
    [
        ("", "", "None"),
        ("import onnxruntime", "1", "None"),
        (
            "import onnxruntime",
            "",
            "this process imported onnxruntime before EdgeKit did, so its telemetry is on: "
            "set ORT_DISABLE_TELEMETRY=1 in the environment before that import",
        ),
        (
            "",
            "0",
            "ORT_DISABLE_TELEMETRY=0 lets ONNX Runtime send telemetry to its vendor: unset it, or set "
            "ORT_DISABLE_TELEMETRY=1",
        ),
    ],
)
def test_what_is_left_on_is_told(tmp_path: Path, before: str, value: str, told: str) -> None:
    done = watched(tmp_path / "home", "-c", f"{before}\n{LEFT}", switch=value)
    assert done.stdout == f"{told}\n", done.stderr


def test_the_doctor_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.target.registry.target_names", list)  # no engine is imported with it on
    monkeypatch.setenv(SWITCH, "no")
    found = doctor.doctor(doctor.engines())
    assert f"{SWITCH}=no lets ONNX Runtime send telemetry to its vendor" in found["warnings"][-1]
    assert found["warnings"][-1] in doctor.doctor_text(found)
