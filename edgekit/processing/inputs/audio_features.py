"""Audio features of a card: the table ``features`` of an audio input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from edgekit.errors import CardError
from edgekit.system.formats.strict_tables import choice, get, kind_of, only
from edgekit.tensor_spec import Json

CHOICES: Mapping[str, tuple[str, ...]] = {
    "kind": ("spectrogram", "mel", "mfcc"),
    "window": ("hann", "hann-symmetric", "hamming", "hamming-symmetric", "povey", "rectangular"),
    "align": ("left", "center"),
    "center": ("none", "reflect", "constant"),
    "mel_scale": ("htk", "slaney"),
    "mel_norm": ("none", "slaney"),
    "triangles": ("hz", "mel"),
    "log": ("none", "ln", "log10", "db"),
    "dct": ("ortho", "htk"),
    "cmvn": ("none", "mean", "mean-std"),
}
ONLY_WITH: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("mels", "fmin", "fmax", "mel_scale", "mel_norm", "triangles"), ("mel", "mfcc")),
    **dict.fromkeys(("coefficients", "dct"), ("mfcc",)),
}
"""A key that means something with some kinds only, and is refused with the others."""
LIMITS: Mapping[str, tuple[int, int]] = {
    "frame": (2, 16384),
    "hop": (1, 16384),
    "n_fft": (2, 16384),
    "mels": (1, 1024),
    "coefficients": (1, 1024),
    "power": (1, 2),
}


@dataclass(frozen=True)
class Features:
    """Feature settings of an audio input (formulas: ``edgekit/processing/audio_features.py``).

    Attributes:
        kind: ``spectrogram``, ``mel`` (a mel filter bank's energies), ``mfcc`` (their cosine transform).
        frame: Frame length in samples (``win_length`` in other libraries).
        hop: Samples from one frame to the next.
        n_fft: Points of the Fourier transform. Default: the smallest power of two that is not below
            ``frame``.
        window: Window function of a frame. ``-symmetric`` windows are for filters; plain ones are periodic.
        align: Position of a frame in its ``n_fft`` points: ``left`` (TensorFlow, Kaldi) or ``center``
            (librosa, PyTorch, which take ``n_fft`` samples a frame).
        center: Padding of half of ``n_fft`` at both ends, which centres the first frame on the first sample.
        power: Exponent: 1 for magnitude, 2 for power.
        preemphasis: Coefficient applied to each frame: x[i] - preemphasis x[i - 1], as in Kaldi.
        remove_dc: Whether each frame's mean is subtracted first.
        mels: Number of bands of the filter bank. Required for ``mel`` and ``mfcc``.
        fmin, fmax: Frequency limits of the filter bank in Hz. An ``fmax`` of 0 is half of the sample rate.
        mel_scale: ``htk``: 2595 log10(1 + f / 700); ``slaney``: linear to 1 kHz, then logarithmic.
        mel_norm: ``slaney``: each band is divided by half of its width in Hz.
        triangles: Scale with linear band slopes: Hz (librosa, PyTorch) or mel (TensorFlow, Kaldi).
        log: Logarithm; ``db`` is 10 log10.
        offset: Value added before the logarithm.
        floor: Minimum value before the logarithm.
        range: Dynamic range: values further below the maximum are raised to it. 0 disables this.
        coefficients: Number of leading MFCC coefficients to keep. Required for ``mfcc``.
        dct: Scale of MFCC coefficient 0. ``htk`` (TensorFlow) scales it like the others.
        cmvn: Normalization of each feature over the frames: subtract the mean, also divide by the deviation.
    """

    kind: Literal["spectrogram", "mel", "mfcc"]
    frame: int
    hop: int
    n_fft: int
    window: str = "hann"
    align: Literal["left", "center"] = "left"
    center: Literal["none", "reflect", "constant"] = "none"
    power: int = 2
    preemphasis: float = 0.0
    remove_dc: bool = False
    mels: int = 0
    fmin: float = 0.0
    fmax: float = 0.0
    mel_scale: Literal["htk", "slaney"] = "htk"
    mel_norm: Literal["none", "slaney"] = "none"
    triangles: Literal["hz", "mel"] = "hz"
    log: Literal["none", "ln", "log10", "db"] = "none"
    offset: float = 0.0
    floor: float = 0.0
    range: float = 0.0
    coefficients: int = 0
    dct: Literal["ortho", "htk"] = "ortho"
    cmvn: Literal["none", "mean", "mean-std"] = "none"

    @property
    def count(self) -> int:
        """Features of a frame."""
        return {"spectrogram": self.n_fft // 2 + 1, "mel": self.mels, "mfcc": self.coefficients}[self.kind]

    @property
    def cut(self) -> int:
        """Samples that are cut out for a frame."""
        return self.frame if self.align == "left" else self.n_fft

    def frames(self, samples: int) -> int:
        """Return the number of frames of this many samples."""
        padded = samples + (2 * (self.n_fft // 2) if self.center != "none" else 0)
        return 0 if padded < self.cut else 1 + (padded - self.cut) // self.hop

    def as_json(self) -> dict[str, Json]:
        names = [f.name for f in fields(self) if self.kind in ONLY_WITH.get(f.name, (self.kind,))]
        return {key: getattr(self, key) for key in names}


def read_features(table: Json, rate: int, location: str) -> Features:
    """Read the features of a card's table.

    Raises:
        CardError: it is malformed.
    """
    if not isinstance(table, dict):
        raise CardError(f"{location} must be a table, not {kind_of(table)}")
    only(table, tuple(f.name for f in fields(Features)), location)
    settings: dict[str, Any] = {"kind": choice(table, "kind", CHOICES["kind"], location)}
    for key, kinds in ONLY_WITH.items():
        if key in table and settings["kind"] not in kinds:
            raise CardError(f"{location}.{key} needs kind = {' or '.join(map(repr, kinds))}")
    needed = {"frame", "hop", *(("mels",) if settings["kind"] != "spectrogram" else ())}
    needed |= {"coefficients"} if settings["kind"] == "mfcc" else set()
    for field in fields(Features)[1:]:
        key = field.name
        if key not in table and key not in needed:
            continue
        if key in CHOICES:
            settings[key] = choice(table, key, CHOICES[key], location)
        elif key in LIMITS:
            settings[key] = _count(table, key, location)
        else:
            settings[key] = get(table, key, bool if key == "remove_dc" else float, location)
    settings.setdefault("n_fft", 1 << (settings["frame"] - 1).bit_length())
    _check(settings, rate, location)
    return Features(**settings)


def _check(features: Mapping[str, Any], rate: int, location: str) -> None:
    if features["n_fft"] < features["frame"]:
        raise CardError(
            f"{location}.n_fft is {features['n_fft']}; it must hold a frame, {features['frame']} samples"
        )
    for key in ("offset", "floor", "range", "fmin", "fmax"):
        if features.get(key, 0.0) < 0:
            raise CardError(f"{location}.{key} is {features[key]:g}; it must not be below 0")
    if not 0 <= features.get("preemphasis", 0.0) < 1:
        raise CardError(
            f"{location}.preemphasis is {features['preemphasis']:g}; it must be from 0 to below 1"
        )
    low, high = features.get("fmin", 0.0), features.get("fmax", 0.0) or rate / 2
    if not low < high <= rate / 2:
        raise CardError(
            f"{location}: the bands go from {low:g} to {high:g} Hz; fmin must be below fmax, and that at "
            f"most half of the rate, {rate / 2:g}"
        )
    if features["kind"] == "mfcc" and features["coefficients"] > features["mels"]:
        raise CardError(
            f"{location}.coefficients is {features['coefficients']}; the maximum for {features['mels']} bands"
        )
    logarithmic = features.get("log", "none") != "none"
    if features["kind"] == "mfcc" and not logarithmic:
        raise CardError(f"{location}.log is 'none'; MFCC need logarithms: ln, log10 or db")
    if logarithmic and not features.get("offset", 0.0) and not features.get("floor", 0.0):
        raise CardError(
            f"{location}.log needs an offset or a floor, since silence has no logarithm; e.g. 1e-6"
        )
    for key in ("offset", "floor", "range"):
        if key in features and not logarithmic:
            raise CardError(f"{location}.{key} needs log, but log is 'none'")


def _count(table: Mapping[str, Json], key: str, location: str) -> int:
    value: int = get(table, key, int, location)
    minimum, maximum = LIMITS[key]
    if not minimum <= value <= maximum:
        raise CardError(f"{location}.{key} is {value}; it must be from {minimum} to {maximum}")
    return value
