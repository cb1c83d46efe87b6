"""The readers of model folders: one value of one of their files is of another type, absent, or another's."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.compiler.card_inference.hugging_face_files import read_files
from edgekit.errors import CardError, ModelError
from edgekit.generate.host.adapters import open_adapter
from edgekit.generate.host.readers.language.hugging_face import open_hugging_face
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.readers.speech.open_speech import is_speech_model, open_speech_model
from edgekit.generate.host.readers.text2text.open_text2text import is_text2text_model, open_text2text_model
from tests.fixtures.adapter_files import random_pairs, write_peft
from tests.fixtures.bundle_mutations import bytes_changed
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.hugging_face_files import write_folder
from tests.fixtures.moonshine_folders import write_moonshine
from tests.fixtures.text2text_folders import write_text2text
from tests.fixtures.whisper_folders import write_ctranslate2, write_whisper
from tests.fuzz.mutations import changed_json
from tests.fuzz.target import READ, REFUSED, Target, refused

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 7, -1, 1 << 31, 1 << 40, 10**30, 0.5, -0.5, 1e-300, 1e300, "", "x", "silu",
    "default", "gated-", "0", [], {}, [1], [None], [[1]], ["x"], [{}], {"x": 1}, {"id": 1}, {"type": "x"},
    {"rope_type": []}, [[1, 2], "x"], {"content": []}, [{"content": "x", "id": "y"}], "\u202e",
)  # fmt: skip


class ModelFolder(NamedTuple):
    """A folder, its reader, and how often its JSON is changed."""

    place: Path
    read: Callable[[Path], object]
    share: int = 2


def model_folders(folder: Path) -> dict[str, Target]:
    folder = Path(tempfile.mkdtemp(dir=folder))  # targets are made more than once in a folder
    model = open_language_model(write_tiny(folder / "tiny.gguf"))
    language = write_folder(folder / "language", model)
    (language / "generation_config.json").write_text('{"eos_token_id": [2], "temperature": 0.5}')
    (language / "tokenizer_config.json").write_text(
        '{"eos_token": {"content": "<|im_end|>"}, "chat_template": [{"name": "default", "template": "x"}]}'
    )
    (language / "chat_template.jinja").unlink()
    kinds = {
        "language folder": ModelFolder(language, _whole(open_hugging_face), 3),
        "adapter folder": ModelFolder(
            write_peft(folder / "adapter", random_pairs(model)), partial(open_adapter, model=model), 1
        ),
        "card folder": ModelFolder(_card_folder(folder / "card"), lambda place: read_files(place / "m.onnx")),
        "moonshine folder": ModelFolder(write_moonshine(folder / "moonshine"), _speech),
        "whisper folder": ModelFolder(write_whisper(folder / "whisper"), _speech),
        "ctranslate2 folder": ModelFolder(write_ctranslate2(folder / "ctranslate2"), _speech, 1),
    }
    for family in ("t5", "bart", "marian"):
        kinds[f"{family} folder"] = ModelFolder(write_text2text(folder / family, family), _text2text)
    return {name: _target(kind) for name, kind in kinds.items()}


def _target(kind: ModelFolder) -> Target:
    """A case is the name of a file, a new line, and the file's changed content."""
    contents = {
        path.name: path.read_bytes()
        for path in sorted(kind.place.iterdir())
        if path.suffix in (".json", ".jinja", ".model", ".spm")
    }

    def read(case: bytes) -> str:
        name, _, content = case.partition(b"\n")
        path = kind.place / name.decode()
        path.write_bytes(content)
        try:
            kind.read(kind.place)
        except (ModelError, CardError) as problem:
            return refused(problem)
        finally:
            path.write_bytes(contents[path.name])
        return READ

    return Target(kind.share, partial(_changed, contents), read)


def _changed(contents: Mapping[str, bytes], draw: random.Random) -> bytes:
    name = draw.choice(sorted(contents))
    content = contents[name]
    if not name.endswith(".json"):
        content = bytes_changed(draw, content)
    elif draw.random() < 0.1:
        content = changed_json(draw, json.loads(content))
    else:
        table = json.loads(content)
        for _ in range(draw.choice((1, 1, 1, 2))):
            _change(draw, table)
        content = json.dumps(table, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return name.encode() + b"\n" + content


def _change(draw: random.Random, table: Any) -> None:
    """Change one value; each level of nesting is chosen from as often as the one around it."""
    holder: Any = table
    key: Any = draw.choice(list(table) or ["added_tokens"])
    table.setdefault(key, 7)
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.7:
        holder = holder[key]
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    how = draw.random()
    if how < 0.15:
        del holder[key]
    elif how < 0.25:
        holder[key] = json.loads(json.dumps(draw.choice(list(table.values()))))
    elif how < 0.35:
        holder[key] = [holder[key]]
    else:
        holder[key] = json.loads(json.dumps(draw.choice(VALUES)))


def _whole(read: Callable[[Path], Any]) -> Callable[[Path], object]:
    """Read the model, and some of its weights."""

    def opened(place: Path) -> object:
        model = read(place)
        names = list(model.config.weight_shapes())
        return [model.read(name) for name in (names[0], names[len(names) // 2], names[-1])]

    return opened


def _speech(place: Path) -> object:
    """Read a folder if its files still say that it is a speech model's."""
    return _whole(open_speech_model)(place) if is_speech_model(place) else REFUSED


def _text2text(place: Path) -> object:
    return _whole(open_text2text_model)(place) if is_text2text_model(place) else REFUSED


def _card_folder(place: Path) -> Path:
    """What a card is drafted from, of an image classifier and of a text encoder."""
    (place / "1_Pooling").mkdir(parents=True)
    tables: dict[str, Any] = {
        "config.json": {"model_type": "vit", "id2label": {"0": "cat", "1": "dog"}},
        "preprocessor_config.json": {
            "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 8, "width": 8},
            "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2,
            "do_rescale": True, "rescale_factor": 0.1, "crop_pct": 0.9, "do_center_crop": False,
        },
        "tokenizer.json": {
            "model": {"type": "WordLevel", "vocab": {"a": 0, "[PAD]": 1}},
            "padding": {"pad_id": 0}, "added_tokens": [{"id": 1, "content": "[PAD]"}],
        },
        "tokenizer_config.json": {"padding_side": "left", "pad_token": {"content": "[PAD]"}},
        "special_tokens_map.json": {"pad_token": "[PAD]"},
    }  # fmt: skip
    for name, table in tables.items():
        (place / name).write_text(json.dumps(table))
    (place / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return place
