"""A sample for one model, from the table's few words: a photograph, a drawn line, a spoken word."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont, ImageOps


def write_sample(given: Mapping[str, Any], folder: Path, data: Path) -> Path:
    """Write the sample into a folder.

    Args:
        given: ``photo``: a file in ``data``, of which ``cut`` [x1, y1, x2, y2] is taken; ``line``: a text to
            draw, ``upside_down``; ``page``: several lines, ``turn`` in degrees; ``say``: what espeak-ng
            says; ``sentence``: text as it is.
        folder: Where it goes.
        data: The folder of photographs.
    """
    if "photo" in given:
        with Image.open(data / given["photo"]) as opened:
            picture = ImageOps.exif_transpose(opened).convert("RGB")
        if "cut" in given:
            picture = picture.crop(tuple(given["cut"]))
        return _saved(picture.rotate(given.get("turn", 0), expand=True), folder)
    if "line" in given:
        line = draw_line(given["line"], given.get("size", 32))
        return _saved(line.rotate(180) if given.get("upside_down") else line, folder)
    if "page" in given:
        page = Image.new("RGB", (640, 640), "white")
        for number, text in enumerate(given["page"]):
            page.paste(draw_line(text, 36), (60, 80 + 140 * number))
        return _saved(page.rotate(given.get("turn", 0), expand=True), folder)
    if "say" in given:
        path = folder / "sample.wav"
        silence = f"[[{'_:' * int(given.get('silence', 0) * 10)}]]" if given.get("silence") else ""
        subprocess.run(["espeak-ng", "-w", str(path), silence + given["say"]], check=True)
        return path
    path = folder / "sample.txt"
    path.write_text(given["sentence"], "utf-8")
    return path


def draw_line(text: str, size: int) -> Image.Image:
    """A line of black type on white."""
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    line = Image.new("RGB", (int(right - left) + 16, int(bottom - top) + 16), "white")
    ImageDraw.Draw(line).text((8 - left, 8 - top), text, "black", font)
    return line


def _saved(picture: Image.Image, folder: Path) -> Path:
    path = folder / "sample.png"
    picture.save(path)
    return path
