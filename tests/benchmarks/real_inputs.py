"""Inputs like those that networks for text and speech will see, made without data: rendered lines and pages,
words that espeak-ng says. Seeded: the same bytes each time."""

from __future__ import annotations

import io
import subprocess
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from edgekit.processing import load_card
from edgekit.processing.processing import prepare
from edgekit.tensor_spec import Array

CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"

WORDS = (
    "invoice", "total", "amount", "date", "street", "order", "number", "customer", "price", "fresh",
    "bread", "market", "north", "station", "exit", "open", "closed", "warning", "private", "parking",
    "danger", "water", "coffee", "ticket", "platform", "monday", "friday", "please", "do", "not", "enter",
)  # fmt: skip
SPOKEN = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
RATE = 16_000


def write_lines(folder: Path, count: int, upside_down: bool = False) -> None:
    """Lines of text as ``<number>.png``; with ``upside_down`` every other one is turned."""
    rng = np.random.default_rng(7)
    for number in range(count):
        picture = _line(rng)
        if upside_down and number % 2:
            picture = picture.transpose(Image.Transpose.ROTATE_180)
        picture.save(folder / f"{number:03}.png")


def write_pages(folder: Path, photographs: Sequence[Path], count: int) -> None:
    """Photographs with lines put on them, every third one as it is, as ``<number>.png``."""
    rng = np.random.default_rng(8)
    for number, path in zip(range(count), photographs, strict=False):
        with Image.open(path) as opened:
            page = opened.convert("RGB")
        for _ in range(0 if number % 3 == 0 else int(rng.integers(2, 7))):
            line = _line(rng)
            width = min(line.width, page.width - 1)
            line = line.resize((width, max(round(line.height * width / line.width), 1)))
            at = tuple(int(rng.integers(0, max(a - b, 1))) for a, b in zip(page.size, line.size, strict=True))
            page.paste(line, (at[0], at[1]))
        page.save(folder / f"{number:03}.png")


def _line(rng: np.random.Generator) -> Image.Image:
    """A few words and a number, dark on light or light on dark, a little blurred, tilted and noisy."""
    words = [str(rng.choice(WORDS)) for _ in range(int(rng.integers(1, 4)))]
    text = " ".join([*words, str(rng.integers(0, 10_000))] if rng.random() < 0.5 else words)
    text = text.upper() if rng.random() < 0.3 else text.capitalize()
    font = ImageFont.load_default(int(rng.integers(22, 40)))
    left, top, right, bottom = font.getbbox(text)
    margin = int(rng.integers(4, 12))
    paper, ink = rng.integers(150, 256, 3), rng.integers(0, 90, 3)
    if rng.random() < 0.3:
        paper, ink = ink, paper
    size = (round(right - left) + 2 * margin, round(bottom - top) + 2 * margin)
    picture = Image.new("RGB", size, tuple(map(int, paper)))
    ImageDraw.Draw(picture).text((margin - left, margin - top), text, tuple(map(int, ink)), font)
    tilted = picture.rotate(
        float(rng.uniform(-2, 2)), Image.Resampling.BICUBIC, fillcolor=tuple(map(int, paper))
    )
    blurred = tilted.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1))))
    noisy = np.asarray(blurred, np.float32) + rng.normal(0, rng.uniform(0, 8), (size[1], size[0], 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def write_words(folder: Path, espeak: str) -> list[tuple[Path, int]]:
    """Ten words in several voices, speeds and pitches as MFCC ``[1, 49, 10, 1]``; files and class indices."""
    card = load_card(CARDS / "kws_ref_model_float32.toml")
    found = []
    for name, index, sound in spoken_words(espeak):
        path = folder / f"{name}.npy"
        np.save(path, prepare(card, sound)[0]["input_1"])
        found.append((path, index))
    return found


def spoken_words(espeak: str) -> Iterator[tuple[str, int, Array]]:
    """Ten words in several voices, speeds and pitches: name, class index and a second of samples."""
    for voice in ("en-us", "en-gb", "en-gb-scotland"):
        for speed, pitch in ((120, 30), (145, 60), (170, 45)):
            for index, word in enumerate(SPOKEN):
                told = [espeak, "--stdout", "-v", voice, "-s", str(speed), "-p", str(pitch), word]
                spoken = subprocess.run(told, capture_output=True, check=True).stdout
                yield f"{word}-{voice}-{speed}", index, _second(spoken)


def _second(content: bytes) -> Array:
    """A second of sound, float32 [16000], what is not silent in its middle."""
    with wave.open(io.BytesIO(content)) as file:
        rate, frames = file.getframerate(), file.readframes(1 << 30)
    sound = np.frombuffer(frames, np.int16).astype(np.float32)
    at = np.arange(round(sound.size * RATE / rate)) * (rate / RATE)
    sound = np.interp(at, np.arange(sound.size), sound)
    loud = np.flatnonzero(np.abs(sound) > 0.01 * np.abs(sound).max())
    sound = sound[loud[0] : loud[-1] + 1][:RATE]
    whole = np.zeros(RATE, np.float32)
    start = (RATE - sound.size) // 2
    whole[start : start + sound.size] = sound
    return whole
