"""PP-OCR's networks with their cards find and read lines that are drawn here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from edgekit.processing import load_card
from edgekit.processing.geometry.warp import crop_text
from edgekit.processing.processing import decode, prepare

pytestmark = [pytest.mark.needs_shared, pytest.mark.needs_ort]
CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
LINES = {"Invoice No. 48213": (40, 60, 0), "Hello world": (60, 200, 8), "price 19.99": (330, 330, -12)}
"""Text -> x, y and degrees anticlockwise."""


@pytest.mark.parametrize("upside_down", [False, True])
def test_a_page_is_read(shared: Path, upside_down: bool) -> None:
    page = Image.new("RGB", (640, 480), (245, 240, 230))
    for text, (x, y, angle) in LINES.items():
        font = ImageFont.load_default(34)
        width, height = (int(v) + 8 for v in font.getbbox(text)[2:])
        layer = Image.new("RGBA", (width, height), (0, 0, 0, 0))
        ImageDraw.Draw(layer).text((4, 4), text, font=font, fill=(20, 20, 60, 255))
        layer = layer.rotate(angle, expand=True, resample=Image.Resampling.BICUBIC)
        page.paste(layer, (x, y), layer)
    frame = np.asarray(page)
    if upside_down:
        frame = np.ascontiguousarray(frame[::-1, ::-1])
    read = []
    for corners in predict(shared, "ch_PP-OCRv4_det_infer", frame).corners:
        line = crop_text(frame, corners)
        turned = predict(shared, "ch_ppocr_mobile_v2.0_cls_infer", line)[0].label == "upside down"
        assert turned == upside_down
        line = np.ascontiguousarray(line[::-1, ::-1]) if turned else line
        text = predict(shared, "ch_PP-OCRv4_rec_infer", line).text
        read.append(text.replace(" ", ""))  # a space more or less is the network's
    expected = [text.replace(" ", "") for text in LINES]
    assert read == (expected[::-1] if upside_down else expected)


def predict(shared: Path, name: str, frame: Any) -> Any:
    import onnxruntime

    card = load_card(CARDS / f"{name}.toml")
    session = onnxruntime.InferenceSession(
        str(shared / "models" / f"{name}.onnx"), providers=["CPUExecutionProvider"]
    )
    feeds, placed = prepare(card, frame)
    names = [output.name for output in session.get_outputs()]
    return decode(card, dict(zip(names, session.run(None, feeds), strict=True)), placed)
