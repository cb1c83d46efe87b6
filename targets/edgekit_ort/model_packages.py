"""ONNX Runtime's model packages, read and written (edgekit/target/model_packages.py)."""

from __future__ import annotations

from edgekit_ort.package_reader import has_digests, is_package, read_package
from edgekit_ort.package_writer import write_package

__all__ = ["has_digests", "is_package", "read_package", "write_package"]
