"""An input that is a recording, or features of one: ``kind = "audio"`` in a card."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np

from edgekit.errors import CardError
from edgekit.processing.inputs.audio_features import Features, read_features
from edgekit.system.formats.strict_tables import choice, get, only, whole_numbers
from edgekit.tensor_spec import Json

Normalize = Literal["none", "max", "peak", "mean-std"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "normalize": ("none", "max", "peak", "mean-std"),
    "layout": ("TF", "FT"),
    "dtype": ("float32", "float16", "int16", "int8", "uint8"),
}
RATE_LIMIT_HZ = 768_000
WINDOW_LIMIT = 1 << 24
"""Most samples of a window: 17 minutes at 16 kHz."""


@dataclass(frozen=True)
class AudioInput:
    """Audio input: a window of a recording, or its features.

    Attributes:
        name: The input's name in the model.
        shape: Static shape. With ``features``, the dimensions other than 1 are frames and features.
        rate: Sample rate of the training data, in Hz.
        window: Samples per run, including those of ``context``. Default: computed from ``shape``.
        hop: Samples from the start of a window to the start of the next one. Default: ``window - context``.
        context: Samples repeated from the end of the previous window; zeros for the first window.
        normalize: Normalization of the samples: ``max`` divides by the maximum, ``peak`` by the maximum
            magnitude; ``mean-std`` gives mean 0 and variance 1.
        full_scale: Value of a full-scale sample; 32768 for models that were trained on int16.
        features: Table of feature settings. Without it, the model takes the samples.
        layout: Axis order of the features: frames first (``TF``) or last (``FT``).
        mean: input = (value - mean) / std, where the value is a sample or a feature.
        std: Divisor in the formula of ``mean``.
        dtype: Data type of the input; integers are rounded and clipped.
    """

    kind: ClassVar[str] = "audio"

    name: str
    shape: tuple[int, ...]
    rate: int
    window: int
    hop: int
    context: int = 0
    normalize: Normalize = "none"
    full_scale: float = 1.0
    features: Features | None = None
    layout: Literal["TF", "FT"] = "TF"
    mean: float = 0.0
    std: float = 1.0
    dtype: str = "float32"

    @property
    def range(self) -> tuple[float, float] | None:
        """Least and greatest value that samples can give; None for features."""
        if self.features is not None or self.normalize == "mean-std":
            return None
        scale = self.full_scale if self.normalize == "none" else 1.0
        low, high = (-scale - self.mean) / self.std, (scale - self.mean) / self.std
        if np.dtype(self.dtype).kind in "iu":
            info = np.iinfo(self.dtype)
            low, high = max(round(low), info.min), min(round(high), info.max)
        return float(low), float(high)

    def as_json(self) -> dict[str, Json]:
        table = {key: value for key, value in asdict(self).items() if key not in ("name", "features")}
        table = {"kind": "audio", **table, "shape": list(self.shape)}
        if self.features is None:
            table.pop("layout")
        else:
            table["features"] = self.features.as_json()
        return table


def read_audio(name: str, table: dict[str, Json], location: str) -> AudioInput:
    """Read the audio input of a card's table.

    Raises:
        CardError: it is malformed.
    """
    only(table, ("kind", *(f.name for f in fields(AudioInput) if f.name != "name")), location)
    shape = whole_numbers(table, "shape", location, minimum=1)
    rate = _count(table, "rate", location, 1, RATE_LIMIT_HZ)
    settings: dict[str, Any] = {
        key: choice(table, key, CHOICES[key], location) for key in CHOICES if key in table
    }
    for key in ("full_scale", "mean", "std"):
        if key in table:
            settings[key] = get(table, key, float, location)
    for key in ("full_scale", "std"):
        if settings.get(key, 1.0) <= 0:
            raise CardError(f"{location}.{key} is {settings[key]:g}; it must be above 0")
    if "features" in table:
        settings["features"] = read_features(table["features"], rate, f"{location}.features")
    elif "layout" in table:
        raise CardError(f"{location}.layout needs features; samples have no frames")
    features: Features | None = settings.get("features")
    whole = math.prod(shape) if features is None else _samples(shape, features, settings.get("layout", "TF"))
    window = _count(table, "window", location, 1, WINDOW_LIMIT) if "window" in table else whole
    context = _count(table, "context", location, 0, WINDOW_LIMIT) if "context" in table else 0
    if window > WINDOW_LIMIT or context >= window:
        raise CardError(
            f"{location}: a window has {window} samples and a context of {context}; it must be at most "
            f"{WINDOW_LIMIT}, and its context shorter"
        )
    hop = _count(table, "hop", location, 1, WINDOW_LIMIT) if "hop" in table else window - context
    if hop > window:
        raise CardError(f"{location}.hop is {hop}; it must be at most a window, {window} samples")
    if context and hop != window - context:
        raise CardError(
            f"{location}.hop is {hop}; with a context it must be window - context, {window - context}"
        )
    if context and settings.get("normalize", "none") != "none":
        raise CardError(f"{location}.normalize cannot be combined with a context")
    entry = AudioInput(name, shape, rate, window, hop, context, **settings)
    _check_shape(entry, location)
    return entry


def frames_and_features(entry: AudioInput) -> tuple[int, int]:
    """Return the input's number of frames and of features per frame. Its features must not be None."""
    assert entry.features is not None
    count = entry.features.count
    return math.prod(entry.shape) // count, count


def _samples(shape: tuple[int, ...], features: Features, layout: str) -> int:
    """Compute the number of samples that produces exactly the frames of the input."""
    frames = max(1, math.prod(shape) // features.count)
    if features.center != "none":
        return max(1, (frames - 1) * features.hop)
    return (frames - 1) * features.hop + features.cut


def _check_shape(entry: AudioInput, location: str) -> None:
    shape, features = list(entry.shape), entry.features
    if features is None:
        if math.prod(shape) != entry.window:
            raise CardError(f"{location}.shape is {shape}, but a window has {entry.window} samples")
        return
    frames, count = features.frames(entry.window), features.count
    expected = [(frames, count)]
    if features.center != "none" and frames > 1:  # the last frame, whose middle is the window's end
        expected.append((frames - 1, count))
    if entry.layout == "FT":
        expected = [(second, first) for first, second in expected]
    has = [size for size in shape if size != 1]
    if not any(has == [size for size in pair if size != 1] for pair in expected):
        first, second = ("frames", "features") if entry.layout == "TF" else ("features", "frames")
        raise CardError(
            f"{location}.shape is {shape}; a window of {entry.window} samples gives {expected[0][0]} {first} "
            f"of {expected[0][1]} {second} (layout {entry.layout})"
        )


def _count(table: Mapping[str, Json], key: str, location: str, minimum: int, maximum: int) -> int:
    value: int = get(table, key, int, location)
    if not minimum <= value <= maximum:
        raise CardError(f"{location}.{key} is {value}; it must be from {minimum} to {maximum}")
    return value
