"""Start of the child process that loads a framework's file: it gives up its rights before anything starts a
thread, which the kernel would leave out.

It may read its file, Python and the system's folders, and write to its own folder alone. A pickle that the
user trusts is the user's own program and keeps the rights of its parent.
"""

from __future__ import annotations

import json
import os
import sys

from edgekit.system.confinement import Bounds, confine

OWN_FOLDERS = ("TMPDIR", "KERAS_HOME")
"""Environment variables of folders that frameworks write to."""


def main() -> None:
    """Read the first line, confine this process, then serve requests of its parent."""
    line, folder = sys.stdin.readline(), os.getcwd()
    if not line:
        return
    request = json.loads(line)
    os.environ.update(dict.fromkeys(OWN_FOLDERS, folder))
    if not request["trust_pickle"]:
        confine(Bounds(None, None, reads=[request["path"]], writes=[folder]))
    from edgekit.compiler.importers.child_process import answer_parent

    answer_parent(request, folder)


if __name__ == "__main__":
    main()
