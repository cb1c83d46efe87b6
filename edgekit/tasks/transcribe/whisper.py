"""Whisper's and Moonshine's tokens as a transcript, for one window and for a sound of any length.

With timestamps, the next window begins where the last whole segment ended, so windows overlap by what was cut
off (Radford et al. 2022, 3.8). Without, a window ends at the quietest place of its last seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.audio_preparation import AudioWindow, prepare_audio, quiet_place
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.predictions.transcribe import Segment, Transcript
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit.processing.tokenizer import token_texts
from edgekit.processing.transcripts.options import TranscribeOptions
from edgekit.processing.transcripts.words import text_of
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.processing.card import Card

SHORTEST_S = 0.1
"""A rest of a sound that is shorter is not read."""
MASK = "mask"
"""Input that is 1 for a sample of the sound and 0 for padding, of models that have it."""
LEAST_STEP_S = 1.0
"""A window begins at least so much after the last one."""


class _Read(NamedTuple):
    """Segments of a window; whether the last one was cut off; and where text goes on in seconds from the
    window's start, or None: at its end."""

    segments: list[Segment]
    is_cut: bool
    goes_on_s: float | None


def read_window(
    outputs: Outputs, options: TranscribeOptions, placed: Any, labels: Sequence[str] = ()
) -> Transcript:
    """``tokens`` int64 [1, n], padded with -1; ``figures`` float32 [1, 2]: the mean log probability of the
    tokens, and the log probability of no speech.

    Args:
        placed: The window's place in its sound: an ``AudioWindow``.
        labels: Text of each token.

    Raises:
        EngineError: an output has another shape, or a token no text.
    """
    return _transcript(_read(outputs, options, placed, labels).segments, options.language)


def _read(outputs: Outputs, options: TranscribeOptions, placed: AudioWindow, labels: Sequence[str]) -> _Read:
    tokens, figures = outputs["tokens"], outputs["figures"]
    if tokens.ndim != 2 or figures.shape != (1, 2):
        raise EngineError(
            f"tokens are [1, n] and figures [1, 2], but the outputs are {list(tokens.shape)} and "
            f"{list(figures.shape)}"
        )
    new = [int(token) for token in tokens[0] if token >= 0]
    if any(token < options.end and token >= len(labels) for token in new):
        raise EngineError(
            f"token {max(t for t in new if t < options.end)} has no text in the card's tokenizer"
        )
    likely, silent = float(figures[0, 0]), float(np.exp(figures[0, 1]))
    if likely < options.unlikely and silent > options.no_speech:
        return _Read([], False, None)
    segments, text, length_s = list[Segment](), list[int](), placed.end_s - placed.start_s
    begin_s = last_s = 0.0
    for token in new:
        if token < options.timestamp_first:
            text.append(token)
            continue
        last_s = min((token - options.timestamp_first) * options.step_s, length_s)
        _add(segments, text, begin_s, last_s, placed, options, labels)
        text, begin_s = [], last_s
    whole = len(segments)
    _add(segments, text, begin_s, length_s, placed, options, labels)
    is_cut = len(segments) > whole
    segments = [replace(segment, log_probability=likely, no_speech=silent) for segment in segments]
    timed = [token >= options.timestamp_first for token in new]
    if is_cut and whole:
        goes_on_s: float | None = begin_s
    else:
        goes_on_s = last_s if len(timed) > 2 and all(timed[-2:]) else None
    return _Read(segments, is_cut, goes_on_s)


def _add(
    segments: list[Segment], tokens: Sequence[int], start_s: float, end_s: float, placed: AudioWindow,
    options: TranscribeOptions, labels: Sequence[str],
) -> None:  # fmt: skip
    if text := text_of(tokens, labels, options.end, options.spelling, options.special):
        begin_s = placed.start_s
        segments.append(
            Segment(begin_s + start_s, begin_s + max(start_s, end_s), text, tuple(tokens), begin_s)
        )


def _transcript(segments: Sequence[Segment], language: str) -> Transcript:
    return Transcript(" ".join(segment.text for segment in segments), tuple(segments), language)


def read_windows(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    card: Card,
    samples: Array,
    options: TranscribeOptions,
) -> Iterator[Transcript]:
    """Transcribe a sound of any length; yield the transcript so far after each window.

    Args:
        samples: float64 [n], at the input's rate.

    Raises:
        EngineError: the engine failed, or its outputs do not fit.
    """
    entry = card.sources()[0]
    assert isinstance(entry, AudioInput)
    labels, segments, start = token_texts(card.files[options.tokenizer]), list[Segment](), 0
    while start == 0 or len(samples) - start >= SHORTEST_S * entry.rate:
        piece, is_last = samples[start : start + entry.window], len(samples) - start <= entry.window
        if not is_last and not options.timestamps:
            piece = piece[: quiet_place(piece, entry.rate)]
        features = prepare_audio(entry, piece)
        if options.languages and not options.language:
            options = replace(options, language=_language(run, card, features, options))
        feeds = _feeds(card, features, _prompt(options), entry.name)
        if MASK in feeds:
            feeds[MASK][:, len(piece) :] = 0
        if options.tokens_a_second:
            longest = max(1, int(options.tokens_a_second * len(piece) / entry.rate))
            feeds["limit"] = np.minimum(feeds["limit"], longest)
        outputs = run(feeds)
        placed = AudioWindow(start / entry.rate, (start + len(piece)) / entry.rate)
        reading = _read(outputs, options, placed, labels)
        goes_on_s = reading.goes_on_s
        if is_last and (reading.is_cut or goes_on_s is None):
            segments += reading.segments
            start = len(samples)
        elif goes_on_s is None or goes_on_s < LEAST_STEP_S:
            segments += reading.segments
            start += len(piece)
        else:
            segments += reading.segments[:-1] if reading.is_cut else reading.segments
            start += int(goes_on_s * entry.rate)
        yield _transcript(segments, options.language)


def _feeds(card: Card, features: Array, prompt: Sequence[int], name: str) -> dict[str, Array]:
    feeds = {**card.constants(), name: features}
    feeds["prompt"] = np.full_like(feeds["prompt"], -1)
    feeds["prompt"][0, : len(prompt)] = prompt
    return feeds


def _prompt(options: TranscribeOptions) -> list[int]:
    language = (
        [options.language_tokens[options.languages.index(options.language)]] if options.language else []
    )
    task = options.translation if options.translate else options.transcribe
    last = -1 if options.timestamps else options.no_timestamps
    return [options.start, *language, *(token for token in (task, last) if token >= 0)]


def _language(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    card: Card,
    features: Array,
    options: TranscribeOptions,
) -> str:
    """Return the likeliest language of a window: that of the token after the first one."""
    feeds = _feeds(card, features, [options.start], card.sources()[0].name)
    logits = run({**feeds, "limit": np.zeros_like(feeds["limit"])})["logits"][0]
    return options.languages[int(np.argmax(logits[list(options.language_tokens)]))]


DECODERS: Mapping[str, Decoder] = {
    "whisper": Decoder(
        TranscribeOptions, read_window, ("tokens", "figures"), optional_roles=("logits",), whole=read_windows
    )
}
