"""Run a model on the Hexagon NPU by ONNX Runtime's QNN provider. Device side: numpy, onnxruntime,
onnxruntime-qnn.

On x86-64 the provider's libraries emulate the NPU with the same code, and such a runner ``stands_in_for`` a
Hexagon NPU. CPU fallback is disabled: a graph that is not wholly on the NPU does not load.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from edgekit.errors import EngineError, need_package
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.system.redirection import redirected
from edgekit.system.shared_libraries import check_libraries
from edgekit.target.contract import EngineInfo
from edgekit.tensor_spec import Array, Json, TensorSpec

ENGINE = EngineInfo(
    packages=("onnxruntime", "onnxruntime-qnn"),
    stands_in_for=lambda: "a Hexagon NPU" if emulated() else "",
)
MODEL_FILE = "model.onnx"
CONTEXT_FILE = "context.onnx"
"""Names the context binary, which lies next to it."""
PROVIDER = "QNNExecutionProvider"
DEFAULT_ARCH = "73"
"""Version of the NPU that is emulated if the options name none."""
NO_FALLBACK = "session.disable_cpu_ep_fallback"
PLACEMENT = "session.record_ep_graph_assignment_info"


def engine_version() -> str:
    """Return name and version of the installed engine, e.g. ``onnxruntime-qnn 2.7.0``."""
    emulator = " (HTP emulator)" if emulated() else ""
    return f"onnxruntime-qnn {_qnn().__version__}{emulator}"


def emulated() -> bool:
    """Check whether this machine's libraries emulate the NPU: those for x86-64 do, others drive an NPU."""
    return platform.machine().lower() in ("x86_64", "amd64")


def open_runner(
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> QnnRunner:
    """Load the context binary, or compile ``model.onnx`` if there is none or the NPU is another one.

    ``options["htp_arch"]``: the version of the NPU that the context binary is for, which is emulated on
    x86-64. ``threads``: number of threads of the emulator's host code; the NPU has its own.
    """
    arch, refused = str(options.get("htp_arch") or DEFAULT_ARCH), ""
    names = [spec.name for spec in outputs]
    precision = str(options.get("precision", "int8"))
    context = files.get(CONTEXT_FILE)
    if context is not None:
        try:
            return QnnRunner(open_session(context, arch, threads=threads), names, precision, arch, "")
        except EngineError as problem:
            refused = str(problem)
    path = files[MODEL_FILE]
    try:
        session = open_session(path, arch, threads=threads)
    except EngineError as problem:
        raise EngineError(f"{engine_version()} did not load {path}: {problem}") from None
    return QnnRunner(session, names, precision, arch, refused)


def open_session(
    model: Path | bytes,
    arch: str,
    *,
    threads: int | None = None,
    whole: bool = True,
    context: Path | None = None,
) -> Any:
    """Open an ``onnxruntime.InferenceSession`` on the NPU.

    Args:
        arch: Version of the NPU to compile for and to emulate, e.g. ``73``; a device has its own.
        whole: Reject a graph that is not wholly on the NPU.
        context: Write the context binary next to this path, and a model that names it to this path.

    Raises:
        MissingDependency: onnxruntime-qnn is not installed.
        EngineError: the model was refused; the message is the provider's own.
    """
    ort = onnxruntime("running on a Hexagon NPU", "qnn")
    devices = _devices()
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads or 1
    settings.inter_op_num_threads = 1
    # As it is written: two of its optimizations change outputs (edgekit_ort), and the NPU's compiler has
    # its own.
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    settings.add_session_config_entry(NO_FALLBACK, "1" if whole else "0")
    settings.add_session_config_entry(PLACEMENT, "1")
    settings.log_severity_level = 4  # it logs an error for each node that it tries and does not take
    if context is not None:
        settings.add_session_config_entry("ep.context_enable", "1")
        settings.add_session_config_entry("ep.context_embed_mode", "0")
        settings.add_session_config_entry("ep.context_file_path", str(context))
    # Else the pairs at the graph's inputs and outputs are left to the CPU if it may take them.
    options = {"backend_path": _qnn().get_qnn_htp_path(), "offload_graph_io_quantization": "0"}
    if emulated():
        options["htp_arch"] = arch
    settings.add_provider_for_devices(devices, options)
    try:
        with _stdout_to_stderr():
            return ort.InferenceSession(model if isinstance(model, bytes) else str(model), settings)
    except Exception as problem:  # onnxruntime raises a dozen classes that share no root but this one
        raise EngineError(_plain(str(problem))) from None


def placement(session: Any) -> dict[str, list[str]]:
    """Return provider -> names of the nodes that ONNX Runtime assigned to it."""
    nodes_by_provider: dict[str, list[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes_by_provider.setdefault(part.ep_name, []).extend(node.name for node in part.get_nodes())
    return nodes_by_provider


class QnnRunner:
    """Loaded model.

    Attributes:
        stands_in_for: Name of the hardware that the emulator replaces; "" on a device.
    """

    def __init__(
        self, session: Any, outputs: Sequence[str], precision: str, arch: str, context_refused: str
    ) -> None:
        self.precision = precision
        self.stands_in_for = "a Hexagon NPU" if emulated() else ""
        self.stands_in_by = f"the HTP emulator of onnxruntime-qnn {_qnn().__version__}"
        self.device = f"Hexagon NPU v{arch}, emulated" if emulated() else "Hexagon NPU"
        self._session = session
        self._outputs = list(outputs)
        self._arch, self._context_refused = arch, context_refused

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            outputs = self._session.run(self._outputs, dict(feeds))
        except Exception as problem:  # see open_session
            raise EngineError(f"{engine_version()} failed to run: {problem}") from None
        return dict(zip(self._outputs, outputs, strict=True))

    def facts(self) -> dict[str, Json]:
        """Return ONNX Runtime's ``placement``, provider -> number of nodes, and if it is ``emulated``."""
        facts: dict[str, Json] = {
            "placement": {name: len(nodes) for name, nodes in placement(self._session).items()},
            "emulated": emulated(),
        }
        if self._context_refused:
            facts["context_refused"] = self._context_refused
        return facts

    def close(self) -> None:
        del self._session


@cache
def _devices() -> list[Any]:
    """Return the provider's devices; register its library first, which works once per process."""
    ort, qnn = onnxruntime("running on a Hexagon NPU", "qnn"), _qnn()
    try:
        with _stdout_to_stderr():
            ort.register_execution_provider_library(PROVIDER, qnn.get_library_path())
            devices = [device for device in ort.get_ep_devices() if device.ep_name == PROVIDER]
    except Exception as problem:
        raise EngineError(f"onnxruntime-qnn {qnn.__version__} did not load: {problem}") from None
    if not devices:
        raise EngineError(f"onnxruntime-qnn {qnn.__version__} finds no device on this machine")
    return devices


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr: Qualcomm's libraries print a line on load, which would break ``--json``."""
    with redirected(1, 2):
        try:
            yield
        finally:
            ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None).fflush(None)


def _plain(message: str) -> str:
    """Return a message on one line, without ``[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : ``."""
    line = " ".join(message.split())
    line = line.rpartition("[ONNXRuntimeError] : ")[2].split(" : ", 2)[-1]
    if (
        "explicitly disabled the fallback" in line
        or "fallback to CPU EP has been explicitly disabled" in line
    ):
        return "not all of its nodes are taken by the NPU"
    return line


def _qnn() -> Any:
    check_libraries("onnxruntime_qnn")
    with need_package("onnxruntime-qnn", "running on a Hexagon NPU", extra="qnn", module="onnxruntime_qnn"):
        import onnxruntime_qnn
    return onnxruntime_qnn
