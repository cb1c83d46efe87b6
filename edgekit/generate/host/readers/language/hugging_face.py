"""A language model out of a Hugging Face folder: ``config.json``, safetensors, ``tokenizer.json``.

Names and rules are those of transformers' ``modeling_*.py`` and ``modeling_rope_utils.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.model.hugging_face_folder import INDEX, WEIGHTS, read_json, read_part
from edgekit.compiler.model.model_bytes import file_digest
from edgekit.errors import ModelError
from edgekit.generate.host.readers.folder_fields import entries, number, text
from edgekit.generate.host.readers.language.hugging_face_config import decoder_config
from edgekit.generate.host.readers.language.language_model import (
    STOP_TOKENS,
    DecoderConfig,
    LanguageModel,
    check_sizes,
    fused_rows,
)
from edgekit.generate.host.readers.language.safetensors_file import SafetensorsFile, open_safetensors
from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES
from edgekit.tensor_spec import Array, Json

TEMPLATE_LIMIT_BYTES = 1 << 20
SHARDS_LIMIT = 256


def is_hugging_face(folder: Path) -> bool:
    """Return whether a folder holds a model in safetensors. Never raises."""
    try:
        names = (WEIGHTS, INDEX)
        return (folder / "config.json").is_file() and any((folder / name).is_file() for name in names)
    except (OSError, ValueError):
        return False


def open_hugging_face(folder: Path) -> LanguageModel:
    """Open a folder for which ``is_hugging_face`` is true.

    Raises:
        ModelError: something is damaged, of another architecture, or missing.
    """
    config_json = read_json(folder / "config.json")
    shards = tensor_files(folder)
    config = decoder_config(config_json, folder, "lm_head.weight" in shards)
    check_sizes(config, str(folder))
    places = _places(folder, shards, config)
    tokenizer = read_part(folder / "tokenizer.json", TOKENIZER_LIMIT_BYTES)
    settings = read_json(folder / "tokenizer_config.json", needed=False)
    vocabulary = _special_tokens(folder, tokenizer)
    stop_ids = _stop_ids(folder, config_json, settings, vocabulary, config.vocabulary)

    def read(name: str) -> Array:
        place, rows = places[name]
        values = shards[place].read(place)[rows]
        # Gemma's norms multiply by 1 + weight.
        return values + np.float32(1) if config.output_norms and name.endswith("norm.weight") else values

    return LanguageModel(
        title_of(config_json, folder, "model"),
        config, tokenizer, _chat_template(folder, settings), stop_ids, _bos_id(tokenizer, vocabulary),
        "Hugging Face", "", folder_digest(folder, shards), read,
    )  # fmt: skip


def title_of(config_json: Mapping[str, Json], folder: Path, default: str) -> str:
    """Return the name of a model: by its ``config.json``, its folder, or a default."""
    return str(config_json.get("_name_or_path") or "") or folder.name or default


def tensor_files(folder: Path) -> dict[str, SafetensorsFile]:
    """Return the name of every tensor -> its file."""
    if (folder / WEIGHTS).is_file():
        file = open_safetensors(folder / WEIGHTS)
        return dict.fromkeys(file.tensors, file)
    index = read_json(folder / INDEX).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise ModelError(f"{folder / INDEX}: has no weight_map of file names; download it again")
    names = sorted(set(index.values()))
    if len(names) > SHARDS_LIMIT:
        raise ModelError(f"{folder / INDEX}: names {len(names)} files; at most {SHARDS_LIMIT} are supported")
    odd = next((name for name in names if Path(name).name != name or "\\" in name or "\0" in name), None)
    if odd is not None:
        raise ModelError(f"{folder / INDEX}: names {odd[:60]!r}, which is not a file in its folder")
    files = {name: open_safetensors(folder / name) for name in names}
    for tensor, name in index.items():
        if tensor not in files[name].tensors:
            raise ModelError(
                f"{folder / name}: has no tensor {tensor[:80]}, although {INDEX} lists it; download it again"
            )
    return {tensor: files[name] for tensor, name in index.items()}


def check_weights(
    shapes: Mapping[str, tuple[int, ...]], files: Mapping[str, SafetensorsFile], folder: Path, family: str,
    longer: str = "",
) -> None:  # fmt: skip
    """Check that every weight is there in its shape.

    Args:
        shapes: Shape of each weight by its name in the files.
        files: Name of every tensor -> its file.
        longer: End of the names of tables that may have further rows; "": none.

    Raises:
        ModelError: a weight is absent or has another shape.
    """
    for name, shape in shapes.items():
        if name not in files:
            raise ModelError(f"{folder}: has no weight {name}, which {family} models of its config.json need")
        actual = files[name].tensors[name].shape
        is_longer = longer and name.endswith(longer) and actual[1:] == shape[1:] and actual[0] > shape[0]
        if actual != shape and not is_longer:
            raise ModelError(f"{folder}: weight {name} is {list(actual)}; config.json requires {list(shape)}")


def _places(
    folder: Path, shards: Mapping[str, SafetensorsFile], config: DecoderConfig
) -> dict[str, tuple[str, slice]]:
    """Return the tensor and rows of every weight. Check that all are present and have the right shapes."""
    places, shapes = dict[str, tuple[str, slice]](), dict[str, tuple[int, ...]]()
    for name, shape in config.weight_shapes().items():
        prefix, part = name.rsplit(".", 2)[0], name.rsplit(".", 2)[-2]
        fused, rows, count = fused_rows(config, part)
        place, whole = (f"{prefix}.{fused}_proj.weight", (count, *shape[1:])) if fused else (name, shape)
        places[name], shapes[place] = (place, rows), whole
    check_weights(shapes, shards, folder, config.architecture)
    return places


def _special_tokens(folder: Path, tokenizer: bytes) -> dict[str, int]:
    """Return text -> id of the tokens that ``tokenizer.json`` adds. Check that it is a tokenizer file."""
    path = folder / "tokenizer.json"
    try:
        table = json.loads(tokenizer)
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: is not valid JSON; download it again") from None
    if not isinstance(table, dict) or not isinstance(table.get("model"), dict):
        raise ModelError(f'{path}: is not a tokenizer.json: it has no "model"')
    return {
        text(entry, "content", folder, file=path.name): number(entry, "id", folder, file=path.name)
        for entry in entries(table, "added_tokens", folder, path.name)
    }


def _bos_id(tokenizer: bytes, special: Mapping[str, int]) -> int | None:
    """Return the token that the tokenizer's template puts before a text, or None."""
    post = json.loads(tokenizer).get("post_processor")
    steps = post.get("processors") if isinstance(post, dict) and post.get("type") == "Sequence" else [post]
    for step in steps if isinstance(steps, list) else []:
        single = step.get("single") if isinstance(step, dict) else None
        first = single[0] if isinstance(single, list) and single else None
        if isinstance(first, dict) and isinstance(first.get("SpecialToken"), dict):
            return special.get(str(first["SpecialToken"].get("id")))
    return None


def _stop_ids(
    folder: Path,
    config: Mapping[str, Json],
    settings: Mapping[str, Json],
    special: Mapping[str, int],
    vocabulary: int,
) -> tuple[int, ...]:
    stop_ids = {special[name] for name in STOP_TOKENS if name in special}
    generation = read_json(folder / "generation_config.json", needed=False)
    for table in (generation, config):
        ids: Any = table.get("eos_token_id")
        for token in ids if isinstance(ids, list) else [] if ids is None else [ids]:
            if type(token) is not int or not 0 <= token < vocabulary:
                raise ModelError(
                    f"{folder}: its eos_token_id is {str(token)[:40]}; it has {vocabulary} tokens"
                )
            stop_ids.add(token)
    named = settings.get("eos_token")
    end = named.get("content") if isinstance(named, dict) else named
    if isinstance(end, str) and end in special:
        stop_ids.add(special[end])
    if not stop_ids:
        raise ModelError(f"{folder}: has no end-of-text token (eos_token_id in config.json)")
    return tuple(sorted(stop_ids))


def _chat_template(folder: Path, settings: Mapping[str, Json]) -> str:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return read_part(path, TEMPLATE_LIMIT_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError(f"{path}: is not valid UTF-8; download it again") from None
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        file = "tokenizer_config.json"
        named = {
            text(entry, "name", folder, file=file): text(entry, "template", folder, file=file)
            for entry in entries(settings, "chat_template", folder, file)
        }
        return named.get("default", "")
    return template if isinstance(template, str) else ""


def folder_digest(
    folder: Path, shards: Mapping[str, SafetensorsFile], tokenizer: Sequence[str] = ("tokenizer.json",)
) -> str:
    """Compute the sha256 of the names and hashes of the files that were read."""
    names = {file.path.name for file in shards.values()} | {"config.json", *tokenizer}
    lines = (f"{file_digest(folder / name)}  {name}\n" for name in sorted(names))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
