"""From samples to features: spectrograms, mel filter banks and MFCC.

    frame      x = samples[i hop : i hop + frame]; less its mean (remove_dc); x[j] - preemphasis x[j - 1]
    spectrum   |rfft(window x)| ^ power
    mel        sum over bins of spectrum times a band's triangle
    log        ln, log10 or 10 log10 of max(value + offset, floor), at least the greatest one - range
    mfcc       sqrt(2 / N) sum_n log[n] cos(pi k (n + 1/2) / N), coefficient 0 by sqrt(1 / N) (``ortho``)
    cmvn       less its mean over the frames, divided by its standard deviation

Everything is computed in float64, so that the rounding of other processors and of other versions of numpy
does not show in float32.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from edgekit.processing.inputs.audio_features import Features
from edgekit.processing.serial_product import serial_product
from edgekit.tensor_spec import Array

BLOCK_FRAMES = 256
"""Frames that are transformed at a time: 1 MB of scratch memory at 512 points."""
DEVIATION_LEAST = 1e-8
"""A feature that never changes is divided by this, and stays 0."""
POVEY_EXPONENT = 0.85  # Kaldi, feat/feature-window.cc


def compute_features(samples: Array, features: Features, rate: int) -> Array:
    """Compute the features of a window.

    Args:
        samples: float64 [n], at least one frame.

    Returns:
        float64 [frames, features].
    """
    if features.center == "reflect":
        samples = np.pad(samples, features.n_fft // 2, "reflect")
    elif features.center == "constant":
        samples = np.pad(samples, features.n_fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(samples, features.cut)[:: features.hop]
    bands = _filter_bank(features, rate) if features.kind != "spectrogram" else None
    taper = _taper(features)
    blocks = [
        _spectrum(frames[first : first + BLOCK_FRAMES], features, taper, bands)
        for first in range(0, len(frames), BLOCK_FRAMES)
    ]
    values = _logarithm(np.concatenate(blocks), features)
    if features.kind == "mfcc":
        values = serial_product(values, _cosines(features))
    if features.cmvn != "none":
        values -= values.mean(0)
    if features.cmvn == "mean-std":
        values /= np.maximum(np.sqrt(np.square(values).mean(0)), DEVIATION_LEAST)
    return values


def _spectrum(frames: Array, features: Features, taper: Array, bands: Array | None) -> Array:
    if features.remove_dc:
        frames = frames - frames.mean(1, keepdims=True)
    if features.preemphasis:
        before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)  # the first one is its own
        frames = frames - features.preemphasis * before
    spectrum = np.fft.rfft(frames * taper, features.n_fft)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    values = power if features.power == 2 else np.sqrt(power)
    return values if bands is None else serial_product(values, bands)


def _logarithm(values: Array, features: Features) -> Array:
    if features.log == "none":
        return values
    values = np.maximum(values + features.offset, features.floor)
    logarithms: Array = np.log(values) if features.log == "ln" else np.log10(values)
    if features.log == "db":
        logarithms *= 10
    return np.maximum(logarithms, logarithms.max() - features.range) if features.range else logarithms


@lru_cache(maxsize=8)
def _taper(features: Features) -> Array:
    """Compute the window function [cut]. ``align = "center"`` puts it into the middle of ``n_fft``
    samples."""
    size = features.frame
    symmetric = features.window.endswith("-symmetric") or features.window == "povey"
    angle = 2 * np.pi * np.arange(size) / (size - 1 if symmetric else size)
    if features.window == "rectangular":
        taper = np.ones(size)
    elif features.window.startswith("hamming"):
        taper = 0.54 - 0.46 * np.cos(angle)
    else:
        taper = 0.5 - 0.5 * np.cos(angle)
    if features.window == "povey":
        taper **= POVEY_EXPONENT
    missing = features.cut - size
    padded: Array = np.pad(taper, (missing // 2, missing - missing // 2))
    return padded


@lru_cache(maxsize=8)
def _filter_bank(features: Features, rate: int) -> Array:
    """Compute triangles [bins, mels]. Each rises from the centre of the band below, and falls to the centre
    of the band above."""
    hertz = np.arange(features.n_fft // 2 + 1) * (rate / features.n_fft)
    ends = _mel(np.array([features.fmin, features.fmax or rate / 2]), features)
    edges = np.linspace(ends[0], ends[1], features.mels + 2)
    edges_hertz = _hertz(edges, features)
    bins, corners = (hertz, edges_hertz) if features.triangles == "hz" else (_mel(hertz, features), edges)
    low, middle, high = corners[:-2], corners[1:-1], corners[2:]
    rising = (bins[:, None] - low) / (middle - low)
    falling = (high - bins[:, None]) / (high - middle)
    bands: Array = np.maximum(0.0, np.minimum(rising, falling))
    if features.mel_norm == "slaney":
        bands *= 2.0 / (edges_hertz[2:] - edges_hertz[:-2])
    return bands


SLANEY_HERTZ, SLANEY_MEL, SLANEY_STEP = 1000.0, 15.0, np.log(6.4) / 27.0
"""Slaney, Auditory Toolbox: linear up to 1000 Hz = 15 mel, then 27 mel for each factor of 6.4."""


def _mel(hertz: Array, features: Features) -> Array:
    if features.mel_scale == "htk":
        return 2595.0 * np.log10(1.0 + hertz / 700.0)
    above = SLANEY_MEL + np.log(np.maximum(hertz, SLANEY_HERTZ) / SLANEY_HERTZ) / SLANEY_STEP
    return np.where(hertz < SLANEY_HERTZ, hertz * (SLANEY_MEL / SLANEY_HERTZ), above)


def _hertz(mel: Array, features: Features) -> Array:
    if features.mel_scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    above = SLANEY_HERTZ * np.exp(SLANEY_STEP * (np.maximum(mel, SLANEY_MEL) - SLANEY_MEL))
    return np.where(mel < SLANEY_MEL, mel * (SLANEY_HERTZ / SLANEY_MEL), above)


@lru_cache(maxsize=8)
def _cosines(features: Features) -> Array:
    bands = features.mels
    angles = np.pi / bands * (np.arange(bands)[:, None] + 0.5) * np.arange(features.coefficients)
    cosines: Array = np.sqrt(2.0 / bands) * np.cos(angles)
    if features.dct == "ortho":
        cosines[:, 0] *= np.sqrt(0.5)
    return cosines
