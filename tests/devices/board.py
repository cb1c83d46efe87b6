"""A device to be reached by ssh: sshd in a bare Debian, run as the current user on a port of loopback.

tests/devices/setup unpacks that Debian: sshd, a shell and Python, no pip and no package. Here it is entered
in a user namespace, with a new home folder and keys of its own. Emulated, its Python is one for ARM: only the
shell and sshd are this machine's.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.arm import emulated
from tests.fixtures.ports import unused_port

STARTS_S = 20.0


def folder() -> Path:
    """Where tests/devices/setup puts the Debian; it need not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("EDGEKIT_BOARD") or cache / "edgekit-board")


def present() -> bool:
    """Whether it is there, and ssh and namespaces are as well."""
    tools = all(shutil.which(name) for name in ("ssh", "ssh-keygen", "unshare"))
    return tools and (folder() / "usr" / "sbin" / "sshd").is_file()


class Board:
    """A running sshd.

    Attributes:
        address: As ``--device`` takes it.
        home: The device user's home folder, seen from here.
        ssh: The command that knows its host key and has the user's key: ``EDGEKIT_SSH``.
    """

    def __init__(self, folder: Path, *, arm: bool) -> None:
        self.home = folder / "home"
        self._folder = folder
        self._arm = arm
        self._process: subprocess.Popen[bytes] | None = None
        self.home.mkdir(parents=True)
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, capture_output=True)
        settings = self.home / ".sshd"
        settings.mkdir()
        for name in ("host_key", "user_key.pub"):
            shutil.copy(folder / name, settings / name)
        self.port = unused_port()
        (settings / "config").write_text(
            f"ListenAddress 127.0.0.1\nPort {self.port}\nHostKey /home/device/.sshd/host_key\n"
            "AuthorizedKeysFile /home/device/.sshd/user_key.pub\nPasswordAuthentication no\nStrictModes no\n"
            "UsePAM no\nPidFile none\nPrintMotd no\n",
            "utf-8",
        )
        self.address = f"device@127.0.0.1:{self.port}"
        self.known_hosts = folder / "known_hosts"
        public = (folder / "host_key.pub").read_text("utf-8")
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}", "utf-8")
        self.ssh = shlex.join(
            ["ssh", "-F", "none", "-i", str(folder / "user_key"), "-o", "IdentitiesOnly=yes"]
        )
        self.ssh += f" -o UserKnownHostsFile={self.known_hosts} -o GlobalKnownHostsFile=none"

    def start(self) -> None:
        """Begin to listen."""
        root = folder()
        mounts = [_mount(Path("/", name), root / name) for name in ("proc", "dev")]
        mounts.append(_mount(self.home, root / "home/device"))
        if self._arm:
            python = self._folder / "python"
            python.write_text(
                "#!/bin/sh\nexec /arm/qemu-aarch64-static -cpu cortex-a76 -L /arm/rootfs "
                '/arm/rootfs/usr/bin/python3.11 "$@"\n',
                "utf-8",
            )
            python.chmod(0o755)
            mounts.append(_mount(emulated.folder(), root / "arm"))
            mounts.append(_mount(python, root / "usr/bin/python3.11"))
        sshd = "/usr/sbin/sshd -D -e -f /home/device/.sshd/config"
        enter = f"exec unshare -U --map-user=1000 --map-group=1000 --root={shlex.quote(str(root))} {sshd}"
        self._log = (self._folder / "sshd.log").open("ab")
        self._process = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", " && ".join([*mounts, enter])],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        end = time.monotonic() + STARTS_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError((self._folder / "sshd.log").read_text("utf-8"))

    def cut(self) -> int:
        """Kill what serves the connections that are open now, as a lost network would; sshd stays."""
        assert self._process is not None
        children = _children(self._process.pid)
        for pid in children:
            subprocess.run(["kill", "-9", str(pid)], check=False)
        return len(children)

    def stop(self) -> None:
        """Stop listening, and end every connection."""
        if self._process is None:
            return
        for pid in (self._process.pid, *_children(self._process.pid)):
            subprocess.run(["kill", "-9", str(pid)], check=False, capture_output=True)
        self._process.wait()
        self._process = None
        self._log.close()


def _mount(what: Path, at: Path) -> str:
    return shlex.join(["mount", "--rbind", str(what), str(at)])


def _children(pid: int) -> list[int]:
    """The processes that sshd started, and theirs, the oldest first."""
    found: list[int] = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, each.read_text("utf-8").split()):
            found += [child, *_children(child)]
    return found


@contextmanager
def board(folder: Path, *, arm: bool = False) -> Iterator[Board]:
    """A board that listens, with nothing in its home folder but sshd's settings."""
    made = Board(folder, arm=arm)
    made.start()
    try:
        yield made
    finally:
        made.stop()
