"""A program in the place of ssh, which runs the command on this machine: the whole path but for the network.

The device's Python is the one that runs the tests, with its packages; its home is a new folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def local_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, before: str = "") -> Path:
    """Make it and name it in ``EDGEKIT_SSH``.

    Args:
        folder: For the program, and for ``home``, which is the device's.
        monkeypatch: Of the test.
        before: Shell that the program runs first, e.g. to fail once; ``$command`` is the device's command.

    Returns:
        The device's folder of EdgeKit; it need not exist.
    """
    home, programs = folder / "home", folder / "programs"
    home.mkdir()
    programs.mkdir()
    python = programs / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', "utf-8")
    python.chmod(0o755)
    program = folder / "ssh"
    program.write_text(
        f"#!/bin/sh\nfor command; do :; done\ncd {folder}\n{before}\n"
        f'exec env HOME={home} PATH="{programs}:$PATH" sh -c "$command"\n',
        "utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("EDGEKIT_SSH", str(program))
    return home / ".cache" / "edgekit-device"
