"""Long or live audio, window by window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing import processing
from edgekit.processing.audio_preparation import mono, mono_pieces
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.predictions.windows import WindowPrediction, WindowPredictions
from edgekit.runtime.streaming.carried import Carried
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol


class Listening:
    """An iterator over the windows of one recording; made by ``Session.listen``.

    It has states of its own, zero at the start: several recordings can be listened to at a time, and
    ``Session.predict`` is not disturbed. The last window is filled up with zeros; samples that an earlier
    window held get none.

    Args:
        sound: Floats (-1 to 1) or int16, [n] or [n, channels]; or an iterable of such pieces of any length,
            e.g. a microphone's: then a window is predicted as soon as it is complete.
        rate: Samples a second, in Hz. None means the card's. Pieces must have the card's.
        options: Decoding options that override the card's.

    Attributes:
        outputs: The raw outputs of the last window; empty before the first one.

    Raises:
        UsageError: the card takes no audio, or pieces have another rate.
    """

    def __init__(
        self,
        session: SessionProtocol,
        sound: Array | Iterable[Array],
        *,
        rate: int | None = None,
        **options: Any,
    ) -> None:
        source = session.card.sources()[0]
        if not isinstance(source, AudioInput):
            raise UsageError(
                f"{session.card.title} does not take sound: its input {source.name} has kind {source.kind}"
            )
        if processing.predicts_in_parts(session.card):
            raise UsageError(
                f"{session.card.title} transcribes a sound as a whole: use predict(sound), or for a live "
                "sound Transcriber(session).listen(blocks)"
            )
        if not isinstance(sound, np.ndarray):
            check_live_rate(source, rate)
        self.outputs: Mapping[str, Array] = {}
        self._session, self._source, self._options = session, source, options
        if isinstance(sound, np.ndarray):
            self._windows = self._predict(mono_pieces(sound, source, rate))
        else:
            self._windows = self._predict(mono(piece, source, rate) for piece in sound)

    def __iter__(self) -> Iterator[WindowPrediction]:
        return self

    def __next__(self) -> WindowPrediction:
        return next(self._windows)

    def answer(self) -> Any:
        """Return the prediction for the whole recording, from all windows that are left: the task's own, e.g.
        ``SpeechSegments`` of voice activity; else ``WindowPredictions``."""
        windows = list(self)
        if self._session.card.task is not None:
            whole = processing.decode_windows(self._session.card, windows, **self._options)
            if whole is not None:
                return whole
        return WindowPredictions(windows)

    def _predict(self, pieces: Iterable[Array]) -> Iterator[WindowPrediction]:
        source = self._source
        capacity, hop = source.window - source.context, source.hop
        carried = Carried(self._session)
        waiting, covered = np.zeros(0), 0  # of the samples that wait, earlier windows held ``covered``
        for piece in pieces:
            waiting = np.concatenate([waiting, piece])
            while len(waiting) >= capacity:
                yield self._window(carried, waiting[:capacity])
                waiting, covered = waiting[hop:], capacity - hop
        if len(waiting) > covered:
            yield self._window(carried, waiting)

    def _window(self, carried: Carried, samples: Array) -> WindowPrediction:
        self.outputs, placed = carried.run(samples)
        card = self._session.card
        prediction: Any = self.outputs
        if card.task is not None:
            prediction = processing.decode(card, self.outputs, placed, **self._options)
        return WindowPrediction(placed.start_s, placed.end_s, prediction)


def check_live_rate(source: AudioInput, rate: int | None) -> None:
    """Check the rate of a recording that comes in pieces.

    Raises:
        UsageError: it is not the card's.
    """
    if rate not in (None, source.rate):
        raise UsageError(
            f"pieces of a sound must have the card's rate, {source.rate} Hz, not {rate}: give the whole "
            "sound, or resample it before"
        )


def predict_parts(
    session: SessionProtocol, item: Any, *, rate: int | None = None, **options: Any
) -> Iterator[Any]:
    """Predict for a string that is written, or a long recording; iterate over the predictions so far.

        for written in predict_parts(session, "A text."):
            show(written.text)

    Args:
        item: A string. Audio: floats from -1 to 1 or int16, [n] or [n, channels].
        rate: Sample rate of a recording in Hz. None means the card's.
        options: Decoding options that override the card's.

    Raises:
        UsageError: the session predicts in one run, the item does not fit, or an option is unknown.
        EngineError: all variants failed.
    """
    if not processing.predicts_in_parts(session.card):
        raise UsageError(f"{session.card.title} predicts in one run: use session.predict")
    return processing.predict_parts(session.card, session.run, item, rate, options)
