"""docs/card-keys.md: every key of a card, from the dataclasses that a card is read into.

python -m docs.site.card_keys      writes the page anew
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeAlias

from edgekit.processing.card import ABOUT
from edgekit.processing.inputs import audio, audio_features, image, tensor, text
from edgekit.processing.latency_contract import STAGES, Latency
from edgekit.processing.schedule import DAYS, Schedule
from edgekit.processing.task_decoder import Decoder
from edgekit.processing.task_spec import TaskSpec
from edgekit.processing.task_table import all_tasks, find_decoder

PAGE = Path(__file__).resolve().parents[1] / "card-keys.md"

INTRODUCTION = f"""# Card keys

This page lists every key of a [card](cards.md). An unknown key is an error. It is made from the code, by
`python -m docs.site.card_keys`.

| key | content |
|---|---|
| `title` | Name of the model. Required. |
| `[inputs.NAME]` | A table for each input: [image](#image-inputs), [audio](#audio-inputs), \
[text](#text-inputs) or [tensor](#tensor-inputs). |
| `[task]` | What the outputs mean: see [tasks](#tasks). Without it, the outputs are arrays. |
| `[latency]` | [Latency limits](#latency). |
| `[schedule]` | [Hours](#schedule) in which a server keeps the model in memory. |
| `[about]` | Texts for exported files: {", ".join(f"`{key}`" for key in ABOUT)}. |
| `[states]` | Input name = output name: the output is the input of the next call. |
"""
TASKS = """## Tasks

| key of `[task]` | content |
|---|---|
| `kind` | The task: one of the headings below. |
| `decode` | The form of the outputs: one of the task's rows. |
| `outputs` | Table: role in the decoder = name of the model's output. |
| `labels` | List of class names, or the name of a file in the card's folder with one name per line. |

All other keys are options of the decoder.
"""
Values: TypeAlias = Mapping[str, Sequence[str]]
INPUTS: Sequence[tuple[str, Any, Values, tuple[str, Values]]] = (
    ("Image inputs", image.ImageInput, image.CHOICES, ("resize", image.ONLY_WITH)),
    ("Audio inputs", audio.AudioInput, audio.CHOICES, ("", {})),
    ("Audio features", audio_features.Features, audio_features.CHOICES, ("kind", audio_features.ONLY_WITH)),
    ("Text inputs", text.TextInput, text.CHOICES, ("part", dict.fromkeys(text.WITH_IDS, ("ids",)))),
    ("Tensor inputs", tensor.TensorInput, {"dtype": tensor.DTYPES}, ("", {})),
)
"""Heading, class of the table, allowed values, and the key that a key depends on with its values."""


def meanings(of: type[Any]) -> dict[str, str]:
    """Return the description of each attribute, from the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for each in reversed(of.__mro__):
        section = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        for names, description in re.findall(r"^    (\w[\w, ]*): (.*(?:\n {5,}.*)*)", section, re.MULTILINE):
            for name in names.split(", "):
                found[name] = " ".join(description.replace("``", "`").split())
    return found


def shown(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return "`[" + ", ".join(shown(each).strip("`") for each in value) + "]`"
    if isinstance(value, str):
        return f'`"{value}"`' if value else "none"
    return "none" if value is None else f"`{value:g}`"


def default_of(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return shown(field.default)
    return "none" if field.default_factory is not MISSING else "required"


def key_table(of: type[Any], choices: Values, depends: tuple[str, Values] = ("", {})) -> str:
    """Return the table of a class's keys.

    Args:
        of: Dataclass that a table of the card is read into.
        choices: Allowed values by key.
        depends: A key, and for keys that depend on it, the values that allow them.
    """
    known = meanings(of)
    rows = ["| key | meaning | default |", "|---|---|---|"]
    for field in (field for field in fields(of) if field.name != "name"):
        text, _, default = known[field.name].partition(" Default: ")
        parts = [re.sub(r"^\(\w+\) ", "", text)]
        if only := depends[1].get(field.name):
            parts.append(f"Only with `{depends[0]}` = {' or '.join(f'`{value}`' for value in only)}.")
        if allowed := choices.get(field.name):
            parts.append(f"One of {', '.join(f'`{value}`' for value in allowed)}.")
        rows.append(f"| `{field.name}` | {' '.join(parts)} | {default.rstrip('.') or default_of(field)} |")
    return "\n".join(rows) + "\n"


def decoder_row(name: str, decoder: Decoder) -> str:
    form = inspect.cleandoc(decoder.function.__doc__ or "").partition("\n\n")[0]
    form = " ".join(form.replace("``", "`").split()).replace("|", "\\|").rstrip(".") + "."
    if decoder.optional_roles:
        form += f" Optional: {', '.join(f'`{role}`' for role in decoder.optional_roles)}."
    missing = [f"`{role}`" for role in decoder.roles if f"`{role}`" not in form]
    options = [f"`{field.name} = {shown(field.default).strip('`')}`" for field in fields(decoder.options)]
    return (
        f"| `{name}` | {', '.join(missing)}{': ' if missing else ''}{form} | {', '.join(options) or 'none'} |"
    )


def option_table(decoders: Mapping[str, Decoder]) -> str:
    """Return what the options of a task's decoders mean, once where all mean the same."""
    users: dict[str, dict[str, list[str]]] = {}
    for name, decoder in decoders.items():
        known = meanings(decoder.options)
        for field in fields(decoder.options):
            users.setdefault(field.name, {}).setdefault(known[field.name], []).append(name)
    rows = ["| option | meaning |", "|---|---|"]
    for option, texts in users.items():
        ordered = sorted(texts.items(), key=lambda item: -len(item[1]))
        parts = [
            ordered[0][0],
            *(f"{', '.join(f'`{n}`' for n in names)}: {text}" for text, names in ordered[1:]),
        ]
        rows.append(f"| `{option}` | {' '.join(parts)} |")
    return "\n".join(rows) + "\n"


def task_section(task: TaskSpec) -> Iterator[str]:
    """Yield the parts of a task's section: its decoders, then what their options mean."""
    decoders = {name: find_decoder(task.kind, name) for name in task.decoders}
    yield f"### {task.kind}\n"
    head = ["| `decode` | outputs | options and defaults |", "|---|---|---|"]
    yield "\n".join([*head, *(decoder_row(name, decoder) for name, decoder in decoders.items())]) + "\n"
    yield option_table(decoders)


def card_keys_page() -> str:
    """Return the page as Markdown."""
    parts = [INTRODUCTION]
    for heading, of, choices, depends in INPUTS:
        where = "The table `features` of an audio input."
        if of is not audio_features.Features:
            where = f'`kind = "{of.kind}"`.'
        parts += [f"## {heading}\n", f"{where}\n", key_table(of, choices, depends)]
    parts += [TASKS, *(part for task in all_tasks() for part in task_section(task))]
    parts += [
        "## Latency\n",
        key_table(Latency, {}),
        f"Stages: {', '.join(f'`{stage}`' for stage in STAGES)}.\n",
    ]
    parts += ["## Schedule\n", key_table(Schedule, {"days": DAYS})]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(card_keys_page(), "utf-8")
