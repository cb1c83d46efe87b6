"""Words of live audio, while somebody speaks.

    with Session("talk.edgekit") as session:
        for update in Transcriber(session).listen(microphone):
            print(update.text, end="", flush=True)

The audio since the last cut is transcribed again and again as it grows. Words that two successive
hypotheses share are committed (``processing/transcripts/agreement.py``), and all words when the speaker
pauses. The audio is cut at a pause once it is longer than half of ``longest_s``, and at the latest at that
length: memory and time do not grow. A slow machine makes fewer steps: a hypothesis starts only once the last
one would be finished if the audio came from a microphone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgekit.errors import EdgeKitError, UsageError
from edgekit.processing import processing
from edgekit.processing.audio_preparation import mono, quiet_place
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.transcripts.agreement import LocalAgreement
from edgekit.runtime.streaming.carried import Carried
from edgekit.runtime.streaming.listening import check_live_rate
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol

STEP_S, PAUSE_S, LONGEST_S = 1.0, 0.7, 20.0
PAD_S = 0.3
"""Seconds of audio that are kept before the first speech, and read after the last."""
SILENCE_S = 2.0
"""Seconds of silence after which earlier audio is dropped from the context."""
SPEECH_S = 0.1
"""Minimum seconds of speech that are transcribed; a click is shorter."""
FRAME_S = 0.032
MEMORY_S = 10.0
"""The noise is the quietest frame of so many seconds."""
ABOVE_NOISE_DB, HYSTERESIS_DB = 12.0, 5.0
"""A frame is speech if it is louder than the noise by so much; speech ends if one is quieter than that
by the second."""
NOISE_DB = -60.0, -45.0
"""Least and greatest level that counts as noise, of full scale: a recording may begin amid speech."""
TINY = 1e-12


@dataclass(frozen=True)
class TranscriptUpdate:
    """Text that changed.

    Attributes:
        text: Words that are final, with the space before them: all of these texts in turn are the whole one.
        start_s, end_s: Start and end of the transcribed audio, in seconds from its beginning.
        is_end: Whether the speaker paused, or the audio was cut, after ``text``.
    """

    text: str
    provisional: str
    start_s: float
    end_s: float
    is_end: bool
    seconds: float

    def as_json(self) -> dict[str, Json]:
        return {
            "text": self.text,
            "provisional": self.provisional,
            "start_s": round(self.start_s, 2),
            "end_s": round(self.end_s, 2),
            "is_end": self.is_end,
        }


class Transcriber:
    """Transcribes live audio. Not for several threads at once.

    A word is provisional after about a step and the time of one hypothesis, and final a step later.

    Args:
        session: A session on a speech model; it must outlive this. If an engine fails, the same hypothesis
            runs on the next variant.
        voice_activity: A session on a model with the task ``voice-activity`` and the same rate, which finds
            the pauses. None means loudness does.
        rate: Samples a second of the blocks, in Hz. None means the card's, which they must have.
        step_s: Seconds of new audio between two hypotheses.
        pause_s: Seconds without speech that end a phrase.
        longest_s: Seconds of audio that a hypothesis reads at most; then it is cut, at a pause if there was
            one. None means 20, or the model's window if that is shorter.
        clock: Returns seconds; measures how long a hypothesis takes.
        options: Decoding options that override the card's, e.g. ``language``.

    Raises:
        UsageError: the session's model is not a speech model, a rate differs, or a time is out of bounds.
    """

    def __init__(
        self,
        session: SessionProtocol,
        *,
        voice_activity: SessionProtocol | None = None,
        rate: int | None = None,
        step_s: float = STEP_S,
        pause_s: float = PAUSE_S,
        longest_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
        **options: Any,
    ) -> None:
        card = session.card
        source = card.sources()[0]
        if not isinstance(source, AudioInput) or not processing.predicts_in_parts(card):
            raise UsageError(
                f"{card.title} does not transcribe speech; session.listen goes through its windows"
            )
        check_live_rate(source, rate)
        window_s = source.window / source.rate
        longest_s = min(LONGEST_S, window_s) if longest_s is None else longest_s
        _check_times(step_s, pause_s, longest_s, window_s)
        if options.get("timestamps"):
            raise UsageError("a live sound is transcribed without timestamps; leave timestamps out")
        self._options = {**options, "timestamps": False}
        processing.predict_parts(card, session.run, np.zeros(1), None, self._options)  # checks the options
        self._session, self._source, self._clock = session, source, clock
        self._detector: VoiceDetector = (
            LoudnessDetector(source.rate)
            if voice_activity is None
            else ModelDetector(voice_activity, source.rate)
        )
        self._step, self._pause, self._longest = (
            round(duration_s * source.rate) for duration_s in (step_s, pause_s, longest_s)
        )
        self._context, self._pad = self._longest // 2, round(PAD_S * source.rate)
        self._silence, self._least_speech = round(SILENCE_S * source.rate), round(SPEECH_S * source.rate)
        self._waiting = np.zeros(0)
        self._sound = np.zeros(self._longest + self._detector.hop)
        self._length = self._position = 0
        self._speech = self._speech_end = self._read = self._settled = self._settled_words = 0
        self._free_s = 0.0
        self._agreement, self._hypothesis, self._provisional = LocalAgreement(), "", ""
        self._language = ""
        self._begun = self._is_open = False
        self._updates: list[TranscriptUpdate] = []

    def listen(self, blocks: Iterable[Array]) -> Iterator[TranscriptUpdate]:
        """Transcribe blocks of any length, e.g. a microphone's; yield an update wherever text changed.

        Raises:
            As ``feed``.
        """
        for block in blocks:
            yield from self.feed(block)
        yield from self.finish()

    def feed(self, block: Array) -> list[TranscriptUpdate]:
        """Transcribe the next block: floats (-1 to 1) or int16, [n] or [n, channels].

        Raises:
            UsageError: it is not audio.
            EngineError, NoVariantError: as ``Session.run``. The rest of the block is dropped; the next call
            goes on.
        """
        audio, self._waiting = np.concatenate([self._waiting, mono(block, self._source)]), np.zeros(0)
        hop = self._detector.hop
        for start in range(0, len(audio) - hop + 1, hop):
            self._take(audio[start : start + hop])
        self._waiting = audio[len(audio) - len(audio) % hop :]
        return self._fetched()

    def finish(self) -> list[TranscriptUpdate]:
        """Commit all words. Further blocks go on in the same recording."""
        if len(self._waiting):
            frame = np.zeros(self._detector.hop)
            frame[: len(self._waiting)], self._waiting = self._waiting, np.zeros(0)
            self._take(frame)
        if self._speech_end > self._settled:
            self._settle()
        self._restart()
        return self._fetched()

    def _fetched(self) -> list[TranscriptUpdate]:
        updates, self._updates = self._updates, []
        return updates

    def _take(self, frame: Array) -> None:
        speaks = self._detector.is_speech(frame)
        self._sound[self._length : self._length + len(frame)] = frame
        self._length += len(frame)
        self._position += len(frame)
        if speaks:
            self._speech += len(frame)
            self._speech_end = self._length
        if self._speech_end:
            self._advance()
        elif self._length > self._pad:
            self._cut(self._length - self._pad)

    def _advance(self) -> None:
        if self._length >= self._longest:
            self._shorten()
            return
        silence = self._length - self._speech_end
        is_free = self._position / self._source.rate >= self._free_s
        if silence < self._pause:
            if is_free and self._speech_end > self._read and self._length - self._read >= self._step:
                self._suppose()
        elif self._speech_end > self._settled:
            if is_free:
                self._settle()
        elif silence >= self._silence or self._length >= self._context:
            self._restart()

    def _suppose(self) -> None:
        """Run a hypothesis, and commit the words that it shares with the last one."""
        text, seconds = self._transcribed(self._length)
        self._hypothesis, self._read = text, self._length
        self._report(*self._agreement.agree(text), self._length, False, seconds)

    def _settle(self) -> None:
        text, seconds = self._hypothesis, 0.0
        if self._speech >= self._least_speech and self._read < self._speech_end + self._pad // 2:
            text, seconds = self._transcribed(self._length)
            self._hypothesis, self._read = text, self._length
        new = self._agreement.settle(text)
        self._settled, self._settled_words, self._speech = self._length, self._agreement.count, 0
        self._report(new, "", self._length, True, seconds)

    def _shorten(self) -> None:
        """Cut a recording that has become too long, at its last pause, or else where it is quiet."""
        if self._settled:
            self._agreement.drop(self._settled_words)
            self._cut(self._settled)
            return
        end = quiet_place(self._sound[: self._length], self._source.rate)
        try:
            text, seconds = self._transcribed(end)
        except EdgeKitError:
            self._restart()  # the sound is lost: it would grow
            raise
        self._report(self._agreement.close(text), "", end, True, seconds)
        self._cut(end)

    def _restart(self) -> None:
        self._agreement = LocalAgreement()
        self._cut(self._length - min(self._length, self._pad))
        self._speech = self._speech_end = 0

    def _transcribed(self, end: int) -> tuple[str, float]:
        began_s = self._clock()
        try:
            prediction = processing.predict_whole(
                self._session.card, self._session.run, self._sound[:end].copy(), None, self._options
            )
        finally:
            seconds = self._clock() - began_s
            self._free_s = max(self._free_s, self._position / self._source.rate) + seconds
        self._language = prediction.language
        return prediction.text, seconds

    def _report(self, new: str, provisional: str, end: int, is_end: bool, seconds: float) -> None:
        was_open, was_provisional = self._is_open, self._provisional
        self._is_open, self._provisional = (was_open or bool(new)) and not is_end, provisional
        if not new and provisional == was_provisional and not (is_end and was_open):
            return
        new, provisional = self._after_space(new), self._after_space(provisional, new)
        if new:
            self._begun = True
            if self._language:  # words were committed in it: it is not searched again
                self._options["language"] = self._language
        start_s = (self._position - self._length) / self._source.rate
        self._updates.append(
            TranscriptUpdate(new, provisional, start_s, start_s + end / self._source.rate, is_end, seconds)
        )

    def _after_space(self, text: str, before: str = "") -> str:
        """Return a text with the space that parts it from the words before it."""
        needs = text and not text[0].isspace() and (self._begun or before)
        return f" {text}" if needs else text

    def _cut(self, count: int) -> None:
        self._sound[: self._length - count] = self._sound[count : self._length].copy()
        self._length -= count
        self._speech_end = max(0, self._speech_end - count)
        self._read = self._settled = self._settled_words = 0
        self._hypothesis = ""


def _check_times(step_s: float, pause_s: float, longest_s: float, window_s: float) -> None:
    if min(step_s, pause_s, longest_s) <= 0:
        raise UsageError(
            f"step_s is {step_s:g}, pause_s {pause_s:g} and longest_s {longest_s:g}; all must be above 0"
        )
    if longest_s > window_s:
        raise UsageError(f"longest_s is {longest_s:g}; it must be at most the model's window, {window_s:g} s")


class VoiceDetector(Protocol):
    """Judges a recording frame by frame.

    Attributes:
        hop: Samples of a frame.
    """

    hop: int

    def is_speech(self, samples: Array) -> bool:
        """Return whether somebody speaks in the next frame, float64 [hop]."""


class LoudnessDetector:
    """Speech is louder than the quietest frame of the last seconds."""

    def __init__(self, rate: int) -> None:
        self.hop = max(1, round(FRAME_S * rate))
        self._levels: deque[float] = deque(maxlen=max(1, round(MEMORY_S / FRAME_S)))
        self._speaks = False

    def is_speech(self, samples: Array) -> bool:
        """Return whether somebody speaks in the next frame, float64 [hop]."""
        level_db = 10 * float(np.log10(np.square(samples).mean() + TINY))
        self._levels.append(level_db)
        noise_db = min(max(min(self._levels), NOISE_DB[0]), NOISE_DB[1])
        limit_db = noise_db + ABOVE_NOISE_DB - (HYSTERESIS_DB if self._speaks else 0.0)
        self._speaks = level_db >= limit_db
        return self._speaks


class ModelDetector:
    """Speech by a model with the task ``voice-activity``, e.g. Silero VAD.

    Args:
        session: A session on the model; it must outlive this.

    Raises:
        UsageError: the model has another task or another rate.
    """

    def __init__(self, session: SessionProtocol, rate: int) -> None:
        card = session.card
        source, task = card.sources()[0], card.task
        if task is None or task.kind != "voice-activity" or not isinstance(source, AudioInput):
            raise UsageError(f"{card.title} does not detect voice activity; its card needs that task")
        if source.rate != rate:
            raise UsageError(
                f"{card.title} takes sounds of {source.rate} Hz, but the speech model {rate} Hz; leave "
                "voice_activity out, or build it for that rate"
            )
        self.hop = source.hop
        self._card, self._carried = card, Carried(session)
        self._leave = max(task.options.threshold - task.options.hysteresis, 0.0)
        self._speaks = False

    def is_speech(self, samples: Array) -> bool:
        """Return whether somebody speaks in the next frame, float64 [hop].

        Raises:
            EngineError, NoVariantError: as ``Session.run``.
        """
        outputs, placed = self._carried.run(samples)
        prediction = processing.decode(self._card, outputs, placed)
        self._speaks = prediction.is_speech or (self._speaks and prediction.probability >= self._leave)
        return self._speaks
