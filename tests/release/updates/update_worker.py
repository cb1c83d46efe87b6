"""One `edgekit store update` without the command line, to be killed.

python update_worker.py STORE URL ROOT
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgekit.errors import EdgeKitError
from edgekit.release.updates.http_files import HttpFiles
from edgekit.release.updates.update import update
from edgekit.runtime.store.bundle_store import Store

if __name__ == "__main__":
    store, url, root = sys.argv[1:]
    try:
        print(
            update(Store(store, None), HttpFiles(url), "stable", root=Path(root), device="camera-7").outcome
        )
    except (EdgeKitError, OSError) as problem:
        print(problem)
        sys.exit(3)
