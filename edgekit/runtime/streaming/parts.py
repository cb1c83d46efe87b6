"""A prediction that is made in several runs, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.processing import processing

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol


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
