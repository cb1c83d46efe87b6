"""What the rest of the runtime needs of a session, so that none of it imports the session itself.

``Session`` is both; ``Budget``, which serves by several variants, is a ``Predictor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.cards.card import Card
    from edgekit.cards.predictions import ImagePlacement
    from edgekit.runtime.fallback.policy import Fallback
    from edgekit.runtime.session_state import Active
    from edgekit.target.contract import Runner
    from edgekit.tensors import Array, TensorSpec


class Predictor(Protocol):
    """Runs a bundle: arrays in and out, or a photograph in and the task's prediction out."""

    bundle: Bundle

    @property
    def active(self) -> Active | str:
        """What runs now; of a ``Budget`` the variant's name."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once; as ``Session.run``."""

    def predict(self, frame: Array, order: str = "rgb", **options: Any) -> Any:
        """The task's prediction for a photograph; as ``Session.predict``."""


class SessionProtocol(Predictor, Protocol):
    """A session on one bundle, with what its wrappers ask of it."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    threads: int

    @property
    def active(self) -> Active:
        """What runs now."""

    @property
    def card(self) -> Card:
        """The bundle's card."""

    @property
    def runner(self) -> Runner:
        """The loaded variant."""

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """How the active variant came to serve."""

    @property
    def history(self) -> tuple[Fallback, ...]:
        """The last changes of the variant that serves."""

    def prepare(self, frame: Array, order: str = "rgb") -> tuple[dict[str, Array], ImagePlacement]:
        """What ``run`` takes, from a photograph."""

    def decode(self, outputs: Mapping[str, Array], placed: ImagePlacement, **options: Any) -> Any:
        """The prediction, from what ``run`` gave."""
