"""Importer of .tflite files: a TFLite model in, an ONNX model out.

It imports no TensorFlow: the file is checked and read with the same schema that the compiler writes with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer, ImportOptions
from edgekit.tensor_spec import Array

IDENTIFIER = b"TFL3"


def recognize(head: bytes, path: Path) -> bool:
    """Recognize a .tflite file by the flatbuffer's identifier."""
    return head[4:8] == IDENTIFIER


def to_onnx(path: Path, options: ImportOptions) -> Converted:
    """Convert a .tflite file to ONNX.

    Raises:
        ModelError: the file is damaged, or holds an op that cannot be expressed in ONNX.
    """
    from edgekit_tflite.importer.convert import convert_file

    return convert_file(path, options)


def answers(path: Path, samples: Sequence[Mapping[str, Array]]) -> FrameworkOutputs:
    """Run the samples on LiteRT and return its outputs.

    Raises:
        MissingDependency: LiteRT is not installed.
        EngineError: LiteRT refuses the file, or crashed on it.
    """
    from edgekit_tflite.importer.original import run_original

    return run_original(path, samples)


IMPORTER = Importer("TFLite", (".tflite",), recognize, to_onnx, ("flatbuffers",), answers=answers)
