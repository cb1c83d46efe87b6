"""From a recording to a model's audio input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.audio_features import compute_features
from edgekit.processing.inputs.audio import RATE_LIMIT_HZ, AudioInput, frames_and_features
from edgekit.tensor_spec import Array

INT16_FULL_SCALE = 32768.0
PIECE_SAMPLES = 1 << 16
"""Samples of a long recording that are converted at a time."""
VARIANCE_LEAST = 1e-7
"""Added to the variance of ``mean-std``, as the feature extractors of wav2vec 2.0 do."""
QUIET_S, LEVEL_S = 5.0, 0.2
"""Seconds at a window's end in which a quiet place is searched, and over which loudness is averaged."""


class AudioWindow(NamedTuple):
    """Position of a window in its recording, in seconds. Padding after the recording's end is not counted."""

    start_s: float
    end_s: float


def mono(sound: Array, entry: AudioInput, rate: int | None = None) -> Array:
    """Return a recording's samples as one channel at the input's rate.

    Args:
        sound: Floats from -1 to 1 or int16, [n] or [n, channels], whose mean is taken.
        rate: Samples a second, in Hz. None means the input's.

    Returns:
        float64 [n], full scale is 1.

    Raises:
        UsageError: it is not audio.
    """
    if not isinstance(sound, np.ndarray):
        raise UsageError(f"a sound is a numpy array of floats or int16 [n], not a {type(sound).__name__}")
    if (sound.dtype.kind != "f" and sound.dtype != np.int16) or sound.ndim not in (1, 2) or not sound.size:
        raise UsageError(
            "a sound is floats (-1 to 1) or int16, [n] or [n, channels], "
            f"not {sound.dtype} {list(sound.shape)}"
        )
    samples: Array = sound.astype(np.float64)
    if sound.dtype == np.int16:
        samples /= INT16_FULL_SCALE
    if samples.ndim == 2:
        samples = samples[:, 0] if samples.shape[1] == 1 else samples.mean(1)
    if not np.isfinite(samples).all():
        raise UsageError("a sound has samples that are NaN or infinite")
    if rate is None or rate == entry.rate:
        return samples
    if not isinstance(rate, int) or not 1 <= rate <= RATE_LIMIT_HZ:
        raise UsageError(f"rate is {rate!r}; it must be a whole number of Hz from 1 to {RATE_LIMIT_HZ}")
    from edgekit.processing.resample import resample  # here: most recordings have the model's rate

    return resample(samples, rate, entry.rate)


def mono_pieces(sound: Array, entry: AudioInput, rate: int | None = None) -> Iterator[Array]:
    """Yield what ``mono`` returns in pieces: the whole as float64 takes several times the recording.

    Raises: as ``mono``, for a value that is not finite when its piece is reached.
    """
    if not isinstance(sound, np.ndarray) or not (sound.ndim and sound.size and isinstance(rate, int | None)):
        yield mono(sound, entry, rate)
        return
    if rate in (None, entry.rate) or not 1 <= rate <= RATE_LIMIT_HZ:
        for start in range(0, len(sound), PIECE_SAMPLES):
            yield mono(sound[start : start + PIECE_SAMPLES], entry, rate)
        return
    from edgekit.processing.resample import cut  # here: most recordings have the model's rate

    for first, last, selection in cut(len(sound), rate, entry.rate, PIECE_SAMPLES):
        yield mono(sound[first:last], entry, rate)[selection]


def prepare_audio(entry: AudioInput, samples: Array, context: Array | None = None) -> Array:
    """Turn one window into the input's array.

    Args:
        samples: float64, at the input's rate: at most a window, less its context; zeros follow it.
        context: float64 [context], what came before. None means zeros.

    Returns:
        The input's dtype and shape.

    Raises:
        UsageError: there are more samples.
    """
    limit = entry.window - entry.context
    if len(samples) > limit:
        raise UsageError(
            f"{entry.name} takes {limit} samples at once ({limit / entry.rate:g} s at {entry.rate} Hz), not "
            f"{len(samples)}; session.listen(sound) goes through a longer one, window by window"
        )
    samples = _normalized(samples, entry)
    window = np.zeros(entry.window)
    if context is not None:
        window[: entry.context] = context * entry.full_scale
    window[entry.context : entry.context + len(samples)] = samples
    if entry.features is None:
        return _as_dtype(window, entry)
    frames, _ = frames_and_features(entry)
    values = compute_features(window, entry.features, entry.rate)[:frames]
    return _as_dtype(values if entry.layout == "TF" else values.T, entry)


def loudest(samples: Array, entry: AudioInput) -> Array:
    """Return the part of a recording that is one sample of the model: the loudest window, in steps of its
    hop.

    Args:
        samples: float64 [n].

    Returns:
        At most a window, less its context.
    """
    length = entry.window - entry.context
    if len(samples) <= length:
        return samples
    energy = np.concatenate([[0.0], np.cumsum(np.square(samples))])
    starts = np.arange(0, len(samples) - length + 1, entry.hop)
    start = starts[np.argmax(energy[starts + length] - energy[starts])]
    return samples[start : start + length]


def _normalized(samples: Array, entry: AudioInput) -> Array:
    if entry.normalize == "none":
        return samples * entry.full_scale
    if entry.normalize == "mean-std":
        varied: Array = samples - samples.mean()
        varied /= np.sqrt(np.square(varied).mean() + VARIANCE_LEAST)
        return varied
    greatest = samples.max() if entry.normalize == "max" else np.abs(samples).max()
    return samples / greatest if greatest > 0 else samples


def _as_dtype(values: Array, entry: AudioInput) -> Array:
    values = (values - entry.mean) / entry.std
    dtype = np.dtype(entry.dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = np.clip(np.rint(values), info.min, info.max)
    return values.astype(dtype).reshape(entry.shape)


def quiet_place(samples: Array, rate: int) -> int:
    """Return the index of the quietest place in the last seconds of a window.

    Args:
        samples: float64 [n], at least one.
    """
    width = max(1, int(LEVEL_S * rate))
    first = max(0, len(samples) - min(int(QUIET_S * rate), len(samples) // 2))
    energy = np.convolve(np.square(samples[first:]), np.ones(width), "valid")
    return first + int(energy.argmin()) + width // 2
