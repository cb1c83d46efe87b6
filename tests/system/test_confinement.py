"""What a confined process may not do, tried in one."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from edgekit.system import confinement, landlock, seccomp

START = """
import os, sys
from edgekit.system.confinement import Bounds, confine
kept = confine(Bounds(1 << 30, 1 << 20, [sys.argv[1]], [sys.argv[2]]))
"""
TRIES = {
    # what is tried -> the code, the limit that refuses it
    "socket": ("import socket; socket.socket()", "network"),
    "socket6": ("import socket; socket.socket(socket.AF_INET6)", "network"),
    "connect": (
        "import socket; socket.socket(socket.AF_UNIX).connect(sys.argv[2] + '/no')",
        "network",
    ),
    "ptrace": (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)\n"
        "if c.ptrace(16, os.getppid(), 0, 0): raise OSError(ctypes.get_errno(), 'ptrace')",
        "network",
    ),
    "read": ("open(sys.argv[3] + '/secret')", "files"),
    "list": ("os.listdir(sys.argv[3])", "files"),
    "write where it reads": ("open(sys.argv[1] + '/new', 'w')", "files"),
    "truncate": ("os.truncate(sys.argv[1] + '/given', 0)", "files"),
    "remove": ("os.remove(sys.argv[1] + '/given')", "files"),
    "leave by a link": (
        "os.symlink(sys.argv[3], sys.argv[2] + '/l'); open(sys.argv[2] + '/l/secret')",
        "files",
    ),
    "from a child": (
        "import subprocess; r = subprocess.run(['cat', sys.argv[3] + '/secret']).returncode\n"
        "if r: raise PermissionError",
        "files",
    ),
    "memory": ("bytearray(2 << 30)", "resources"),
    "a large file": ("open(sys.argv[2] + '/f', 'wb').write(bytes(2 << 20))", "resources"),
    "core": ("import resource; raise MemoryError(*resource.getrlimit(resource.RLIMIT_CORE))", "resources"),
}
MAY = """
open(sys.argv[1] + '/given').read()
open(sys.argv[2] + '/made', 'w').write('x')
os.rename(sys.argv[2] + '/made', sys.argv[2] + '/moved')
import socket, threading, numpy, tempfile
socket.socketpair()
thread = threading.Thread(target=print, args=('done',))
thread.start(); thread.join()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    for name in ("read", "write", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "read" / "given").write_text("given", "utf-8")
    (tmp_path / "outside" / "secret").write_text("secret", "utf-8")
    return [str(tmp_path / name) for name in ("read", "write", "outside")]


def confined(code: str, folders: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START + code, *folders]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@cache
def kept() -> dict[str, str]:
    return confinement.effective_limits()


def needs(limit: str) -> None:
    if why := kept().get(limit, "unknown"):
        pytest.skip(why)


@pytest.mark.parametrize("name", TRIES)
def test_what_is_refused(name: str, folders: list[str]) -> None:
    code, limit = TRIES[name]
    needs(limit)
    ended = confined(code, folders)
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(("PermissionError", "MemoryError", "OSError: [Errno 27]")), last
    assert name != "core" or last == "MemoryError: (0, 0)"
    assert (Path(folders[0]) / "given").read_text("utf-8") == "given"


def test_what_engines_need_is_left(folders: list[str]) -> None:
    ended = confined(MAY, folders)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    assert (Path(folders[1]) / "moved").read_text("utf-8") == "x"


def test_every_limit_is_told() -> None:
    found = kept()
    assert set(found) == {"resources", "end with its parent", "files", "network", "memory"}
    assert not found["end with its parent"]


def test_a_system_without_them_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the mechanisms only those that change nothing here are called."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert landlock.apply([], []) == "only Linux has Landlock"
    assert seccomp.apply().startswith("no filter exists for darwin")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert landlock.apply([], []) == "this kernel has no Landlock"
