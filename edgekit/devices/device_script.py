"""Runs on a device, fed to its Python: what is there, receiving a file, beginning a measurement.

Standard library only. One request a process: a line of JSON, then, for ``receive``, the bytes. Answers are
lines of JSON; the first is ``{"hello": 1}``. What else writes to stdout is sent to stderr.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import struct
import sys
import tarfile
import threading
from typing import Any, BinaryIO

FOLDER = os.path.join("~", ".cache", "edgekit-device")
KEPT = 3
"""Of each kind of file sent, those used last; older ones are removed."""
TOOLS = {
    "benchmark_model": ("/data/local/tmp/benchmark_model",),
    "trtexec": ("/usr/src/tensorrt/bin/trtexec",),
}


def folder_here() -> str:
    """Create and return a folder that only this user may write to."""
    path = os.path.abspath(os.path.expanduser(FOLDER))
    os.makedirs(path, mode=0o700, exist_ok=True)
    facts = os.stat(path)
    if sys.platform != "win32" and (facts.st_uid != os.getuid() or facts.st_mode & 0o022):
        raise OSError(f"{path} belongs to another user, or others may write to it")
    return path


def inventory() -> dict[str, Any]:
    """Return Python, system, processor, free space and packages."""
    from importlib.metadata import distributions

    folder = folder_here()
    texts = {}
    for name in ("/proc/cpuinfo", "/proc/meminfo"):
        with contextlib.suppress(OSError), open(name, encoding="utf-8", errors="replace") as file:
            texts[name] = file.read(16_384)
    packages = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}
    return {
        "python": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "bits": 8 * struct.calcsize("P"),
        "machine": platform.machine(),
        "system": platform.system(),
        "release": platform.release(),
        "libc": list(platform.libc_ver()),
        "texts": texts,
        "free_bytes": shutil.disk_usage(folder).free,
        "packages": packages,
        "tools": {name: path for name in TOOLS if (path := tool(name)) is not None},
    }


def tool(name: str) -> str | None:
    """Return the path of a vendor's tool, or None."""
    candidates = (path for path in TOOLS[name] if os.access(path, os.X_OK))
    return shutil.which(name) or next(candidates, None)


def received(digest: str) -> dict[str, Any]:
    """Return a file's state: ``{"whole": true}``, or the bytes received before the connection broke."""
    whole = os.path.join(folder_here(), "whole", digest)
    if os.path.lexists(whole):
        os.utime(whole)
        return {"whole": True, "bytes": 0}
    part = os.path.join(folder_here(), "parts", digest)
    return {"whole": False, "bytes": os.path.getsize(part) if os.path.exists(part) else 0}


def receive(source: BinaryIO, digest: str, size_bytes: int, offset: int, unpack: bool) -> dict[str, Any]:
    """Append to a partial file. Once its sha256 is right, unpack or keep it, completely or not at all.

    Raises:
        ValueError: the sha256 is wrong; the received bytes are discarded.
        EOFError: the connection ended early; the received bytes are kept.
    """
    folder = folder_here()
    for name in ("parts", "whole"):
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
    part, whole = (os.path.join(folder, name, digest) for name in ("parts", "whole"))
    with open(part, "r+b" if os.path.exists(part) else "w+b") as file:
        file.truncate(offset)
        file.seek(offset)
        left = size_bytes - offset
        while left:
            piece = source.read1(min(left, 1 << 16))  # type: ignore[attr-defined]
            if not piece:
                raise EOFError("the connection ended")
            file.write(piece)
            file.flush()
            left -= len(piece)
        file.seek(0)
        checksum = hashlib.sha256()
        while piece := file.read(1 << 20):
            checksum.update(piece)
        os.fsync(file.fileno())
    if checksum.hexdigest() != digest:
        os.unlink(part)
        raise ValueError(f"the received file does not have the sha256 {digest}")
    if not unpack:
        os.replace(part, whole)
    else:
        draft = f"{part}.unpacked"
        shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
        with tarfile.open(part) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(draft, filter="data")
            else:
                archive.extractall(draft)
        os.replace(draft, whole)
        os.unlink(part)
    keep_the_last(os.path.join(folder, "whole"))
    return {"whole": True}


def keep_the_last(folder: str) -> None:
    """Remove what was used longest ago: bundles are files, packages are folders."""
    paths = [os.path.join(folder, name) for name in os.listdir(folder)]
    for kind in (os.path.isdir, os.path.isfile):
        newest_first = sorted((p for p in paths if kind(p)), key=os.path.getmtime, reverse=True)
        for path in newest_first[2 * KEPT if kind is os.path.isdir else KEPT :]:
            if kind is os.path.isdir:
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


def measure(source: BinaryIO, packages: list[str], bundle: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run a verb of EdgeKit with the packages that were sent. It ends when the connection does."""
    folder = os.path.join(folder_here(), "whole")
    sys.path[:0] = [os.path.join(folder, digest) for digest in packages]
    os.environ["EDGEKIT_CACHE"] = os.path.join(folder_here(), "cache")

    def watch() -> None:
        source.read()
        os._exit(75)

    threading.Thread(target=watch, daemon=True).start()
    from edgekit.devices.worker import answer

    return answer(os.path.join(folder, bundle), request)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # engines print

    def send_row(row: dict[str, Any]) -> None:
        answers.write(json.dumps(row) + "\n")
        answers.flush()

    send_row({"hello": 1})
    source = sys.stdin.buffer
    request = json.loads(source.readline())
    verbs = {
        "inventory": lambda: inventory(),
        "received": lambda: received(**request),
        "receive": lambda: receive(source, **request),
        "measure": lambda: measure(source, **request),
    }
    try:
        send_row({"answer": verbs[request.pop("do")]()})
    except EOFError:  # nobody is there to be told
        os._exit(75)
    except Exception as problem:
        ours = getattr(problem, "exit_code", None)  # an EdgeKitError's text is complete
        text = str(problem) if ours is not None else f"{type(problem).__name__}: {problem}"
        send_row({"error": text, "exit_code": ours})
    answers.flush()
    os._exit(0)  # no engine's destructor after the answer


if __name__ == "__main__":
    main()
