"""Protocols of a session, so that the rest of the runtime need not import the session itself.

``Session`` implements both; ``Budget``, which switches between variants, is a ``Predictor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.processing.card import Card
    from edgekit.runtime.fallback.policy import Fallback
    from edgekit.runtime.session_state import Active
    from edgekit.target.contract import Runner
    from edgekit.tensor_spec import Array, Signature, TensorSpec


class Predictor(Protocol):
    """Runs a bundle: arrays in and out, or an image in and the task's prediction out."""

    bundle: Bundle

    @property
    def active(self) -> Active | str:
        """Return the active variant; of a ``Budget`` its name."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once; as ``Session.run``."""

    def predict(self, frame: Any, order: str = "rgb", **options: Any) -> Any:
        """Return the task's prediction for an image, audio or a string; as ``Session.predict``."""


class SessionProtocol(Predictor, Protocol):
    """A session on one bundle, with what its wrappers need."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    shapes: tuple[Signature, ...]
    threads: int

    @property
    def active(self) -> Active:
        """Return the active variant."""

    @property
    def card(self) -> Card:
        """Return the bundle's card."""

    @property
    def runner(self) -> Runner:
        """Return the loaded variant."""

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the fallbacks that led to the active variant."""

    @property
    def history(self) -> tuple[Fallback, ...]:
        """Return the last changes of the active variant."""

    def close(self) -> None:
        """Free the engine."""

    def prepare(self, frame: Any, order: str = "rgb") -> tuple[dict[str, Array], Any]:
        """Return the feeds of ``run``, from an image, audio or a string."""

    def decode(self, outputs: Mapping[str, Array], placed: Any, **options: Any) -> Any:
        """Return the prediction, from the outputs of ``run``."""
