"""The build of a rebuild in another Python: ``python -m edgekit.batch.build_elsewhere``.

The request is JSON on stdin: the old bundle, the arguments, and where the new one goes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edgekit.batch.rebuild import build_here
from edgekit.errors import EdgeKitError


def main() -> int:
    request = json.load(sys.stdin)
    try:
        build_here(Path(request["bundle"]), request["arguments"]).save(request["output"])
    except (EdgeKitError, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
