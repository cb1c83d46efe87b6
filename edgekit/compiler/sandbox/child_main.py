"""Child process that checks, builds or shrinks one model for its parent. confined_start.py starts it.

It reads its request from stdin. It writes its messages to the original stdout, one per line. The output of
engines goes to stderr, which the parent reads.
"""

from __future__ import annotations

import errno
import gc
import math
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

from edgekit.compiler.sandbox import messages
from edgekit.errors import CrashError, EdgeKitError, reason_of
from edgekit.system import breadcrumbs
from edgekit.system.confinement import STARVED_CODE, extend_data
from edgekit.system.progress import Progress, Stage, listening
from edgekit.system.records_folder import records_in

BUNDLE, SMALLER, IMPORTED = "made.edgekit", "smaller.onnx", "imported.onnx"
CRUMBS, NEED = "crumbs", "need"
"""Files of the private folder that both processes know."""

STARVED_TEXTS = (
    "bad_alloc",
    "Arena alloc failed",
    "Failed to allocate memory",
    "error return without exception set",
)
"""Messages of the C++ library, protobuf, ONNX Runtime and the interpreter for a failed allocation."""

COUNTS_APART_S = 0.1

Send = Callable[[bytes], object]


class ChildRequest(NamedTuple):
    """Request of the parent; it is trusted.

    Attributes:
        verb: ``check``, ``build``, ``shrink``, ``import`` or ``card``.
        options: Arguments of the function of that name.
        working_folder: Folder that relative paths refer to; None if it no longer exists.
        private_folder: Folder of the child and its parent.
        records_folder: Folder of the model's measurements; None: the cache folder.
        memory_bytes: Limit of the child's memory, and of each file that it writes, in bytes.
        seconds: Limit of its time, in seconds.
        deaths: For each step that ended an earlier child of this request: how that child ended.
    """

    verb: str
    options: dict[str, Any]
    working_folder: str | None
    private_folder: str
    records_folder: str | None
    memory_bytes: int
    seconds: float
    deaths: dict[str, str]


def answer(source: BinaryIO) -> None:
    """Read the request, respond to it, and exit."""
    channel = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what engines print is no message
    request: ChildRequest = pickle.load(source)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is started with it ignored
    import_late(*SYMBOLIC)
    breadcrumbs.leave_in(Path(request.private_folder, CRUMBS), request.deaths)
    if request.working_folder is not None:
        os.chdir(request.working_folder)
    records = request.records_folder
    try:
        with records_in(Path(records) if records else None):
            _answer(request, channel.write)
    except KeyboardInterrupt:
        _end(130)
    except BrokenPipeError:  # the parent is gone
        _end(1)
    _end(0)


def _answer(request: ChildRequest, send: Send) -> None:
    try:
        notify = _notifier(send)
        with listening(partial(notify, "step")):
            lines = _done(request, partial(notify, "stage"))
        for line in lines:
            send(line)
    except BrokenPipeError:
        raise
    except Exception as problem:
        if is_starved(problem):
            os._exit(STARVED_CODE)  # the parent knows the limit, and the crumbs say where
        for line in _problem_lines(request, problem):
            send(line)


def _notifier(send: Send) -> Callable[[str, Stage], None]:
    last, sent_s = Stage("", ""), 0.0

    def notify(kind: str, stage: Stage) -> None:
        nonlocal last, sent_s
        if kind == "stage" and stage.seconds is None:
            breadcrumbs.enter(f"{stage.name} {stage.detail}".rstrip())
        counts = stage.seconds is None and stage[:2] == last[:2]
        if counts and time.monotonic() < sent_s + COUNTS_APART_S:
            return
        last, sent_s = stage, time.monotonic()
        send(messages.stage_line(kind, stage))

    return notify


def is_starved(problem: BaseException | None) -> bool:
    """Return whether an exception, or one that it was raised from, reports a failed memory allocation."""
    while problem is not None:
        refused = isinstance(problem, MemoryError) or getattr(problem, "errno", None) == errno.ENOMEM
        text = "" if isinstance(problem, EdgeKitError) else str(problem)  # ours may quote names of the model
        if refused or any(pattern in text for pattern in STARVED_TEXTS):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def _problem_lines(request: ChildRequest, problem: Exception) -> list[bytes]:
    """Return an error as lines. An unexpected exception, ours or a library's, gets one line and a file."""
    if not isinstance(problem, EdgeKitError | OSError):
        return messages.error_lines(_of_bug(request, problem))
    is_large = getattr(problem, "errno", None) == errno.EFBIG
    return messages.error_lines(_too_large(request) if is_large else problem)


def _done(request: ChildRequest, progress: Progress) -> list[bytes]:
    breadcrumbs.enter("opening")
    if request.verb == "check":
        from edgekit.compiler.pipeline.check import check

        _collect_from_here()
        return [*messages.findings_lines(check(**request.options)), messages.as_line({"done": "check"})]

    if request.verb in ("import", "card"):
        return _read(request)

    def claim(extra_bytes: int, extra_seconds: float) -> None:
        need = Path(request.private_folder, NEED)
        # Before the parent sees it used.
        need.write_bytes(
            b"%d %d" % (request.memory_bytes + extra_bytes, request.seconds + math.ceil(extra_seconds))
        )
        extend_data(extra_bytes)

    if request.verb == "shrink":
        from edgekit.compiler.pipeline.shrink import shrink_model
        from edgekit.compiler.pipeline.shrink_request import ShrinkRequest
        from edgekit.compiler.sandbox.result_messages import shrunk_figures

        _collect_from_here()
        shrunk = shrink_model(ShrinkRequest(**request.options, progress=progress), claim)
        with open(Path(request.private_folder, SMALLER), "xb") as file:
            file.write(shrunk.onnx)
        figures = messages.as_line({"figures": shrunk_figures(shrunk)})
        return [figures, messages.as_line({"done": "shrink"})]
    from edgekit.compiler.pipeline.build_bundle import build_bundle
    from edgekit.compiler.pipeline.build_request import BuildRequest

    _collect_from_here()
    bundle = build_bundle(BuildRequest(**request.options, progress=progress), claim)
    with open(Path(request.private_folder, BUNDLE), "xb") as file:
        file.writelines(bundle.pieces())
    return [messages.as_line({"done": "build"})]


def _collect_from_here() -> None:
    """Start searching for unused objects, without modules, whose search takes 0.1 s each time."""
    from edgekit.system.memory import freeze_own_process

    freeze_own_process()
    gc.enable()


def _read(request: ChildRequest) -> list[bytes]:
    from edgekit.compiler.sandbox.result_messages import drafted_figures, imported_figures

    if request.verb == "card":
        from edgekit.compiler.card_inference.draft import draft_card

        _collect_from_here()
        figures = drafted_figures(draft_card(**request.options))
    else:
        from edgekit.compiler.pipeline.import_onnx import import_model

        _collect_from_here()
        imported_model = import_model(**request.options)
        with open(Path(request.private_folder, IMPORTED), "xb") as file:
            file.write(imported_model.imported.onnx)
        figures = imported_figures(imported_model)
    return [messages.as_line({"figures": figures}), messages.as_line({"done": request.verb})]


def _too_large(request: ChildRequest) -> CrashError:
    from edgekit.compiler.sandbox.watch import memory_advice

    model, limit = Path(request.options["model"]).name, request.memory_bytes
    return CrashError(
        f"{model}: its process wrote a file larger than {limit / 1e6:,.0f} MB, its memory limit\n"
        f"  at {_place()}\n"
        f"  {memory_advice(limit)}"
    )


def _place() -> str:
    return ", ".join(filter(None, breadcrumbs.last()[1:]))


def _of_bug(request: ChildRequest, problem: Exception) -> CrashError:
    from edgekit.compiler.pipeline.faults import Faults, traceback_path

    model = Path(request.options["model"]).name
    path = traceback_path(Faults("unfinished").write(f"{request.verb}-{os.getpid()}", problem))
    return CrashError(
        f"{model}: a bug in EdgeKit or in one of its libraries: {reason_of(problem)}\n"
        f"  at {_place()}{f'; traceback: {path}' if path else ''}\n"
        "  the model may be malformed; if it is not, please report this with the traceback"
    )


def _end(code: int) -> None:
    """End without taking down the engines, which takes a tenth of a second and has crashed some."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


SYMBOLIC = ("sympy", "onnx_ir._symbolic_shapes")
"""Modules of onnx-ir's arithmetic with symbolic dimensions. Builds need none; they take 0.4 s and 32 MB."""


class _LateFinder:
    """Finder of ``sys.meta_path`` for the modules of some names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of these modules, whose loader waits for the first attribute; else None."""
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_late(*names: str) -> None:
    """Load these modules when an attribute of them is first used, in this process, if nothing has yet."""
    sys.meta_path.insert(0, _LateFinder(names))
