"""Process in a toolchain's environment, confined where the system can, and killed after a time limit.

    with ToolchainChild(environment, SCRIPT) as child:
        (child.folder / "model.onnx").write_bytes(content)
        found = child.ask({"do": "build"}, seconds=600)

Files go through ``child.folder``, the only folder that it may write to; it has no network.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgekit.compiler.toolchains.environment import MEMORY_BYTES, Environment
from edgekit.errors import EngineError, printable
from edgekit.system.formats import strict_json
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Json

ANSWER, LOG = "answer.json", "log.txt"
ANSWER_LIMIT_BYTES = 16 << 20
LOG_LIMIT_BYTES = 1 << 20
"""How much of the end of what it printed is read."""
ANSWERING = Path(__file__).with_name("answering.py")
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Variables of this process's environment that the child sees."""


class ToolchainChild:
    """One process. It ends when it is closed, left as a context, or forgotten.

    Args:
        environment: The toolchain's.
        script: A file with ``answer(request, folder) -> dict`` (answering.py). Its Python has no EdgeKit.
        reads: Further files and folders that it may read.

    Attributes:
        folder: Its own, for files both ways; removed at the end.
    """

    def __init__(self, environment: Environment, script: Path, reads: Iterable[Path] = ()) -> None:
        self._name = environment.name
        self._temporary = tempfile.TemporaryDirectory(prefix="edgekit-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        (self.folder / "tmp").mkdir()
        with open(self.folder / LOG, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "edgekit.compiler.toolchains.confined_exec"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self.folder,
                env=_search_path(),
            )  # fmt: skip
        self._end = weakref.finalize(self, end_child, self._process, self._temporary)
        self._last_said = ""
        self._first = json.dumps(_start(environment, script, self.folder, reads)).encode() + b"\n"

    def __enter__(self) -> ToolchainChild:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and remove its folder."""
        self._end()

    def ask(self, request: Mapping[str, Json], seconds: float) -> dict[str, Json]:
        """Send a request to the script and return its response.

        Args:
            request: Request in JSON.
            seconds: Time limit in seconds, after which the process is killed.

        Raises:
            EngineError: the script raised, the process died, or the time limit was exceeded.
        """
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            pipe.write(self._first + json.dumps(request).encode() + b"\n")
            pipe.flush()
            self._first = b""
            answered = answers.readline() == b"done\n"
        except BrokenPipeError:
            answered = False
        finally:
            in_time = timer.is_alive()
            timer.cancel()
        if not answered:
            raise self._death(f"took more than {seconds:g} s" if not in_time else "")
        try:
            content = read_plain(self.folder / ANSWER, ANSWER_LIMIT_BYTES)
            response = strict_json.decode(content, ANSWER, ANSWER_LIMIT_BYTES)
        except (OSError, ValueError) as problem:
            raise EngineError(f"the toolchain {self._name} sent an invalid response: {problem}") from None
        if not isinstance(response, dict):
            raise EngineError(f"the toolchain {self._name} sent an invalid response: {type(response)}")
        if "error" in response:
            raise EngineError(f"the toolchain {self._name} failed: {response['error']}")
        return response

    def output_end(self) -> str:
        """Return the end of the process's output, also after it has died."""
        if not self._end.alive:
            return self._last_said
        with open(self.folder / LOG, "rb") as file:
            file.seek(max(0, os.path.getsize(self.folder / LOG) - LOG_LIMIT_BYTES))
            return printable(file.read(LOG_LIMIT_BYTES).decode("utf-8", "replace"))

    def _death(self, reason: str) -> EngineError:
        code = self._process.wait()
        self._last_said = self.output_end()
        lines = [line for line in self._last_said.splitlines() if line.strip()]
        self.close()
        if not reason:
            with contextlib.suppress(ValueError):
                reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
            reason = reason or f"exited with code {code}"
        last = f"; its last line: {lines[-1].strip()}" if lines else ""
        return EngineError(f"the process of the toolchain {self._name} {reason}{last}")


def _search_path() -> dict[str, str]:
    search = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": search}


def _start(environment: Environment, script: Path, folder: Path, reads: Iterable[Path]) -> dict[str, Json]:
    """Return the first line for the process: its rights, command and environment variables."""
    paths = [*environment.reads(), str(script.parent), str(ANSWERING.parent), *map(str, reads)]
    variables = {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        "bounds": [MEMORY_BYTES, MEMORY_BYTES, paths, [str(folder)]],
        "command": [str(environment.python), "-I", str(ANSWERING), str(script), str(folder)],
        "environment": {**{name: os.environ[name] for name in KEPT if name in os.environ}, **variables},
    }


def end_child(process: subprocess.Popen[Any], folder: tempfile.TemporaryDirectory[str]) -> None:
    """Kill the process, close its pipes and remove its folder."""
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()
    folder.cleanup()
