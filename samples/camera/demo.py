"""Run the whole sample: download a detector, build a bundle for the engines here, and serve a live page.

python samples/camera/demo.py                    # persons in a street; the page is on http://127.0.0.1:8787
python samples/camera/demo.py 0                  # a webcam; also a video, a folder or rtsp://...
python samples/camera/demo.py --detector face 0
python samples/camera/demo.py --once             # one photo: writes out/detector.edgekit and out/photo.jpg

Without a terminal, or if CI is set, nobody could stop the server, so the demo processes the photo instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import app
import cv2
import package
from fetch import street_video

from edgekit.errors import EdgeKitError

PHOTO = Path(__file__).resolve().parent / "photo.jpg"
OUT = Path("out")
SEARCH_S = "15"
SAMPLES = 18
"""Number of frames for the calibration of int8; a third of them is held out."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo until Ctrl-C, or on one photo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", help="a video, a folder, a webcam's number or an RTSP address")
    parser.add_argument("--detector", choices=sorted(package.DETECTORS), default="person")
    parser.add_argument("--bundle", type=Path, help="use this bundle of package.py instead of building one")
    parser.add_argument("--once", action="store_true", help="process one photo instead of serving a page")
    parser.add_argument("--port", default="8787")
    options = parser.parse_args(arguments)
    if options.once or not has_terminal():
        once()
    else:
        live(options.source, options.detector, options.bundle, options.port)


def has_terminal() -> bool:
    """Return whether a user can look at the page and stop the server."""
    if os.environ.get("CI") or not os.environ.get("TERM"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def once() -> None:
    """Detect the face in a photo."""
    bundle = package.main(["--detector", "face", "--precision", "fp32", "--samples", str(PHOTO)])
    print()
    app.main([str(bundle), str(PHOTO), "-o", "out/photo.jpg"])


def live(source: str | None, detector: str, bundle: Path | None, port: str) -> None:
    """Serve the page until Ctrl-C. Use an existing bundle, or build one."""
    import watch  # here: only the page needs a server

    video = street_video() if source is None or bundle is None else None
    built = bundle or OUT / f"{detector}.edgekit"
    if bundle is None and not built.exists():
        assert video is not None
        with tempfile.TemporaryDirectory() as folder:
            write_samples(video, Path(folder))
            search = ["--precision", "int8", "--seconds", SEARCH_S]  # package.py alone tries more
            package.main(["--detector", detector, "--samples", folder, *search, "-o", str(built)])
        print()
    watch.main([str(built), source or str(video), "--port", port])


def write_samples(video: Path, folder: Path) -> None:
    """Write evenly spread frames of a video as PNG files."""
    capture = cv2.VideoCapture(str(video))
    count = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    for number in range(SAMPLES):
        capture.set(cv2.CAP_PROP_POS_FRAMES, number * count // SAMPLES)
        there, frame = capture.read()
        if there:
            cv2.imwrite(str(folder / f"{number:02}.png"), frame)
    capture.release()


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
        os._exit(0)  # all is closed; a thread in a hanging engine would keep the interpreter from ending
    except BrokenPipeError:  # the reader of the output, e.g. head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
        sys.exit(1)
    except EdgeKitError as error:
        sys.exit(f"error: {error}")
