"""Names, types and shapes of an .mlpackage, read from its specification without coremltools."""

from __future__ import annotations

import json
from pathlib import Path

from edgekit.errors import EngineError, ModelError
from edgekit.target.contract import ExportedFile
from edgekit.tensor_spec import TensorSpec
from edgekit_coreml.interpreter.program import Type, find_in_package, mapping, message, read_package, text
from edgekit_coreml.run import PACKAGE

DESCRIPTION, METADATA, USER_DEFINED = 2, 100, 100
"""Field numbers of Model.proto."""


def read_exported(path: Path) -> ExportedFile:
    """Read the inputs and outputs of an ML program. A package of EdgeKit has the source model's names.

    Raises:
        ModelError: it is damaged, or not an ML program of static shapes.
    """
    try:
        specification, weights = find_in_package(path / "Manifest.json")
        program = read_package(specification, weights)
        names = _source_names(specification.read_bytes())
    except (EngineError, OSError, LookupError, ValueError) as problem:
        raise ModelError(f"{path} can't be evaluated: {problem}; export it again as an ML program") from None
    types = {**program.inputs, **{name: kind for op in program.ops for name, kind in op.outputs}}
    inputs = {name: types[name] for name in program.inputs}
    outputs = {name: types[name] for name in program.outputs}
    files = {
        f"{PACKAGE}/{file.relative_to(path).as_posix()}": file for file in path.rglob("*") if file.is_file()
    }
    described = {
        key: [
            {"name": names.get(mil, mil), "mil": mil, "dtype": kind.dtype, "shape": list(kind.shape)}
            for mil, kind in values.items()
        ]
        for key, values in (("inputs", inputs), ("outputs", outputs))
    }
    return ExportedFile(files, _specs(inputs, names), _specs(outputs, names), described)


def _source_names(specification: bytes) -> dict[str, str]:
    """Return MIL name -> name in the source model, as a package of EdgeKit has them."""
    metadata = message(message(message(specification)[DESCRIPTION][-1]).get(METADATA, [b""])[-1])
    stored = mapping(metadata.get(USER_DEFINED, [])).get("edgekit.names")
    return dict(json.loads(text(stored))) if stored is not None else {}


def _specs(values: dict[str, Type], names: dict[str, str]) -> list[TensorSpec]:
    return [TensorSpec(names.get(mil, mil), kind.dtype, kind.shape) for mil, kind in values.items()]
