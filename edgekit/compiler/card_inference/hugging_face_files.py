"""Files beside an ONNX model in a Hugging Face folder: labels, image preprocessing, tokenizer, pooling.

``config.json`` and the others have the names and the meaning that transformers gives them. Optimum writes the
model beside them, or in their folder ``onnx``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.compiler.card_inference.image_habits import Habits
from edgekit.compiler.model.hugging_face_folder import read_json, read_part
from edgekit.errors import ModelError
from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES, padding_id, token_id
from edgekit.tensor_spec import Json

PREPROCESSOR, TOKENIZER, SUBFOLDER = "preprocessor_config.json", "tokenizer.json", "onnx"
POOLING = "1_Pooling/config.json"
LABELS_KEY = "id2label of config.json"
"""Key of the labels in a model's metadata."""
_BILINEAR, _BICUBIC = 2, 3
"""Pillow's numbers of the filters that a card has."""
_KEEPS_EDGE = (
    "DETR",
    "Detr",
    "Yolos",
    "CLIP",
    "SigLIP2",
    "ConvNext",
    "MobileNet",
    "LeViT",
    "PoolFormer",
    "Bit",
)
"""Processors whose size, where it is one number, is that of the shorter edge; others squeeze to a square."""
MOST_SIDE = 1 << 14
CONVNEXT_SQUEEZED = 384
"""Size from which ConvNextImageProcessor squeezes a picture, and does not crop it."""


@dataclass(frozen=True)
class HuggingFaceFiles:
    """Content of the files of a Hugging Face folder.

    Attributes:
        labels: Names of the classes by number; {} for placeholders such as ``LABEL_0``.
        habits: Image preprocessing; None without ``preprocessor_config.json``.
        has_tokenizer: Whether it has ``tokenizer.json``.
        tokenizer_lines: Values of the card that the tokenizer's files state: ``padding``, ``pad_id``.
        pooling: ``mean-pooling`` or ``cls-pooling``, by sentence-transformers' file; "" without it.
        folder: The folder; None for an object without files.
    """

    labels: Mapping[int, str] = field(default_factory=dict)
    habits: Habits | None = None
    has_tokenizer: bool = False
    tokenizer_lines: Mapping[str, Json] = field(default_factory=dict)
    pooling: str = ""
    folder: Path | None = None

    def read(self, name: str) -> bytes:
        assert self.folder is not None
        return read_part(self.folder / name, TOKENIZER_LIMIT_BYTES)


NO_FILES = HuggingFaceFiles()


def folder_of(model: Path) -> Path | None:
    """Return the Hugging Face folder that an ONNX file is in, or None."""
    places = [model.parent, *([model.parent.parent] if model.parent.name == SUBFOLDER else [])]
    return next((folder for folder in places if (folder / "config.json").is_file()), None)


def read_files(source: object) -> HuggingFaceFiles:
    """Read the files beside a model, or the configuration of a module of transformers.

    Args:
        source: Path of an ONNX file, or an object.
    """
    if isinstance(source, Path):
        folder = folder_of(source)
        config = read_json(folder / "config.json") if folder is not None else {}
        return _of_folder(folder, config) if folder is not None and "model_type" in config else NO_FILES
    to_dict = getattr(getattr(source, "config", None), "to_dict", None)
    if not callable(to_dict) or not type(source).__module__.startswith("transformers."):
        return NO_FILES
    named = str(getattr(source, "name_or_path", "") or "")
    return _of_folder(Path(named) if named and Path(named).is_dir() else None, to_dict())


def _of_folder(folder: Path | None, config: Mapping[str, Any]) -> HuggingFaceFiles:
    labels = _labels(config.get("id2label"))
    if folder is None:
        return HuggingFaceFiles(labels)
    has_tokenizer = (folder / TOKENIZER).is_file()
    pooling = read_json(folder / POOLING, needed=False)
    modes = {"cls": "cls-pooling", "mean": "mean-pooling"}
    named = [decode for key, decode in modes.items() if pooling.get(f"pooling_mode_{key}_token") is True
             or pooling.get(f"pooling_mode_{key}_tokens") is True]  # fmt: skip
    return HuggingFaceFiles(
        labels,
        _habits(read_json(folder / PREPROCESSOR, needed=False), folder),
        has_tokenizer,
        _tokenizer_lines(folder) if has_tokenizer else {},
        named[0] if len(named) == 1 else "",
        folder,
    )


def _labels(names: object) -> dict[int, str]:
    """Return the names of the classes, unless they are what transformers writes where there are none."""
    if not isinstance(names, dict):
        return {}
    name_by_index = {int(key): str(name) for key, name in names.items() if _is_class(str(key))}
    is_named = any(name != f"LABEL_{number}" for number, name in name_by_index.items())
    return name_by_index if is_named and len(name_by_index) == len(names) else {}


def _is_class(key: str) -> bool:
    return len(key) < 10 and key.isdecimal()


def _tokenizer_lines(folder: Path) -> dict[str, Json]:
    """Return side and id of padding, where the files differ from what the tokenizer file itself says."""
    settings = read_json(folder / "tokenizer_config.json", needed=False)
    lines: dict[str, Json] = {}
    if settings.get("padding_side") == "left":
        lines["padding"] = "left"
    special = read_json(folder / "special_tokens_map.json", needed=False)
    named = settings.get("pad_token") or special.get("pad_token")
    text = named.get("content") if isinstance(named, dict) else named
    if isinstance(text, str):
        content = read_part(folder / TOKENIZER, TOKENIZER_LIMIT_BYTES)
        number = token_id(content, text)
        if number is not None and number != padding_id(content):
            lines["pad_id"] = number
    return lines


def _habits(settings: Mapping[str, Any], folder: Path) -> Habits | None:
    """Return the image preprocessing that an image processor's file states."""
    if not any(key in settings for key in ("image_processor_type", "feature_extractor_type", "image_mean")):
        return None
    try:
        return _image_habits(settings)
    except (TypeError, ValueError, KeyError, ZeroDivisionError) as problem:
        raise ModelError(f"{folder / PREPROCESSOR}: has a value that is not valid: {problem}") from None


def _image_habits(settings: Mapping[str, Any]) -> Habits:
    kind = str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "")
    size, resize, crop, doubt = _sizes(settings, kind)
    resample = settings.get("resample", _BILINEAR)
    if resample not in (_BILINEAR, _BICUBIC):
        doubt = doubt or f"its filter has Pillow's number {resample}"
    factor = float(settings.get("rescale_factor", 1 / 255)) if settings.get("do_rescale", True) else 1.0
    mean, std = [0.0], [1.0]
    if settings.get("do_normalize", False):
        mean = [float(value) for value in settings["image_mean"]]
        std = [float(value) for value in settings["image_std"]]
    shift = 1.0 if settings.get("rescale_offset") else 0.0
    pixels = (
        tuple(round((value + shift) / factor, 6) for value in mean),
        tuple(round(value / factor, 6) for value in std),
    )
    return Habits(
        PREPROCESSOR,
        colour="BGR" if settings.get("do_flip_channel_order") else "RGB",
        resize=resize,
        place="top-left" if resize == "letterbox" else "",
        crop=crop,
        antialias=True,
        interpolation="cubic" if resample == _BICUBIC else "linear",
        pixels=pixels,
        size=size,
        is_stated=True,
        doubt=doubt,
    )


def _sizes(settings: Mapping[str, Any], kind: str) -> tuple[tuple[int, int] | None, str, float, str]:
    """Return the size of the input, the card's ``resize`` and ``crop``, and what a card can't say of it."""
    size, crops = settings.get("size"), settings.get("do_center_crop", False)
    edge = _side(size["shortest_edge"]) if isinstance(size, dict) and "shortest_edge" in size else None
    sides = _sides(size)
    if isinstance(size, int) and (crops or any(word in kind for word in _KEEPS_EDGE)):
        edge, sides = _side(size), None
    if not settings.get("do_resize", True):
        return sides, "stretch", 1.0, "it does not resize pictures"
    if "crop_pct" in settings and edge is not None and "ConvNext" in kind:
        whole = edge >= CONVNEXT_SQUEEZED
        return (
            (edge, edge),
            "stretch" if whole else "resize-crop",
            1.0 if whole else edge / int(edge / float(settings["crop_pct"])),
            "",
        )
    if crops:
        crop = _sides(settings.get("crop_size")) or sides or (edge and (edge, edge)) or None
        if edge is not None and crop is not None:
            return crop, "resize-crop", min(1.0, min(crop) / edge), ""
        if sides is not None and crop is not None:
            ratio = min(1.0, crop[0] / sides[0])
            return (
                crop,
                "center-crop",
                ratio,
                f"it squeezes pictures to {sides[0]}x{sides[1]} before the crop",
            )
    padded = _sides(settings.get("pad_size"))
    if edge is not None and settings.get("do_pad") and padded:
        return padded, "letterbox", 1.0, "the rest is 0 after normalization"
    if edge is not None:
        return (edge, edge), "stretch", 1.0, f"it keeps the proportions of pictures, the shorter edge {edge}"
    return sides, "stretch", 1.0, ""


def _sides(size: object) -> tuple[int, int] | None:
    if isinstance(size, int):
        return _side(size), _side(size)
    if isinstance(size, dict) and "height" in size and "width" in size:
        return _side(size["height"]), _side(size["width"])
    return None


def _side(size: object) -> int:
    if type(size) is not int or not 0 < size <= MOST_SIDE:
        raise ValueError(f"a size of {str(size)[:40]}")
    return size
