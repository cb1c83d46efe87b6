"""Files of a Hugging Face folder: which model it holds, and the reading of its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgekit.compiler.model.model_kinds import model_kinds
from edgekit.errors import ModelError
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import followed, open_regular, read_plain
from edgekit.tensor_spec import Json

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
ONNX_FOLDER = "onnx/"
JSON_LIMIT_BYTES = 4 << 20


def onnx_in_folder(folder: Path) -> Path | None:
    """Return the ONNX file of a Hugging Face folder whose weights EdgeKit does not read itself:
    ``model.onnx`` or the only one, in the folder or its folder ``onnx``. Never raises."""
    try:
        if not model_type(folder) or is_read(folder, any(folder.glob("model*.safetensors*"))):
            return None
        paths = [*folder.glob("*.onnx"), *(folder / ONNX_FOLDER).glob("*.onnx")]
        name = preferred_onnx(path.relative_to(folder).as_posix() for path in paths)
        return folder / name if name else None
    except OSError:
        return None


def is_read(folder: Path, has_weights: bool) -> bool:
    """Return whether a kind of model is read from the folder itself, not from an ONNX file in it.

    Args:
        folder: Has ``config.json``.
        has_weights: Whether it has, or will have, weights in safetensors.
    """
    return any(kind.reads_folder(folder, has_weights) for kind in model_kinds())


def model_type(folder: Path) -> str:
    """Return ``model_type`` in a folder's ``config.json``; "" without one. Never raises."""
    return str(config_of(folder).get("model_type") or "")


def config_of(folder: Path) -> dict[str, Any]:
    """Return a folder's ``config.json``; {} if there is none that can be read. Never raises."""
    try:
        path = followed(folder / "config.json")
        with open_regular(path, follow_links=False) as file:
            config = json.loads(file.read(JSON_LIMIT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def read_json(path: Path, needed: bool = True) -> dict[str, Json]:
    """Read a JSON object of a model's folder; {} if it is absent and not needed."""
    if not needed and not path.exists():
        return {}
    try:
        content = strict_json.decode(read_part(path, JSON_LIMIT_BYTES), path.name, JSON_LIMIT_BYTES)
    except JsonError as problem:
        raise ModelError(f"{path.parent}: {problem}; download it again") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: is not a JSON object; download it again")
    return content


def read_part(path: Path, limit_bytes: int) -> bytes:
    try:
        return read_plain(followed(path), limit_bytes, follow_links=False)
    except FileNotFoundError:
        raise ModelError(f"{path.parent}: has no {path.name}, which a language model needs") from None
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None


def preferred_onnx(names: Iterable[str]) -> str:
    """Return the ONNX file to take of a folder's files: ``model.onnx`` or the only one, in the folder or its
    folder ``onnx``; "" if there is no such file.

    >>> preferred_onnx(["onnx/model.onnx", "onnx/model_fp16.onnx"]), preferred_onnx(["a.onnx", "b.onnx"])
    ('onnx/model.onnx', '')
    """
    onnx_names = sorted(name for name in names if name.endswith(".onnx"))
    for place in ("", ONNX_FOLDER):
        siblings = [name for name in onnx_names if name.rpartition("/")[0] == place.rstrip("/")]
        candidates = [name for name in siblings if name == f"{place}model.onnx"] or siblings
        if len(candidates) == 1:
            return candidates[0]
    return ""
