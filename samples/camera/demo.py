"""The whole way in one run: fetch a face detector, package it for three engines, run it on a photograph.

python samples/camera/demo.py            # writes out/detector.edgekit and out/photo.jpg
"""

from __future__ import annotations

import sys
from pathlib import Path

import app
import package

from edgekit.errors import EdgeKitError

PHOTO = Path(__file__).resolve().parent / "photo.jpg"


def main() -> None:
    bundle = package.main(["--samples", str(PHOTO)])
    print()
    app.main([str(bundle), str(PHOTO), "-o", "out/photo.jpg"])


if __name__ == "__main__":
    try:
        main()
    except EdgeKitError as error:
        sys.exit(f"error: {error}")
