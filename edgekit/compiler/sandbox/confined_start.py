"""Start of the child process: it drops its rights before it imports anything that starts a thread.

    python -m edgekit.compiler.sandbox.confined_start

The kernel confines threads, not processes; threads that are started later inherit the confinement.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
from typing import Any

from edgekit.system.confinement import STARVED_CODE, Bounds, confine


def main() -> None:
    """Take the first message of the parent, which is trusted, and go on with the second."""
    sys.unraisablehook = threading.excepthook = _end_if_starved
    gc.disable()  # until what the request needs is imported: a module holds almost nothing that is unused
    try:
        search_path, bounds = pickle.load(sys.stdin.buffer)
        sys.path[:] = search_path
        confine(Bounds(*bounds))
        from edgekit.compiler.sandbox.child_main import answer

        answer(sys.stdin.buffer)
    except MemoryError:
        os._exit(STARVED_CODE)


def _end_if_starved(unhandled: Any) -> None:
    """Handle an exception of a thread or finalizer: print it, but exit if a memory allocation failed."""
    if issubclass(unhandled.exc_type, MemoryError):
        os._exit(STARVED_CODE)
    sys.excepthook(unhandled.exc_type, unhandled.exc_value, unhandled.exc_traceback)


if __name__ == "__main__":
    main()
