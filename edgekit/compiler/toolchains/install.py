"""Install and remove the environments of toolchains.

An environment is created in its final folder, since programs in it contain its path. Its record is written
last: the rest of an interrupted installation does not count as an environment, and the next installation
removes it first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit.compiler.toolchains.declaration import Toolchain, this_platform
from edgekit.compiler.toolchains.environment import (
    RECORD,
    Environment,
    all_folders,
    folder_of,
    installed,
    lock_digest,
    python_in,
    root,
)
from edgekit.errors import ToolchainError
from edgekit.system.atomic_files import locked, private_folder, write_atomically
from edgekit.system.formats import strict_json
from edgekit.system.progress import Notify, step, unheard

LOCK_SECONDS = 1.0
STEP_SECONDS = 3600.0
"""Of each step: making the environment, installing, importing."""
TAIL_LINES = 20


def install(toolchain: Toolchain) -> Environment:
    """Install the environment of a toolchain, or return the installed one. Its terms were accepted before.

    Args:
        toolchain: Toolchain to install.

    Raises:
        ToolchainError: no Python of its version, another platform, pip failed, or a module of it can't be
            imported; no files are left behind.
        OSError: the cache can't be written, or another process installs it.
    """
    if this_platform() != toolchain.platform:
        raise ToolchainError(
            f"the toolchain {toolchain.name} needs {toolchain.platform}, but this machine is "
            f"{this_platform()}: build on a supported machine and copy the bundle"
        )
    private_folder(root())
    with _changing(toolchain):
        environment = installed(toolchain)
        if environment is not None:
            return environment
        _remove(toolchain)
        folder = folder_of(toolchain)
        try:
            with step("installing") as notify:
                _make(toolchain, folder, notify)
        except BaseException:
            _remove(toolchain)
            raise
        return Environment(toolchain, folder, python_in(folder))


def remove(toolchain: Toolchain) -> bool:
    """Remove a toolchain's environments, also unfinished ones. Return whether there were any.

    Raises:
        OSError: files can't be removed, or another process installs it.
    """
    if not all_folders(toolchain.name):
        return False
    with _changing(toolchain):
        return _remove(toolchain)


@contextlib.contextmanager
def _changing(toolchain: Toolchain) -> Iterator[None]:
    with locked(root() / f".{toolchain.name}.lock", LOCK_SECONDS):
        yield


def _remove(toolchain: Toolchain) -> bool:
    folders = all_folders(toolchain.name)
    for folder in folders:
        (folder / RECORD).unlink(missing_ok=True)  # first: a part of an environment is none
        shutil.rmtree(folder)
    return bool(folders)


def _make(toolchain: Toolchain, folder: Path, notify: Notify) -> None:
    notify(f"python {toolchain.python}")
    python = _python(toolchain)
    _step(toolchain, [python, "-I", "-m", "venv", str(folder)], unheard)
    binary = str(python_in(folder))
    pip = [binary, "-I", "-m", "pip", "install", "--only-binary", ":all:"]
    quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    locked_only = ["--require-hashes", "--no-deps", "-r"]
    packages = [*locked_only, str(toolchain.lock)] if isinstance(toolchain.lock, Path) else toolchain.lock
    _step(toolchain, [*pip, *quiet, *packages], notify)
    notify("importing it")
    _step(toolchain, [binary, "-I", "-c", f"import {', '.join(toolchain.imports)}"], unheard)
    record = {
        "name": toolchain.name,
        "lock": lock_digest(toolchain),
        "python": toolchain.python,
        "terms_accepted": True,
    }
    write_atomically(folder / RECORD, [strict_json.encode(record)], 0o600)


def _python(toolchain: Toolchain) -> str:
    """Return a Python of its version that can make environments."""
    is_same_version = ".".join(map(str, sys.version_info[:2])) == toolchain.python
    named = shutil.which(f"python{toolchain.python}")
    for candidate in filter(None, (sys.executable if is_same_version else None, named)):
        script = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            ended = subprocess.run(
                [candidate, "-I", "-c", script], capture_output=True, text=True, timeout=60, check=True
            )
            if ended.stdout.strip() == toolchain.python:
                return candidate
    raise ToolchainError(
        f"the toolchain {toolchain.name} needs Python {toolchain.python} with its modules venv and "
        f"ensurepip, and python{toolchain.python} on PATH does not have them: install it, e.g. the system "
        f"packages python{toolchain.python} and python{toolchain.python}-venv"
    )


def _step(toolchain: Toolchain, command: Sequence[str], notify: Notify) -> None:
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=environment, text=True, errors="replace",
    )  # fmt: skip
    timer = threading.Timer(STEP_SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if text := line.strip():
                    tail.append(text)
                    notify(text)
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if code:
        raise ToolchainError(_install_error(toolchain, code, tail))


def _install_error(toolchain: Toolchain, code: int, tail: Sequence[str]) -> str:
    wrong = [line for line in tail if line.startswith(("ERROR", "Error")) or "Error:" in line]
    message = "\n  ".join((wrong or list(tail) or ["it printed no message"])[-4:])
    hint = f"\n  {toolchain.hint}" if toolchain.hint else ""
    return (
        f"the toolchain {toolchain.name} could not be installed (code {code})\n"
        f"  {message}{hint}\n"
        "  nothing was left behind; read pip's output above, and run the same command again"
    )
