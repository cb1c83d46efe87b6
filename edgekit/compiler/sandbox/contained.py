"""Run ``check``, ``build`` or ``shrink`` in a child process, and return its result.

The child has its own session: Ctrl-C reaches this process alone, which interrupts the child. All processes
that the child started end with it. Its memory, time and rights are limited.

If a child ends in a step at risk (``breadcrumbs.at_risk``), another one is started. It skips that step and
loads earlier measurements from the caches.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgekit.compiler.sandbox import child_process, messages
from edgekit.compiler.sandbox.child_main import BUNDLE, CRUMBS, IMPORTED, NEED, SMALLER, ChildRequest
from edgekit.compiler.sandbox.child_process import GRACE_S
from edgekit.compiler.sandbox.limits import bounds_of, limits_of, model_files
from edgekit.compiler.sandbox.messages import LINE_LIMIT_BYTES, Broken
from edgekit.compiler.sandbox.watch import ChildWatch, memory_advice, starved
from edgekit.diagnostics import Finding
from edgekit.errors import CrashError, UsageError, printable
from edgekit.system import breadcrumbs
from edgekit.system.breadcrumbs import WITHIN
from edgekit.system.confinement import STARVED_CODE
from edgekit.system.declared_options import plain_arguments
from edgekit.system.progress import Progress, Stage, listener, report, step
from edgekit.system.records_folder import model_folder
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.compiler.card_inference.draft import Draft
    from edgekit.compiler.compress.goal import ShrinkGoal
    from edgekit.compiler.pipeline.build_request import BuildRequest
    from edgekit.compiler.pipeline.import_onnx import ImportedModel
    from edgekit.compiler.pipeline.shrink_request import ShrinkRequest
    from edgekit.compiler.pipeline.shrunk_model import ShrunkModel

POLL_S = 0.05
"""How often Ctrl-C is looked for."""
PASSED_ON_BYTES = 1 << 20
"""How much of what engines print is passed on."""
WAITING_LINES = 64
SAID_BYTES = 256 << 20
"""How much a child may say."""
CRASHED = "the model may be hostile or malformed, or an engine has a bug"
DEATHS_LIMIT = 24
"""Maximum number of steps that one request leaves out."""
INNER_DEATHS_LIMIT = 8
"""Maximum number of steps that are left out of one step, e.g. candidates of an int8 search. The next one
costs the step around them."""
STOPPED = (130, -1, -2, -15)
"""Exit codes of a child that somebody stopped: Ctrl-C, SIGHUP, SIGINT, SIGTERM."""


def check_contained(options: Mapping[str, Any]) -> list[Finding]:
    """Run ``edgekit.compiler.pipeline.check.check`` with these options, in a child."""
    with _Child("check", options) as child:
        return child.findings(report)


def build_contained(request: BuildRequest) -> Bundle:
    with _Child("build", plain_arguments(request)) as child:
        from edgekit.bundle.bundle import Bundle  # while the child starts

        child.findings(listener(request.progress))
        bundle = Bundle.open(child.folder / BUNDLE)  # the open file outlives its name, and is not in memory
        bundle.name = "new bundle"
        bundle.verify_entries()
        return bundle


def shrink_contained(request: ShrinkRequest, goal: ShrinkGoal) -> ShrunkModel:
    with _Child("shrink", plain_arguments(request)) as child:
        from edgekit.compiler.sandbox.result_messages import parse_shrunk  # while the child starts

        child.findings(listener(request.progress))
        with _checked(child.name):
            smaller = read_plain(child.folder / SMALLER, child.largest_file_bytes)
            return parse_shrunk(child.figures, child.name, goal, smaller)


def import_contained(options: Mapping[str, Any]) -> ImportedModel:
    """Run ``edgekit.compiler.pipeline.import_onnx.import_model`` with these options, in a child."""
    with _Child("import", options) as child:
        from edgekit.compiler.sandbox.result_messages import parse_imported  # while the child starts

        child.findings(report)
        with _checked(child.name):
            onnx = read_plain(child.folder / IMPORTED, child.largest_file_bytes)
            return parse_imported(child.figures, Path(options["model"]), onnx)


def card_contained(options: Mapping[str, Any]) -> Draft:
    """Run ``edgekit.compiler.card_inference.draft.draft_card`` with these options, in a child."""
    with _Child("card", options) as child:
        from edgekit.compiler.sandbox.result_messages import parse_drafted  # while the child starts

        child.findings(report)
        with _checked(child.name):
            return parse_drafted(child.figures, child.name)


@contextlib.contextmanager
def _checked(name: str) -> Iterator[None]:
    try:
        yield
    except (Broken, OSError) as problem:
        raise CrashError(f"{name}: its process sent an invalid message: {problem}") from None


class _Child:
    """The child process of one request. It ends with the context, whatever happens in it."""

    def __init__(self, verb: str, options: Mapping[str, Any]) -> None:
        self.name = os.path.basename(os.fspath(options["model"]))
        self._request = (verb, dict(options))
        self._limits = limits_of(verb, options)
        self.largest_file_bytes = self._limits.memory_bytes
        self.figures: Json = None
        self._deaths: dict[str, str] = {}
        self._spent_s, self._finished_stages, self._repeated_stages = 0.0, 0, 0

    def __enter__(self) -> _Child:
        self._is_starved = self._is_stopped = False
        self._lines: queue.Queue[bytes | None] = queue.Queue(WAITING_LINES)
        self._cleanup = contextlib.ExitStack()
        with contextlib.ExitStack() as started:
            temporary = tempfile.TemporaryDirectory(prefix="edgekit-", ignore_cleanup_errors=True)
            self.folder = Path(started.enter_context(temporary))
            (self.folder / CRUMBS).write_bytes(bytes(breadcrumbs.SIZE_BYTES))
            (self.folder / "tmp").mkdir()
            self._process = child_process.start(self.folder)
            started.callback(child_process.end, self._process)
            end = partial(child_process.kill, self._process)
            self._watch = ChildWatch(
                self._process.pid, self._limits, end, self._spent_s, self._last_crumb, self.folder / NEED
            )
            started.callback(self._watch.close)
            self._printed = threading.Thread(target=self._pass_on, args=(self._process.stderr,), daemon=True)
            self._printed.start()
            threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
            self._send()
            self._cleanup = started.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._cleanup.close()
        self._printed.join(GRACE_S)  # what was printed comes before what is said next

    def findings(self, progress: Progress) -> list[Finding]:
        """Wait for the result.

        Raises:
            EdgeKitError: the child's; CrashError: it ended without an answer.
            OSError: the child's.
        """
        while (result := self._answer(progress)) is None:
            self._start_again(progress)
        return result

    def _answer(self, progress: Progress) -> list[Finding] | None:
        findings: list[Finding] = []
        try:
            for message in self._messages():
                if "stage" in message:
                    self._report(messages.parse_stage(message["stage"]), progress)
                elif "step" in message:
                    report(messages.parse_stage(message["step"]))
                elif "findings" in message:
                    findings += messages.parse_findings(message["findings"])
                    if len(findings) > messages.FINDINGS_LIMIT:
                        raise Broken("too many findings")
                elif "figures" in message:
                    self.figures = message["figures"]
                elif "error" in message:
                    raise messages.parse_error(message["error"], findings)
                elif "system" in message:
                    raise messages.parse_system_error(message["system"])
                elif message.get("done") == self._request[0]:
                    return findings
                else:
                    raise Broken("a message of an unknown kind")
        except KeyboardInterrupt:
            self._stop()
            raise
        except Broken as problem:
            raise CrashError(self._story(f"its process sent an invalid message: {problem}")) from None
        return None

    def _report(self, stage: Stage, progress: Progress) -> None:
        if self._repeated_stages:
            self._repeated_stages -= stage.seconds is not None
            return
        self._finished_stages += stage.seconds is not None
        progress(stage)

    def _start_again(self, progress: Progress) -> None:
        """Start another child, without the step that the last one ended in.

        Raises:
            CrashError: it ended elsewhere, someone stopped it, or too many steps were left out.
        """
        self._watch.close()
        reason, advice = self._watch.overrun, self._watch.advice
        if not reason:
            reason, advice = _death(self._process), CRASHED
            self._printed.join(GRACE_S)
            if self._is_starved or self._process.returncode == STARVED_CODE:
                self._watch.raise_limits()
                limit = self._watch.limit_bytes
                reason = starved(limit, self._watch.peak_bytes)
                advice = memory_advice(limit, self._watch.need().memory_bytes)
        step = self._last_crumb()[2]
        if sum(death.startswith(_around(step) + WITHIN) for death in self._deaths) >= INNER_DEATHS_LIMIT:
            step = _around(step)
        ended_by_user = self._process.returncode in STOPPED
        is_over = self._watch.spent_s >= self._watch.limit_s or len(self._deaths) >= DEATHS_LIMIT
        if not step or step in self._deaths or ended_by_user or is_over:
            raise CrashError(self._story(reason, advice))
        self._deaths[step] = reason  # goes into the bundle, without what is true of this machine alone
        detail = f"without {_one_line(step)}: {reason}" + (f"; {advice}" if advice != CRASHED else "")
        spent_s = self._watch.spent_s - self._spent_s
        self._spent_s, self._repeated_stages = self._watch.spent_s, self._finished_stages
        self.__exit__()
        progress(Stage("restarted", detail, spent_s))
        self.__enter__()

    def _send(self) -> None:
        verb, options = self._request
        try:
            folder = os.getcwd()
        except OSError:
            folder = None
        assert self._process.stdin is not None
        bounds = bounds_of(self._limits, options, self.folder, source := model_folder(model_files(options)))
        records = str(source) if source else None
        memory_bytes, seconds = self._limits.memory_bytes, self._limits.seconds
        private = str(self.folder)
        request = ChildRequest(verb, options, folder, private, records, memory_bytes, seconds, self._deaths)
        try:
            pickle.dump((list(sys.path), tuple(bounds)), self._process.stdin)
            pickle.dump(request, self._process.stdin)
            self._process.stdin.close()
        except BrokenPipeError:  # it is dead, and its end will be noticed
            pass
        except (pickle.PicklingError, TypeError, AttributeError) as problem:
            raise UsageError(
                f"an option cannot be passed to the process that {verb}s the model: {problem}; use "
                "trusted=True to work in this process"
            ) from None

    def _listen(self, stream: IO[bytes]) -> None:
        with contextlib.suppress(ValueError, OSError):  # closed meanwhile
            while line := stream.readline(LINE_LIMIT_BYTES + 1):
                self._lines.put(line)
        self._lines.put(None)

    def _pass_on(self, stream: IO[bytes]) -> None:
        left = PASSED_ON_BYTES
        with contextlib.suppress(ValueError, OSError), stream:
            while line := stream.readline(1 << 16):
                is_last = b"std::bad_alloc" in line  # of an engine that ends itself: the error tells it
                self._is_starved |= is_last
                if left > 0 and not is_last and not self._is_stopped:
                    sys.stderr.write(printable(line.decode("utf-8", "replace").replace("\r", "\n")))
                    sys.stderr.flush()
                left -= len(line)

    def _messages(self) -> Iterator[dict[str, Any]]:
        left = SAID_BYTES
        with step("starting"):
            line = self._next_line()
        while line is not None:
            left -= len(line)
            if left < 0:
                raise Broken("it sent too much data")
            yield messages.parse_line(line)
            line = self._next_line()

    def _next_line(self) -> bytes | None:
        while True:  # in steps, to receive Ctrl-C meanwhile
            with contextlib.suppress(queue.Empty):
                return self._lines.get(timeout=POLL_S)

    def _stop(self) -> None:
        """Ask the child to exit, and wait briefly: it stores its measurements in the cache.

        Windows has no such signal for one process: there the child is killed, and its successor measures
        again.
        """
        if sys.platform == "win32":
            return
        self._is_stopped = True  # it may print a traceback while it starts
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGINT)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                if self._lines.get(timeout=POLL_S) is None:
                    return

    def _story(self, reason: str, advice: str = CRASHED) -> str:
        _, stage, place = self._last_crumb()
        location = _one_line(", ".join(filter(None, (stage, place))) or "its start")
        return f"{self.name}: {reason}\n  at {location}\n  {advice}; this process is unharmed"

    def _last_crumb(self) -> tuple[int, str, str]:
        with open(self.folder / CRUMBS, "rb") as file:
            return breadcrumbs.read(file.read(breadcrumbs.SIZE_BYTES))


def _around(step: str) -> str:
    return step.rpartition(WITHIN)[0]


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ")


def _death(process: subprocess.Popen[bytes]) -> str:
    """End the child and all processes that it started. Return how it ended."""
    ended = child_process.has_ended(process)
    child_process.end(process)
    code = process.returncode
    if not ended:
        return "its process closed its connection without ending"
    if code >= 0:
        return f"its process exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its process was killed by {name}"
