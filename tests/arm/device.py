"""The device: opens each bundle of a folder, runs it once on the engine that its name has, says what ran.

``best`` in the place of an engine: on the one that a Session takes.

Run by a Python for aarch64; needs what a device has, edgekit.runtime and the engines. For NAME.ENGINE.edgekit
the inputs are NAME.npz and the answers go to NAME.ENGINE.answers.npz. One line of JSON a bundle.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import numpy as np

from edgekit.runtime import Session


def main(folder: Path) -> None:
    for path in sorted(folder.glob("*.edgekit")):
        name, engine, _ = path.name.rsplit(".", 2)
        asked = None if engine == "best" else engine
        with np.load(folder / f"{name}.npz") as feeds, Session(path, engine=asked, strict=True) as session:
            answers = session.run(dict(feeds))
            np.savez(folder / f"{name}.{engine}.answers.npz", **answers)  # type: ignore[arg-type]
            active = session.active
        row = {
            "bundle": path.name,
            "machine": platform.machine(),
            "variant": active.variant,
            "engine": active.engine,
            "precision": active.precision,
            "device_side": "onnx" not in sys.modules and "click" not in sys.modules,
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
