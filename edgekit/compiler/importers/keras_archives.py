"""Checks of Keras archives, run before Keras loads them.

A configuration names classes and functions by module, which Keras imports: Lambda layers hold compiled
Python, some versions call any function of any module (CVE-2025-1550), TFSMLayer and TorchModuleWrapper load
programs of other formats, lookups read files. HDF5 reads other files by links and external storage. Keras
rejects more of these with each version; this module always rejects them all. Checked with Keras 3.15.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit.compiler.importers.zip_members import INFLATED_BYTES, INFLATED_TIMES, Members, open_members
from edgekit.errors import ModelError
from edgekit.system.formats.strict_json import brief

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
PACKAGES = (
    "activations", "constraints", "dtype_policies", "initializers", "layers", "losses", "metrics", "models",
    "ops", "optimizers", "quantizers", "random", "regularizers", "trainers",
)  # fmt: skip
"""Of ``keras`` and ``keras.src``: what models are made of."""
OTHER_PACKAGES = ("keras_hub", "keras_cv", "keras_nlp")
CODE_CLASSES = ("Lambda", "__lambda__")
FOREIGN_CLASSES = ("TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
OBJECTS_LIMIT = 1_000_000


def check_keras(path: Path) -> None:
    """Check the imports and files that a ``.keras`` file would make Keras load.

    Raises:
        ModelError: it names anything other than Keras layers, or reads other files.
    """
    with open_members(path) as members:
        for name in members.by_name:
            if name.startswith("/") or ".." in name.split("/") or "\\" in name:
                raise ModelError(
                    f"{path.name}: the archive has a member named {brief(name)}; save the model again"
                )
        try:
            config = json.loads(members.read(CONFIG))
        except (ValueError, RecursionError) as problem:
            raise ModelError(
                f"{path.name}: {CONFIG} is not valid JSON: {problem}; save the model again"
            ) from None
        _check_config(path, config)


def check_weights(path: Path) -> None:
    """Check the HDF5 file of a ``.keras`` file, with h5py, which Keras needs too.

    Raises:
        ModelError: it reads other files, or is small and describes large arrays.
    """
    import h5py

    with open_members(path) as members:
        if WEIGHTS not in members.by_name:
            return
        try:
            with members.archive.open(members.by_name[WEIGHTS]) as stream, h5py.File(stream, "r") as file:
                _check_objects(members, h5py, file)
        except (OSError, ValueError, KeyError) as problem:
            raise ModelError(f"{path.name}: {WEIGHTS} is damaged: {problem}; save the model again") from None


def _check_config(path: Path, config: Any) -> None:
    pending = [config]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        if not isinstance(value, dict):
            continue
        pending += value.values()
        name, module = value.get("class_name"), value.get("module")
        if name in CODE_CLASSES:
            raise ModelError(
                f"{path.name}: contains Python code (a Lambda layer), which runs when the file is loaded; "
                "load it yourself, and pass the model from Python: edgekit.build(model, targets=[...])"
            )
        if name in FOREIGN_CLASSES:
            raise ModelError(
                f"{path.name}: has a {name} layer, which loads a model of another framework; import "
                "that model instead"
            )
        if isinstance(name, str) and module is not None and not _is_known(module):
            raise ModelError(
                f"{path.name}: {brief(f'{module}.{name}')} is not a Keras layer; if the model has custom "
                "layers, pass it from Python, where they are defined: edgekit.build(model, targets=[...])"
            )
        if isinstance(value.get("vocabulary"), str):
            raise ModelError(
                f"{path.name}: a layer reads its vocabulary from the file {brief(value['vocabulary'])}; set "
                "it to a list, and save the model again"
            )


def _is_known(module: object) -> bool:
    parts = str(module).split(".")
    if parts[0] == "keras":
        inner = parts[2:] if parts[1:2] == ["src"] else parts[1:]
        return not inner or inner[0] in PACKAGES
    return parts == ["builtins"] or parts[0] in OTHER_PACKAGES


def _check_objects(members: Members, h5py: Any, file: Any) -> None:
    name, size, count = members.path.name, 0, 0
    limit = INFLATED_TIMES * members.by_name[WEIGHTS].file_size + INFLATED_BYTES
    pending = [file]
    while pending:
        group = pending.pop()
        for key in group:
            count += 1
            if count > OBJECTS_LIMIT:
                raise ModelError(f"{name}: {WEIGHTS} has more than {OBJECTS_LIMIT} objects")
            if isinstance(group.get(key, getlink=True), h5py.SoftLink | h5py.ExternalLink):
                raise ModelError(f"{name}: {WEIGHTS} has a link, {brief(key)}; save the model again")
            entry = group[key]
            if isinstance(entry, h5py.Group):
                pending.append(entry)
            elif isinstance(entry, h5py.Dataset):
                if entry.external or entry.is_virtual:
                    raise ModelError(
                        f"{name}: {WEIGHTS} reads another file for {brief(key)}; save the model again"
                    )
                size += entry.nbytes
                if size > limit:
                    raise ModelError(
                        f"{name}: the arrays in {WEIGHTS} have {size} bytes; a file of this size may have "
                        f"{limit}; save the model again without compression"
                    )
