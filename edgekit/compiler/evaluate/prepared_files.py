"""Files that a card turns into a model's inputs: pictures, sounds as WAV, and lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.text_files import TEXTS, is_line, read_line, text_lines
from edgekit.compiler.evaluate.video_files import is_frame, read_frame
from edgekit.errors import SampleError
from edgekit.processing import processing
from edgekit.processing.card import Card
from edgekit.processing.picture_files import PICTURES, read_picture
from edgekit.processing.sound_files import SOUNDS, read_sound
from edgekit.processing.text_preparation import TextTokens
from edgekit.tensor_spec import Array, TensorSpec

PREPARED: Mapping[str, tuple[str, ...]] = {"image": PICTURES, "audio": SOUNDS, "text": TEXTS}
"""Kind of input -> the suffixes of its files."""
NAMES: Mapping[str, str] = {"image": "picture", "audio": "sound", "text": "text"}
LOUDNESS = 0.1
"""Standard deviation of random sounds; full scale is 1."""


def kind_of_file(path: Path) -> str | None:
    """Return a file's kind of input: ``image``, ``audio``; None for arrays and unknown suffixes."""
    if is_frame(path):
        return "image"
    if is_line(path):
        return "text"
    suffix = path.suffix.lower()
    return next((kind for kind, suffixes in PREPARED.items() if suffix in suffixes), None)


def prepared_suffixes(card: Card | None = None) -> tuple[str, ...]:
    """Return all suffixes of files that a card turns into inputs.

    They include ``.txt`` only if the card takes a text: next to pictures it is a note, or labels.
    """
    takes_text = card is not None and any(entry.kind == "text" for entry in card.inputs.values())
    kinds = [kind for kind in PREPARED if kind != "text" or takes_text]
    return tuple(suffix for kind in kinds for suffix in PREPARED[kind])


def read_prepared(path: Path, inputs: Sequence[TensorSpec], card: Card | None) -> dict[str, Array]:
    """Convert a picture, a video's frame, a sound or a line of text to the model's inputs.

    States have their initial values. A long sound is cut to its loudest window.
    """
    kind = kind_of_file(path)
    assert kind is not None
    if card is None:
        raise SampleError(
            f"{path} is a {NAMES[kind]}, which needs a card to become an input; add --card: "
            "`edgekit model card MODEL -o card.toml` drafts one, in Python edgekit.draft_card"
        )
    source = card.sources()[0]
    if source.kind != kind:
        expected = f"a {NAMES[source.kind]}: {', '.join(PREPARED[source.kind])}"
        raise SampleError(f"{path} is a {NAMES[kind]}, but {card.title} takes {expected}")
    if kind == "audio":
        from edgekit.processing.audio_preparation import loudest, mono
        from edgekit.processing.inputs.audio import AudioInput

        assert isinstance(source, AudioInput)
        sound = read_sound(path)
        feeds, _ = processing.prepare(card, loudest(mono(sound.samples, source, sound.rate), source))
    elif kind == "text":
        lines = [path] if is_line(path) else text_lines(path)
        if len(lines) > 1:
            raise SampleError(f"{path} has {len(lines)} texts, one per line; a sample must be one text")
        feeds, _ = processing.prepare(card, read_line(lines[0]))
    else:
        feeds, _ = processing.prepare(card, read_frame(path) if is_frame(path) else read_picture(path))
    return {**feeds, **card.initial_states(inputs)}


def text_placements(card: Card | None, samples: Sequence[Mapping[str, Array]]) -> list[TextTokens] | None:
    """Return the tokens of each text sample, whose padding decoding needs; None for other inputs."""
    if card is None or all(entry.kind != "text" for entry in card.inputs.values()):
        return None
    from edgekit.processing.inputs.text import TextInput
    from edgekit.processing.text_preparation import tokens_of

    parts = [entry for entry in card.inputs.values() if isinstance(entry, TextInput)]
    return [tokens_of(parts, samples[index], card.files) for index in range(len(samples))]


def random_prepared(card: Card | None, inputs: Sequence[TensorSpec], seed: Sequence[int]) -> dict[str, Array]:
    """Return random inputs that can't be numbers within a range: of a random sound or text, and constants.

    States are not included: they are random numbers, as a run may reach any state.
    """
    if card is None:
        return {}
    feeds = {name: value for name, value in card.constants().items() if name not in card.states}
    for entry in card.inputs.values():
        if entry.kind == "audio":
            from edgekit.processing.audio_preparation import prepare_audio
            from edgekit.processing.inputs.audio import AudioInput

            assert isinstance(entry, AudioInput)
            noise = np.random.default_rng(seed).normal(0.0, LOUDNESS, entry.window - entry.context)
            feeds[entry.name] = prepare_audio(entry, np.clip(noise, -1.0, 1.0))
    if any(entry.kind == "text" for entry in card.inputs.values()):
        feeds.update(_random_text(card, seed))
    names = {spec.name for spec in inputs}
    return {name: value for name, value in feeds.items() if name in names}


def _random_text(card: Card, seed: Sequence[int]) -> dict[str, Array]:
    """Return random tokens of the vocabulary: at least half of the input, the rest is padding."""
    from edgekit.processing.inputs.text import PAD_FROM_TOKENIZER, TextInput
    from edgekit.processing.text_preparation import token_arrays, tokenizer_of
    from edgekit.processing.tokenizer import padding_id, vocabulary_size

    parts = [entry for entry in card.inputs.values() if isinstance(entry, TextInput)]
    ids = next(entry for entry in parts if entry.part == "ids")
    content = tokenizer_of(ids, card.files)
    rng = np.random.default_rng(seed)
    count = int(rng.integers(ids.tokens // 2, ids.tokens, endpoint=True)) or 1
    numbers = rng.integers(0, vocabulary_size(content), count).tolist()
    pad_id = padding_id(content) if ids.pad_id == PAD_FROM_TOKENIZER else ids.pad_id
    return token_arrays(parts, ids, numbers, [0] * count, pad_id)[0]
