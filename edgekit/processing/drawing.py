"""An image with its prediction drawn into it.

Each prediction draws itself (``Prediction.draw_on``). Sizes follow the image's; colours follow the class, and
every colour has its name or number next to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.system.atomic_files import write_atomically
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
"""Suffix -> Pillow's name of the format."""
COLOURS = (
    (230, 25, 75), (0, 130, 200), (60, 180, 75), (245, 130, 48), (145, 30, 180), (0, 128, 128), (128, 0, 0),
    (240, 50, 230), (128, 128, 0), (0, 0, 128), (170, 110, 40), (70, 70, 70),
)  # fmt: skip
"""Dark enough for white text on them, and far from each other (Trubetskoy's list of distinct colours)."""
BLEND = 0.45
"""How much of a mask's colour covers the image."""


class Canvas:
    """An image that is drawn on.

    Args:
        picture: uint8 [height, width, 3], RGB.
    """

    def __init__(self, picture: Array) -> None:
        self._hold(picture)

    def _hold(self, picture: Array) -> None:
        from PIL import Image, ImageDraw, ImageFont

        self.image: Image.Image = Image.fromarray(np.ascontiguousarray(picture))
        self.pen: ImageDraw.ImageDraw = ImageDraw.Draw(self.image)
        self.side = min(self.image.size)
        self.line = max(2, round(self.side / 300))
        self.font: Any = ImageFont.load_default(max(12, self.side / 36))

    def show(self, pixels: Array) -> None:
        """Replace the image: uint8 [height, width], [height, width, 1] or [height, width, 3]."""
        pixels = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
        self._hold(pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2))

    def colour_of(self, index: int) -> tuple[int, int, int]:
        """Return the colour of a class or object, by its index."""
        return COLOURS[index % len(COLOURS)]

    def box(self, corners: Sequence[float], colour: tuple[int, int, int]) -> None:
        """Draw a rectangle x1, y1, x2, y2 in pixels, with its corners in any order."""
        x1, y1, x2, y2 = corners
        edges = [min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)]
        self.pen.rectangle(edges, outline=colour, width=self.line)

    def polygon(self, points: Sequence[tuple[float, float]], colour: tuple[int, int, int]) -> None:
        """Draw a closed line through points."""
        self.path([*points, points[0]], colour)

    def path(self, points: Sequence[tuple[float, float]], colour: tuple[int, int, int]) -> None:
        """Draw a line through points."""
        self.pen.line(list(points), fill=colour, width=self.line, joint="curve")

    def dot(self, point: tuple[float, float], colour: tuple[int, int, int], radius: float) -> None:
        """Draw a filled circle with a white rim, so that it is visible on its own colour."""
        x, y = point
        self.pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour, outline="white")

    def label(self, text: str, corner: tuple[float, float], colour: tuple[int, int, int]) -> None:
        """Draw text on a coloured background above a corner, or below it if there is no space above. The text
        stays within the image."""
        high = self.text_height
        self.text(text, (corner[0], corner[1] - high if corner[1] >= high else corner[1]), colour)

    @property
    def text_height(self) -> float:
        """Return the height of a line of text with its margins, in pixels. All texts share it."""
        return float(self.font.size + 2 * self.line)

    def text(self, text: str, corner: tuple[float, float], colour: tuple[int, int, int]) -> None:
        """Draw one line of text on a coloured background at its top left corner. The text stays within the
        image."""
        wide, high = self.pen.textlength(text, font=self.font) + 2 * self.line, self.text_height
        x = min(max(corner[0], 0), max(self.image.width - wide, 0))
        y = min(max(corner[1], 0), max(self.image.height - high, 0))
        self.pen.rectangle([x, y, x + wide, y + high], fill=colour)
        middle = (x + self.line, y + high / 2)
        self.pen.text(middle, text, fill="white", font=self.font, anchor="lm")

    def cover(self, mask: Array, colour: tuple[int, int, int], origin: tuple[int, int] = (0, 0)) -> None:
        """Tint the pixels of a mask.

        Args:
            origin: x, y of its top left pixel in the image.
        """
        from PIL import Image

        alpha = Image.fromarray(np.rint(np.asarray(mask, np.float32) * 255 * BLEND).astype(np.uint8))
        self.image.paste(Image.new("RGB", alpha.size, colour), origin, alpha)


def check_drawing(path: Path) -> None:
    """Refuse a path that no image is written to.

    Raises:
        UsageError: its suffix is none of FORMATS.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: the suffix of a drawing must be one of {', '.join(FORMATS)}")


def save_drawing(path: Path, picture: Image.Image) -> None:
    """Write an image, whole or not at all.

    Args:
        path: With a suffix of FORMATS.

    Raises:
        UsageError: the suffix is another one, or the file can't be written.
    """
    import io

    check_drawing(path)
    whole = io.BytesIO()
    picture.save(whole, FORMATS[path.suffix.lower()], quality=92)
    try:
        write_atomically(path, [whole.getvalue()])
    except OSError as problem:
        raise UsageError(f"can't write {path}: {problem.strerror}; choose another path") from None
