"""A whole sound, or texts, for ``edgekit run``: several runs of one bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.compiler.evaluate.prepared_files import NAMES, PREPARED, kind_of_file
from edgekit.compiler.evaluate.sound_files import Sound, read_sound
from edgekit.compiler.evaluate.text_files import read_line, text_lines
from edgekit.errors import SampleError, UsageError
from edgekit.processing.predictions.texts import TextPrediction, TextPredictions
from edgekit.processing.predictions.windows import WindowPredictions
from edgekit.processing.processing import predicts_in_parts

if TYPE_CHECKING:
    from edgekit.processing.card import Card, Input
    from edgekit.runtime import Session
    from edgekit.tensor_spec import Array

TEXT = "text"
"""Name of a text, whose parts are several inputs of the model: ``-i text=reviews.txt``."""
TEXTS_LIMIT = 10_000
"""Most texts of one run."""


def read_whole(
    paths: Mapping[str, Path], text: str | None, card: Card | None, bundle_name: str
) -> Sound | Sequence[str] | None:
    """Return the sound that is processed window by window, or the texts; None if the inputs are arrays or a
    picture.

    Raises:
        SampleError: the file can't be read.
        UsageError: a text is given where none goes in, or beside a file.
    """
    source = None
    if card is not None and (card.task is not None or any(e.kind == TEXT for e in card.inputs.values())):
        source = card.sources()[0]
    if text is not None:
        if source is None or source.kind != TEXT:
            raise UsageError(
                f"--text needs a card with a text input, but {bundle_name} {_other_options(source)}"
            )
        if paths:
            raise UsageError("use -i or --text, not both")
        return [text]
    if source is None or card is None:
        return None
    if source.kind == TEXT and not paths:
        raise UsageError('no text was given; add --text "...", or -i FILE.txt with one text a line')
    if len(paths) != 1:
        return None
    ((name, path),) = paths.items()
    kind = kind_of_file(path)
    if source.kind == TEXT and name in ("", TEXT) and not path.exists():
        raise SampleError(f'{path}: file not found; to pass a text itself, use --text "..."')
    if source.kind == "audio" and kind == "audio" and name in ("", source.name):
        return read_sound(path)
    if source.kind == TEXT and kind == TEXT and name in ("", TEXT, *card.inputs):
        lines = text_lines(path)
        if len(lines) > TEXTS_LIMIT:
            raise UsageError(f"{path} has {len(lines)} texts; the limit for one run is {TEXTS_LIMIT}")
        return [read_line(line) for line in lines]
    return None


def _other_options(source: Input | None) -> str:
    """Return what a bundle without a text input takes instead."""
    if source is not None and source.kind in NAMES:
        return f"takes {NAMES[source.kind]}s: add -i FILE{PREPARED[source.kind][0]}"
    return (
        "has no such card: build it with --card card.toml (edgekit model card MODEL -o card.toml drafts "
        "one), or pass arrays with -i NAME=FILE.npy"
    )


def run_whole(session: Session, whole: Sound | Sequence[str]) -> tuple[Any, dict[str, Array]]:
    """Return the task's result (None without a task), and the outputs of the last run.

    Raises:
        As ``Session.predict``.
    """
    if isinstance(whole, Sound) and predicts_in_parts(session.card):
        return session.predict(whole.samples, rate=whole.rate), {}
    if isinstance(whole, Sound):
        listening = session.listen(whole.samples, rate=whole.rate)
        answer = listening.answer()
        if isinstance(answer, WindowPredictions) and len(answer) == 1:
            answer = answer[0].prediction
        return answer, dict(listening.outputs)
    answers, outputs = [], {}
    for text in whole:
        if predicts_in_parts(session.card):
            answers.append(TextPrediction(text, session.predict(text)))
            continue
        feeds, placed = session.prepare(text)
        outputs = session.run(feeds)
        if session.card.task is not None:
            answers.append(TextPrediction(text, session.decode(outputs, placed)))
    if len(answers) == 1:
        return answers[0].prediction, outputs
    return TextPredictions(answers) if answers else None, outputs
