"""The op cases there and back: ONNX -> our .tflite -> our importer -> ONNX Runtime.

python -m tests.conformance.read_back [FAMILY]...
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from edgekit_tflite.compile import FILE, compile_model
from edgekit_tflite.importer.convert import convert

from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.model.onnx_file import open_bytes, signature
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EdgeKitError, ModelError, UnsupportedError
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.conformance.expectations import read_expected
from tests.conformance.grid import CASES, FAMILIES, Outcome, judge, prepare

REFUSED = "not written"
"""The detail of a case that has no form in TFLite."""


def read_back(key: str, folder: Path) -> Outcome:
    """Write a case as .tflite, read it back, and compare its answers with the case's own.

    TFLite holds ONNX's int64 as int32 and float16 as float32: what is fed and answered is converted.

    Raises:
        ModelError: the file can't be read back.
    """
    prepared = prepare(key, folder)
    try:
        artifact = compile_model(prepared.canonical, find_profile("tflite"), "fp32")
    except UnsupportedError:
        return Outcome("refused", REFUSED)
    converted = convert(bytes(artifact.files[FILE]), ImportOptions())
    # A 0 in a file may stand for any size: an input without an element says that it means it.
    empty = {spec.name: spec.shape for spec in prepared.inputs if 0 in spec.shape}
    model = open_bytes(converted.onnx, "back.onnx", empty)
    inputs, outputs = signature(model)
    reference = Reference(model)
    answers = []
    for feeds in prepared.feeds:
        found = reference.run({spec.name: _as(feeds[spec.name], spec.dtype) for spec in inputs})
        assert [spec.name for spec in outputs] == [spec.name for spec in prepared.outputs]
        answers.append({spec.name: _as(found[spec.name], spec.dtype) for spec in prepared.outputs})
    return judge(CASES[key], prepared.expected, answers)


def _as(array: Array, dtype: str) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(np.dtype(dtype))


def main(families: list[str]) -> None:
    """Print how many of the cases that TFLite has a form of are read back right, and why others are not."""
    expected = read_expected()["tflite"]
    counts: Counter[str] = Counter()
    for family in families or FAMILIES:
        for key in (f"{family}/{case.name}" for case in FAMILIES[family]):
            if expected.of(key).kind != "pass":
                continue
            kind: str
            with tempfile.TemporaryDirectory() as folder:
                try:
                    outcome = read_back(key, Path(folder))
                    kind, detail = outcome.kind, outcome.detail
                except ModelError as problem:
                    kind, detail = "not read", str(problem)
                except EdgeKitError as problem:
                    kind, detail = "not run", str(problem)
            counts[kind] += 1
            if kind != "pass":
                print(f"{key}: {kind}: {detail[:300]}")
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
