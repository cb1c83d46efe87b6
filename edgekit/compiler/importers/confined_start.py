"""Start of the child process that loads a framework's file: it gives up its rights before anything starts a
thread, which the kernel would leave out.

    python -m edgekit.compiler.importers.confined_start FOLDER

It may read its file, Python and the system's folders, and write to its own folder alone. A pickle that the
user trusts is the user's own program and keeps the rights of its parent.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edgekit.system.confinement import Bounds, confine


def main(folder: Path) -> None:
    """Confine this process, then serve requests of its parent."""
    request = json.loads((folder / "request.json").read_text("utf-8"))
    if not request["trust_pickle"]:
        confine(Bounds(None, None, reads=[request["path"]], writes=[str(folder)]))
    from edgekit.compiler.importers.child_process import answer_parent

    answer_parent(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
