"""State that a stream carries from one run to the next: a card's states, and the context of a recording."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.processing import processing
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol


class Carried:
    """The position in one stream: the states that its next run begins with, and what came before its window.

    Calls run one after the other, in the order in which they come. A run that fails carries nothing: the next
    one begins where it did. States are inputs and outputs of the source model, so that a fallback to another
    variant goes on with them.
    """

    def __init__(self, session: SessionProtocol) -> None:
        self._session, self._card = session, session.card
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin a new stream."""
        with self._lock:
            self._states: Mapping[str, Array] = self._card.initial_states(self._session.inputs)
            self._context: Array | None = None
            self._position = 0

    def run(self, item: Any, order: str = "rgb", rate: int | None = None) -> tuple[dict[str, Array], Any]:
        """Run once on the next item.

        Returns:
            The outputs, and what ``processing.decode`` needs beside them.

        Raises:
            As ``Session.prepare`` and ``Session.run``.
        """
        source = self._card.sources()[0]
        with self._lock:
            if source.kind != "audio":
                feeds, placed = processing.prepare(self._card, item, order, rate=rate)
                outputs = self._session.run({**feeds, **self._states})
            else:
                from edgekit.processing.audio_preparation import AudioWindow, mono, prepare_audio
                from edgekit.processing.inputs.audio import AudioInput

                assert isinstance(source, AudioInput)
                samples = mono(item, source, rate)
                feed = prepare_audio(source, samples, self._context)
                outputs = self._session.run({**self._card.constants(), **self._states, source.name: feed})
                start_s = self._position / source.rate
                placed = AudioWindow(start_s, start_s + len(samples) / source.rate)
                self._position += source.hop
                if source.context:
                    before = np.zeros(source.context) if self._context is None else self._context
                    missing = np.zeros(source.hop - len(samples))
                    self._context = np.concatenate([before, samples, missing])[-source.context :]
            self._states = {name: outputs[output] for name, output in self._card.states.items()}
            return outputs, placed
