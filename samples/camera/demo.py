"""The whole way in one run: fetch a face detector, package it for three engines, run it on a photograph.

python samples/camera/demo.py            # writes out/detector.edgekit and out/photo.jpg
"""

from __future__ import annotations

import os
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
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, e.g. head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
        sys.exit(1)
    except EdgeKitError as error:
        sys.exit(f"error: {error}")
