"""Child process: ``python -m edgekit_qnn.write_context MODEL ARCH CONTEXT`` compiles a model into a context.

Its bytes depend on what the process compiled before (seen on onnxruntime-qnn 2.7.0), so each gets a new one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgekit.errors import EdgeKitError
from edgekit_qnn.run import open_session

if __name__ == "__main__":
    model, arch, context = sys.argv[1:]
    try:
        open_session(Path(model).read_bytes(), arch, context=Path(context))
    except EdgeKitError as problem:
        sys.exit(f"refused: {problem}")
