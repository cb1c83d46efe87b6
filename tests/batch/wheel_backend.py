"""A build backend without packages: it makes a wheel that calls itself onnx 0.0.1 and holds no
module: only its version is seen."""

from __future__ import annotations

import zipfile
from pathlib import Path

INFO = "onnx-0.0.1.dist-info"


def build_wheel(folder: str, config_settings: object = None, metadata_directory: object = None) -> str:
    name = "onnx-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder, name), "w") as wheel:
        wheel.writestr(f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: onnx\nVersion: 0.0.1\n")
        wheel.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{INFO}/RECORD", "")
    return name
