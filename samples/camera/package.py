"""Host side: build a bundle of a detector for each engine that is installed, with its card.

python samples/camera/package.py                                        # persons, fetched once
python samples/camera/package.py --detector face --precision fp32
python samples/camera/package.py --model yolox_nano.onnx --card samples/cards/yolox_nano.toml
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fetch import face_detector, person_detector

import edgekit
from edgekit.cli import terminal
from edgekit.cli.bundle_text import built_text

CARDS = Path(__file__).resolve().parents[1] / "cards"
TARGETS = ("ort", "tflite", *(["openvino"] if find_spec("openvino") else []))
"""OpenVINO, the largest engine by far (180 MB), where it is installed."""
DETECTORS = {
    "person": (person_detector, CARDS / "pedestrian_ssdlite.toml"),
    "face": (face_detector, CARDS / "centerface.toml"),
}
SEARCHED = ("auto", "int8")
SEARCH_S = 30.0
"""What the search for int8 may take, for all targets together, unless --seconds says otherwise."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Build the bundle, print what to use, and give its path."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--detector", choices=sorted(DETECTORS), default="person", help="default: person")
    parser.add_argument("--model", type=Path, help="an .onnx file instead")
    parser.add_argument("--card", type=Path, help="its card.toml")
    parser.add_argument("--samples", help="images to verify and calibrate with; default: random inputs")
    parser.add_argument("--precision", help="default: auto where there are samples, else fp32")
    parser.add_argument("--seconds", type=float, default=SEARCH_S, help="for int8's search; default: 30")
    parser.add_argument("-t", "--target", action="append", help=f"repeatable; default: {', '.join(TARGETS)}")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/detector.edgekit"))
    options = parser.parse_args(arguments)
    if (options.model is None) != (options.card is None):
        parser.error("--model and --card go together: a detector's outputs mean nothing without its card")
    began_s = time.monotonic()
    precision = options.precision or ("auto" if options.samples else "fp32")
    fetched, card = DETECTORS[options.detector]
    bundle = edgekit.build(
        options.model or fetched(),
        targets=options.target or TARGETS,
        precision=precision,
        samples=options.samples,
        card=options.card or card,
        time_budget=options.seconds if precision in SEARCHED else None,
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    bundle.save(options.output)
    text = built_text(bundle, options.output, time.monotonic() - began_s, quiet=True, verbose=False)
    terminal.answer(False, {}, text)
    path: Path = options.output
    return path


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, e.g. head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
        sys.exit(1)
    except edgekit.EdgeKitError as error:
        sys.exit(f"error: {error}")
