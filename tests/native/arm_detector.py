"""The detector of samples/native for aarch64: libedgekit as a shared library, with ONNX Runtime, under qemu.

    python -m tests.native.arm_detector SHARED qemu-aarch64 ROOT libonnxruntime.so.1.32.0

ROOT is a folder with aarch64's glibc and libstdc++ (lib, usr/lib); the library of ONNX Runtime is that of its
aarch64 wheel. The lines of the program are compared with what Python answers here. qemu 7.2 crashes in ONNX
Runtime; 10.0 runs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from edgekit.native import build
from edgekit.runtime import Session
from tests.native.models import yolox_bundle
from tests.web.host import first_photograph

TARGET = "aarch64-linux-gnu.2.17"
DETECTOR = Path(__file__).resolve().parents[2] / "samples" / "native" / "detect.c"


def compile_detector(folder: Path) -> Path:
    """Compile the library and the detector by zig, into a folder."""
    library, program = build.compile_library(folder, target=TARGET), folder / "detect"
    command = [*build.compiler_command(), "-target", TARGET, "-x", "c", "-std=c99", str(DETECTOR)]
    command += ["-x", "none", f"-I{build.INCLUDE}", str(library), "-o", str(program)]
    subprocess.run(command, check=True, timeout=300)
    return program


def main(shared: Path, emulator: str, root: Path, ort: Path) -> None:
    """Print the program's lines. Raises AssertionError if Python answers otherwise."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundle, frame = yolox_bundle(shared).save(folder / "yolox.edgekit"), first_photograph(shared)
        Image.fromarray(frame).save(folder / "photo.ppm")
        with Session(bundle, threads=1) as session:
            items = session.predict(frame)
        rows = zip([one.label for one in items], items.scores, np.asarray(items.boxes), strict=True)
        expected = [f"{label} {score:.3f} " + " ".join(f"{x:.0f}" for x in box) for label, score, box in rows]
        command = [emulator, "-L", str(root), "-E", f"LD_LIBRARY_PATH={folder}"]
        command += map(str, [compile_detector(folder), bundle, ort, folder / "photo.ppm"])
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    print(done.stdout, end="")
    assert len(expected) > 3
    assert done.stdout.splitlines() == expected


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
