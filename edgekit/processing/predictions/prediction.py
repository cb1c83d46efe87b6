"""Base of all predictions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit.errors import UsageError, no_attribute
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from PIL import Image

    from edgekit.processing.drawing import Canvas

LINES_SHOWN = 3
HABITS = {"plot": "draw(image) returns the image with it", "save": "draw(image).save(path) writes the image",
          "show": "draw(image).show() shows the image"}  # fmt: skip
"""Names that people try on a prediction -> ours."""


class Prediction:
    """Base of every task's prediction. ``str`` gives its text for people, one line for each object."""

    def as_json(self) -> Json:
        """Return JSON for programs."""
        raise NotImplementedError

    def draw(self, image: Any, order: str = "rgb") -> Image.Image:
        """Draw the prediction into the image that it is of.

        Args:
            image: What ``predict`` takes: an array, a path, bytes, a Pillow image. It is not changed.
            order: Order of an array's channels, ``rgb`` or ``bgr``.

        Returns:
            A Pillow image: ``save`` writes it, and a notebook shows it.

        Raises:
            UsageError: this kind of prediction is not drawn.
            MissingDependency: Pillow is not installed.
        """
        from edgekit.processing.drawing import Canvas
        from edgekit.processing.read_item import read_image

        canvas = Canvas(read_image(image, order))
        self.draw_on(canvas)
        return canvas.image

    def draw_on(self, canvas: Canvas) -> None:
        """Draw the prediction into a canvas, which holds the image that it is of.

        Raises:
            UsageError: this kind of prediction is not drawn.
        """
        raise UsageError(
            f"a prediction of type {type(self).__name__} cannot be drawn; print it, or use its as_json()"
        )

    def __repr__(self) -> str:
        lines = [" ".join(line.split()) for line in str(self).splitlines()]
        more = f"; and {len(lines) - LINES_SHOWN} more" if len(lines) > LINES_SHOWN else ""
        return f"<{type(self).__name__}: {'; '.join(lines[:LINES_SHOWN]) or 'nothing'}{more}>"

    def _repr_html_(self) -> str:
        from edgekit.system.formats.shown import html_rows, preformatted

        rows = self.as_json()
        is_table = isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
        return html_rows(rows) if is_table else preformatted(str(self))

    if TYPE_CHECKING:

        def __str__(self) -> str: ...

    else:  # a type checker finds wrong names itself

        def __getattr__(self, name: str) -> NoReturn:
            raise no_attribute(self, name, HABITS)


if TYPE_CHECKING:

    class AnyPrediction(Prediction):
        """Prediction of a task that the type checker does not know; ``Session[Detections]`` names it."""

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: int) -> Any: ...
        def __iter__(self) -> Iterator[Any]: ...
        def __len__(self) -> int: ...
