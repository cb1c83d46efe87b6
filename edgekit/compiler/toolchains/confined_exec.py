"""Start of a toolchain's process: EdgeKit's Python drops its rights, and executes the toolchain's Python.

    python -m edgekit.compiler.toolchains.confined_exec

The bounds and the command are read from stdin, in one line. The bounds hold for the executed program and all
processes that it starts. Its stdin stays the parent's.
"""

from __future__ import annotations

import json
import os
import sys

from edgekit.system.confinement import Bounds, confine


def main() -> None:
    """Read the line byte by byte: the rest of stdin is for the next program."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
    request = json.loads(line)
    confine(Bounds(*request["bounds"]))
    os.execve(request["command"][0], request["command"], request["environment"])


if __name__ == "__main__":
    main()
    sys.exit(1)
