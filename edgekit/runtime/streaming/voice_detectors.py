"""Detection of speech in a few milliseconds of live audio: by a model, or by loudness."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing import processing
from edgekit.processing.inputs.audio import AudioInput
from edgekit.runtime.streaming.carried import Carried
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol

FRAME_S = 0.032
MEMORY_S = 10.0
"""The noise is the quietest frame of so many seconds."""
ABOVE_NOISE_DB, HYSTERESIS_DB = 12.0, 5.0
"""A frame is speech if it is louder than the noise by so much; speech ends if one is quieter than that
by the second."""
NOISE_DB = -60.0, -45.0
"""Least and greatest level that counts as noise, of full scale: a recording may begin amid speech."""
TINY = 1e-12


class VoiceDetector(Protocol):
    """Judges a recording frame by frame.

    Attributes:
        hop: Samples of a frame.
    """

    hop: int

    def is_speech(self, samples: Array) -> bool:
        """Return whether somebody speaks in the next frame, float64 [hop]."""


class LoudnessDetector:
    """Speech is louder than the quietest frame of the last seconds.

    Args:
        rate: Samples a second, in Hz.
    """

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
        rate: The audio's samples a second, in Hz.

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
