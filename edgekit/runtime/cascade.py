"""A cascade on the device: a session for each later stage, run on the crops of what the first has found.

with Session("reader.edgekit") as session:      # a bundle that `edgekit bundle cascade` made
    for thing, details in session.predict(frame):
        print(thing.box, details["read"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import EngineError
from edgekit.processing import processing, yuv_frames
from edgekit.processing.cascade import CascadeStage, read_stages
from edgekit.processing.crops import cut, in_frame
from edgekit.processing.predictions.cascaded import Cascaded
from edgekit.processing.predictions.classify import Classes
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.processing.card import Card
    from edgekit.runtime.predictor import SessionProtocol


@dataclass(frozen=True)
class FrameAndPlacement:
    """Frame data that a cascade keeps between ``prepare`` and ``decode``.

    Attributes:
        frame: uint8 [height, width, 3].
    """

    frame: Array
    order: str
    placed: Any


class Cascade:
    """The later stages of a session.

    Raises:
        As ``open_session``.
    """

    def __init__(self, bundle: Bundle, open_session: Callable[[Bundle], SessionProtocol]) -> None:
        self.stages: tuple[CascadeStage, ...] = read_stages(
            bundle.manifest["cascade"]["stages"], "cascade.stages"
        )
        self.sessions: dict[str, SessionProtocol] = {}
        try:
            for stage in self.stages:
                self.sessions[stage.name] = open_session(bundle.stage(stage.name))
        except BaseException:
            self.close()
            raise

    def keep(self, frame: Array, order: str, placed: Any) -> FrameAndPlacement:
        """Return the frame data that ``decode`` needs."""
        if order in yuv_frames.SHAPES:
            frame, order = yuv_frames.rgb_frame(frame, order), "rgb"
        return FrameAndPlacement(frame, order, placed)

    def decode(
        self, card: Card, outputs: Mapping[str, Array], crops: Any, options: Mapping[str, Any]
    ) -> Cascaded:
        """Return the first stage's prediction, and what the later ones say of it.

        Raises:
            EngineError: things without a place; or as ``Session.predict`` of a stage.
        """
        prediction = processing.decode(card, outputs, crops.placed, **options)
        return self._look(prediction, crops.frame, crops.order)

    def _look(self, prediction: Any, frame: Array, order: str) -> Cascaded:
        details: list[dict[str, Any]] = [{} for _ in range(len(prediction))]
        quarters: dict[int, int] = {}
        for stage in self.stages:
            session = self.sessions[stage.name]
            for crop in cut(frame, prediction, stage):
                crop = crop.rotated(quarters.get(crop.index, 0))
                detail = session.predict(crop.pixels, order)
                details[crop.index][stage.name] = in_frame(detail, crop)
                if stage.turn:
                    quarters[crop.index] = quarters.get(crop.index, 0) + _quarters(detail, stage)
        return Cascaded(prediction, details)

    def close(self) -> None:
        """Close the sessions of all stages."""
        for session in self.sessions.values():
            session.close()


def _quarters(prediction: Any, stage: CascadeStage) -> int:
    """Return the number of quarter turns anticlockwise for a crop, from the best class of a stage."""
    if not isinstance(prediction, Classes):
        raise EngineError(
            f"stage {stage.name} turns crops by its class, and it predicts {type(prediction).__name__}; "
            "use a classifier"
        )
    best = prediction[0]
    return stage.turn.get(best.label, 0) // 90 if best.score >= stage.turn_score else 0
