"""How the child begins: it gives up its rights before it imports anything that starts a thread.

    python -m edgekit.containment.confined_start

The kernel confines threads, not processes; those that are started later inherit it.
"""

from __future__ import annotations

import pickle
import sys

from edgekit.system.confinement import Bounds, confine


def main() -> None:
    """Take the first message of the parent, which is trusted, and go on with the second."""
    search_path, bounds = pickle.load(sys.stdin.buffer)
    sys.path[:] = search_path
    confine(Bounds(*bounds))
    from edgekit.containment.child_main import answer

    answer(sys.stdin.buffer)


if __name__ == "__main__":
    main()
