"""Kinds of samples that a report shows predictions for: how each is read and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.samples import read_sample
from edgekit.compiler.evaluate.text_files import TEXTS, read_line, text_lines
from edgekit.errors import UsageError
from edgekit.processing.audio_preparation import loudest, mono
from edgekit.processing.card import Card
from edgekit.processing.generation import is_generation
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.picture_files import PICTURES, read_picture
from edgekit.processing.processing import predicts_in_parts
from edgekit.processing.sound_files import SOUNDS, read_sound
from edgekit.runtime import Session
from edgekit.runtime.session_card import card_of
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array

NEW_TOKENS = 48
"""Length of a text that a language model continues."""


class Item(NamedTuple):
    """A sample as a session takes it, and its length in seconds if it is a recording."""

    value: Any
    seconds: float = 0.0


class Answer(NamedTuple):
    """A variant's answer to a sample.

    Attributes:
        prediction: Result of ``predict``. None without a task.
        outputs: Outputs of the run that it was decoded from. None if it took several runs.
        placed: What decoding needed to know of the sample.
        ms: Time of the runs, in ms.
    """

    prediction: Any
    outputs: Mapping[str, Array] | None
    placed: Any
    ms: float


class Source(NamedTuple):
    """One kind of samples.

    Attributes:
        noun: Name of one of them.
        paths: (folder, file or glob) -> the samples.
        read: (bundle, path) -> the sample. It is read again for each variant: photographs fill a memory.
        answers: (bundle, variant, items) -> its answers.
    """

    noun: str
    paths: Callable[[str], Sequence[Path]]
    read: Callable[[Bundle, Path], Item]
    answers: Callable[[Bundle, Variant, Sequence[Callable[[], Item]]], list[Answer]]


def source_of(bundle: Bundle) -> Source:
    """Return the kind of samples that a bundle takes.

    Raises:
        UsageError: it is a cascade, whose variants have no answers of their own.
    """
    if bundle.stages:
        raise UsageError(f"--samples: {bundle.name} is a cascade; leave --samples out")
    if is_generation(bundle.card):
        return SOURCES["prompt"]
    if bundle.card is None or card_of(bundle).task is None:
        return SOURCES["arrays"]
    return SOURCES[card_of(bundle).sources()[0].kind]


def _lines(source: str) -> list[Path]:
    return [line for path in find_files(source, TEXTS) for line in text_lines(path)]


def _recording(bundle: Bundle, path: Path) -> Item:
    """Return a recording at the model's rate; of a long one the loudest window, if one run takes no more."""
    card, sound = card_of(bundle), read_sound(path)
    entry = card.sources()[0]
    assert isinstance(entry, AudioInput)
    samples = mono(sound.samples, entry, sound.rate)
    samples = samples if predicts_in_parts(card) else loudest(samples, entry)
    return Item(samples, len(samples) / entry.rate)


def _arrays(bundle: Bundle, path: Path) -> Item:
    return Item(read_sample(path, bundle.inputs, None))


def _predicted(bundle: Bundle, variant: Variant, items: Sequence[Callable[[], Item]]) -> list[Answer]:
    with Session(bundle, variant=variant.name, strict=True) as session:
        card: Card | None = session.card if bundle.card is not None else None
        whole = card is not None and card.task is not None and predicts_in_parts(card)
        answers = []
        for read in counted(items, "samples", name=variant.name):
            item = read().value
            if card is not None and card.carries:
                session.reset()
            if whole:
                began = time.perf_counter()
                prediction = session.predict(item)
                answers.append(Answer(prediction, None, None, 1000 * (time.perf_counter() - began)))
                continue
            feeds, placed = (item, None) if isinstance(item, Mapping) else session.prepare(item)
            began = time.perf_counter()
            outputs = session.run(feeds)
            ms = 1000 * (time.perf_counter() - began)
            tasked = not isinstance(item, Mapping)
            answers.append(Answer(session.decode(outputs, placed) if tasked else None, outputs, placed, ms))
    return answers


def _continued(bundle: Bundle, variant: Variant, items: Sequence[Callable[[], Item]]) -> list[Answer]:
    from edgekit.generate import TextSession

    answers = []
    with TextSession(bundle, variant=variant.name, strict=True, kept_bytes=0, speculate="off") as session:
        for read in counted(items, "prompts", name=variant.name):
            room = max(1, min(NEW_TOKENS, session.capacity // 2))
            stream = session.generate(read().value, max_tokens=room)
            stream.text()
            answers.append(Answer(stream.result, None, None, stream.result.total_ms))
    return answers


SOURCES: Mapping[str, Source] = {
    "image": Source(
        "picture", lambda at: find_files(at, PICTURES), lambda _, path: Item(read_picture(path)), _predicted
    ),
    "audio": Source("recording", lambda at: find_files(at, SOUNDS), _recording, _predicted),
    "text": Source("text", _lines, lambda _, path: Item(read_line(path)), _predicted),
    "prompt": Source("prompt", _lines, lambda _, path: Item(read_line(path)), _continued),
    "arrays": Source("sample", lambda at: find_files(at, (".npz", ".npy")), _arrays, _predicted),
}
"""Kind of the card's input, ``prompt`` of a language model, or ``arrays`` without a task."""


def sample_name(path: Path) -> str:
    """Return the name of a sample: a line of a text file has its number."""
    if path.parent.suffix in TEXTS:
        return f"{path.parent.name}, line {int(path.name.partition('-')[2])}"
    return path.name
