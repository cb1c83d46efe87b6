"""Child processes that serve requests, one after the other (answering.py).

    with ToolchainChild(environment, SCRIPT) as child:
        (child.folder / "model.onnx").write_bytes(content)
        found = child.ask({"do": "build"}, seconds=600)

A toolchain's process is confined if the system can; it may write to ``child.folder`` alone, and has no
network.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.compiler.toolchains.environment import MEMORY_BYTES, Environment
from edgekit.errors import EngineError, printable
from edgekit.system.formats import strict_json
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Json

ANSWER, LOG = "answer.json", "log.txt"
ANSWER_LIMIT_BYTES = 16 << 20
LOG_LIMIT_BYTES = 4 << 20
"""How much of the end of what it printed is read."""
ANSWERING = Path(__file__).with_name("answering.py")
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Variables of this process's environment that a toolchain sees."""


class ServingProcess:
    """A process of EdgeKit's Python. It ends when it is closed or forgotten.

    Args:
        module: Module that it runs, in its own folder.

    Attributes:
        folder: Its own, for files both ways; removed at the end.
    """

    def __init__(self, module: str) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="edgekit-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        search = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
        with open(self.folder / LOG, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self.folder,
                env={**os.environ, "PYTHONPATH": search},
            )  # fmt: skip
        self._end = weakref.finalize(self, _end_child, self._process, self._temporary)

    @property
    def is_alive(self) -> bool:
        return self._end.alive

    def close(self) -> None:
        self._end()

    def respond(self, lines: bytes, seconds: float) -> bytes:
        """Send a request and return the response, both in JSON.

        Args:
            seconds: Time limit in seconds, after which the process is killed.

        Raises:
            TimeoutError: the time limit was exceeded.
            ChildProcessError: the process has ended; the argument is its exit code.
            OSError: the response can't be read.
        """
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            pipe.write(lines)
            pipe.flush()
            answered = answers.readline() == b"done\n"
        except BrokenPipeError:
            answered = False
        finally:
            in_time = timer.is_alive()
            timer.cancel()
        if answered:
            return read_plain(self.folder / ANSWER, ANSWER_LIMIT_BYTES)
        code = self._process.wait()
        raise ChildProcessError(code) if in_time else TimeoutError

    def output(self) -> str:
        """Return the end of what the process printed."""
        with open(self.folder / LOG, "rb") as file:
            file.seek(max(0, os.path.getsize(self.folder / LOG) - LOG_LIMIT_BYTES))
            return file.read(LOG_LIMIT_BYTES).decode("utf-8", "replace")


class ToolchainChild(ServingProcess):
    """A process in a toolchain's environment. As a context it is closed at the end.

    Args:
        script: A file with ``answer(request, folder) -> dict`` (answering.py). Its Python has no EdgeKit.
    """

    def __init__(self, environment: Environment, script: Path) -> None:
        super().__init__("edgekit.compiler.toolchains.confined_exec")
        (self.folder / "tmp").mkdir()
        self._name, self._last_said = environment.name, ""
        self._first = json.dumps(_start(environment, script, self.folder)).encode() + b"\n"

    def __enter__(self) -> ToolchainChild:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def ask(self, request: Mapping[str, Json], seconds: float) -> dict[str, Json]:
        """Send a request to the script and return its response.

        Args:
            seconds: Time limit in seconds, after which the process is killed.

        Raises:
            EngineError: the script raised, the process died, or the time limit was exceeded.
        """
        lines, self._first = self._first + json.dumps(request).encode() + b"\n", b""
        try:
            response = strict_json.decode(self.respond(lines, seconds), ANSWER, ANSWER_LIMIT_BYTES)
        except TimeoutError:
            raise self._death(f"took more than {seconds:g} s") from None
        except ChildProcessError as problem:
            raise self._death(_ending(*problem.args)) from None
        except (OSError, ValueError) as problem:
            raise EngineError(f"the toolchain {self._name} sent an invalid response: {problem}") from None
        if not isinstance(response, dict):
            raise EngineError(f"the toolchain {self._name} sent an invalid response: {type(response)}")
        if "error" in response:
            raise EngineError(f"the toolchain {self._name} failed: {response['error']}")
        return response

    def output_end(self) -> str:
        """Return the end of the process's output, also after it has died."""
        return printable(self.output()) if self.is_alive else self._last_said

    def _death(self, reason: str) -> EngineError:
        self._last_said = self.output_end()
        lines = [line for line in self._last_said.splitlines() if line.strip()]
        self.close()
        last = f"; its last line: {lines[-1].strip()}" if lines else ""
        return EngineError(f"the process of the toolchain {self._name} {reason}{last}")


def _ending(code: int) -> str:
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"


def _start(environment: Environment, script: Path, folder: Path) -> dict[str, Json]:
    """Return the first line for the process: its rights, command and environment variables."""
    paths = [*environment.reads(), str(script.parent), str(ANSWERING.parent)]
    variables = {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        "bounds": [MEMORY_BYTES, MEMORY_BYTES, paths, [str(folder)]],
        "command": [str(environment.python), "-I", str(ANSWERING), str(script), str(folder)],
        "environment": {**{name: os.environ[name] for name in KEPT if name in os.environ}, **variables},
    }


def _end_child(process: subprocess.Popen[Any], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()
    folder.cleanup()
