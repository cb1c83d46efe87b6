"""Requests to the script on a device, each over a connection of its own; one that is lost is made again.

The command that the device's shell gets is always the same text. The script and the request go over stdin, so
nothing that varies is ever quoted for a shell.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any, TypeVar

from edgekit.devices import transport
from edgekit.devices.transport import DeviceAddress
from edgekit.errors import DeviceError
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.tensor_spec import Json

ANSWER_LIMIT_BYTES = 8 << 20
STDERR_LIMIT_BYTES = 65_536
PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10")
NO_PYTHON = 86
"""Exit code of the command if none of them is 3.10 or newer."""
END_SECONDS = 10.0
"""For the connection to end once the answer is there; then it is ended from here."""
ERROR_LIMIT_CHARS = 4000
WAITS_S = (1.0, 3.0, 9.0)
"""Before each further try, once a connection was lost."""

_READ = "import sys; b = sys.stdin.buffer; exec(b.read(int(b.readline())))"
_SEARCH = (
    f"for p in {' '.join(PYTHONS)}; do "
    '"$p" -c "import sys; sys.exit(sys.version_info < (3, 10))" 2>/dev/null </dev/null && '
    f'exec "$p" -c "{_READ}"; done; exit {NO_PYTHON}'
)
COMMAND = f"exec sh -c {shlex.quote(_SEARCH)}"
"""What the device's shell is given."""


class NoPython(Exception):  # noqa: N818  (what follows is another way, not a message)
    """The device has no Python that can run EdgeKit."""


class _Lost(Exception):  # noqa: N818  (it is tried again)
    """The connection ended before the answer. The text is what ssh or adb wrote to stderr."""


Payload = Callable[[], Iterator[bytes]]
T = TypeVar("T")


class Connection:
    """Connection to a device, which handles one request at a time.

    Args:
        notify: Callback for a line to the user: a lost connection, and that the work continues.
    """

    def __init__(self, address: DeviceAddress, notify: Callable[[str], None]) -> None:
        self.address = address
        self.notify = notify
        self._reached = False

    def ask(self, request: Mapping[str, Json]) -> Any:
        """Send a request and return the answer. A request that is sent again must not do harm.

        Args:
            request: With ``do``, the name of what the script is to do.

        Raises:
            NoPython: there is none to ask.
            DeviceError: the device can't be reached, the connection is lost again and again, or what was
                asked for failed there.
        """
        return self._retried(lambda: self._once(request))

    def send(self, content: bytes, digest: str, *, unpack: bool) -> int:
        """Send a file to the device, starting at the byte that an earlier connection reached.

        Args:
            digest: Its sha256, by which the device knows it.
            unpack: Whether it is a tar archive to be unpacked.

        Returns:
            How many bytes went over, those of broken connections left out.
        """

        def send_the_rest() -> int:
            state = self._once({"do": "received", "digest": digest})
            try:
                whole, received = bool(state["whole"]), int(state["bytes"])
            except (KeyError, TypeError, ValueError) as problem:
                raise DeviceError(f"{self.address.text} sent an invalid response: {problem}") from None
            if whole:
                return 0
            offset = received if 0 <= received <= len(content) else 0
            request: dict[str, Json] = {"do": "receive", "digest": digest, "offset": offset, "unpack": unpack}
            self._once({**request, "size_bytes": len(content)}, lambda: _pieces(content, offset))
            return len(content) - offset

        return self._retried(send_the_rest)

    def _retried(self, attempt: Callable[[], T]) -> T:
        for wait_s in (*WAITS_S, None):
            try:
                return attempt()
            except _Lost as lost:
                reason = transport.why_unreachable(self.address, str(lost))
                if not self._reached:
                    raise DeviceError(f"{self.address.text} can't be reached: {reason}") from None
                if wait_s is None:
                    raise DeviceError(
                        f"the connection to {self.address.text} was lost {len(WAITS_S) + 1} times: {reason}\n"
                        "  run the same command again: it does not resend what the device has received"
                    ) from None
                self.notify(f"the connection to {self.address.text} was lost ({reason}); trying again")
                time.sleep(wait_s)
        raise AssertionError  # the last wait is None

    def _once(self, request: Mapping[str, Json], payload: Payload | None = None) -> Any:
        process = transport.start(self.address, COMMAND)
        with process:
            try:
                return self._talk(process, request, payload)
            except BaseException:
                process.kill()
                if process.stdin is not None:
                    with contextlib.suppress(OSError):  # what it did not read can't be written any more
                        process.stdin.close()
                raise

    def _talk(
        self, process: subprocess.Popen[bytes], request: Mapping[str, Json], payload: Payload | None
    ) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        stderr_tail, errors = bytearray(), process.stderr
        reader = threading.Thread(target=keep_the_end, args=(errors, stderr_tail), daemon=True)
        reader.start()
        try:
            script = resources.files("edgekit.devices").joinpath("device_script.py").read_bytes()
            script += b"" if script.endswith(b"\n") else b"\n"
            process.stdin.write(b"%d\n" % len(script) + script)
            process.stdin.write(strict_json.encode(dict(request)) + b"\n")
            process.stdin.flush()
            for piece in payload() if payload is not None else ():
                process.stdin.write(piece)
            process.stdin.flush()
        except OSError:  # it ended: what it said, and its exit code, tell why
            pass
        hello, row = False, None
        while row is None and (line := process.stdout.readline(ANSWER_LIMIT_BYTES + 1)):
            message = self._row(line)
            row = message if "answer" in message or "error" in message else None
            if row is None and (hello or "hello" not in message):
                raise self._unexpected(f"{sorted(message)[:9]}")
            hello = self._reached = True
        with contextlib.suppress(OSError):  # as above
            process.stdin.close()
        code = end(process)
        reader.join(timeout=5)
        if row is None:
            if code == NO_PYTHON:
                raise NoPython
            raise _Lost(bytes(stderr_tail).decode("utf-8", errors="replace"))
        if "error" in row:
            error = DeviceError(f"{self.address.text}: {str(row['error'])[:ERROR_LIMIT_CHARS]}")
            if row.get("exit_code") in (1, 2, 3):
                error.exit_code = row["exit_code"]
            raise error
        return row["answer"]

    def _row(self, line: bytes) -> dict[str, Any]:
        try:
            row = strict_json.decode(line, "its answer", ANSWER_LIMIT_BYTES)
        except JsonError as problem:
            raise self._unexpected(f"{problem}; its shell profile must not print anything") from None
        if not isinstance(row, dict):
            raise self._unexpected(strict_json.brief(row))
        return row

    def _unexpected(self, description: str) -> DeviceError:
        return DeviceError(f"{self.address.text} sent an invalid response: {description}")


def _pieces(content: bytes, offset: int) -> Iterator[bytes]:
    for start in range(offset, len(content), 1 << 16):
        yield content[start : start + (1 << 16)]


def end(process: subprocess.Popen[bytes]) -> int:
    """Wait for a connection whose answer is there, and end it if it stays open; its exit code."""
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def keep_the_end(stream: Any, buffer: bytearray) -> None:
    """Read a stream into a buffer that keeps its last bytes."""
    while piece := stream.read1(4096):
        buffer += piece
        del buffer[:-STDERR_LIMIT_BYTES]
