"""Decodes untrusted WAV files: PCM of 8, 16, 24 or 32 bits, and floats of 32 or 64.

(Microsoft and IBM, Multimedia Programming Interface 1.0, and WAVE_FORMAT_EXTENSIBLE; the standard library's
``wave`` reads no floats.)
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.errors import SampleError
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Array

SOUNDS = (".wav",)
SOUND_LIMIT_BYTES = 128 << 20
"""70 minutes of 16 kHz, mono, 16 bits."""
CHANNELS_LIMIT = 32
RATE_LIMIT_HZ = 768_000
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
CHUNKS_LIMIT = 1000
"""Most chunks before the samples: each takes time, however few bytes it has."""
STREAMED_BYTES = 0x7FFF0000
"""A declared size from here on is that of a program that wrote to a pipe, and could not know it."""


class Sound(NamedTuple):
    """A sound: int16 or float32 (-1 to 1) [n, channels], and its samples a second in Hz."""

    samples: Array
    rate: int


class WavFormat(NamedTuple):
    """Format of a file's samples.

    Attributes:
        form: ``PCM`` or ``FLOAT``.
        bits: Bits of a value.
        channels: Number of channels.
        rate: Samples a second, in Hz.
        start: Index of the first sample's first byte.
        frames: Number of samples of each channel.
    """

    form: int
    bits: int
    channels: int
    rate: int
    start: int
    frames: int

    @property
    def seconds(self) -> float:
        return self.frames / self.rate


def read_sound(path: Path) -> Sound:
    """Decode a WAV file.

    Raises:
        SampleError: the file is not a WAV of these formats, corrupt or too large.
    """
    try:
        return decode_sound(read_plain(path, SOUND_LIMIT_BYTES))
    except FileNotFoundError:
        raise SampleError(f"{path}: file not found") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise SampleError(f"{path} can't be read as a sound: {reason}") from None


def decode_sound(content: bytes | memoryview) -> Sound:
    form, bits, channels, rate, start, frames = sound_format(content)
    data = np.frombuffer(content, np.uint8, frames * channels * bits // 8, start)
    return Sound(_values(data, form, bits).reshape(frames, channels), rate)


def sound_format(content: bytes | memoryview) -> WavFormat:
    """Return the format of a file's samples; nothing is decoded."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise ValueError("it is not a WAV file; convert it, e.g. with ffmpeg -i FILE -ac 1 sound.wav")
    header: bytes | memoryview | None = None
    offset, chunks = 12, 0
    while offset + 8 <= len(content):
        if (chunks := chunks + 1) > CHUNKS_LIMIT:
            raise ValueError(f"it has more than {CHUNKS_LIMIT} chunks before its samples")
        name, size = struct.unpack_from("<4sI", content, offset)
        offset += 8
        if name == b"fmt ":
            header = content[offset : offset + size]
        if name == b"data":
            if header is None:
                raise ValueError("its samples come before their format")
            return _format(header, offset, size, len(content) - offset)
        offset += size + size % 2  # chunks begin at even bytes
    raise ValueError("it has no samples")


def _format(header: bytes | memoryview, offset: int, size: int, available: int) -> WavFormat:
    if len(header) < 16:
        raise ValueError(f"its format has {len(header)} bytes, fewer than 16")
    form, channels, rate, _, block_bytes, bits = struct.unpack_from("<HHIIHH", header)
    if form == EXTENSIBLE and len(header) >= 26:
        form = struct.unpack_from("<H", header, 24)[0]
    if (form, bits) not in (*((PCM, b) for b in (8, 16, 24, 32)), (FLOAT, 32), (FLOAT, 64)):
        raise ValueError(
            f"its samples have format {form} with {bits} bits; supported: PCM (8 to 32 bits) and floats"
        )
    if not 1 <= channels <= CHANNELS_LIMIT or not 1 <= rate <= RATE_LIMIT_HZ:
        raise ValueError(
            f"it has {channels} channels at {rate} Hz; supported: 1 to {CHANNELS_LIMIT} at 1 to "
            f"{RATE_LIMIT_HZ} Hz"
        )
    if block_bytes != channels * bits // 8:
        raise ValueError(f"its format declares {block_bytes} bytes for {channels} samples of {bits} bits")
    if available < size < STREAMED_BYTES:
        raise ValueError(f"it ends after {available} of {size} bytes of samples")
    count = min(size, available) // block_bytes
    if not count:
        raise ValueError("it has no samples")
    return WavFormat(form, bits, channels, rate, offset, count)


def _values(data: Array, form: int, bits: int) -> Array:
    if form == FLOAT:
        values = data.view(f"<f{bits // 8}").astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError("it has samples that are NaN or infinite")
        return values
    if bits == 16:
        return data.view("<i2").astype(np.int16)
    if bits == 8:  # the only unsigned one
        return (data.astype(np.float32) - np.float32(128)) / np.float32(128)
    if bits == 24:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = data.reshape(-1, 3)
        data = wide.reshape(-1)
    return (data.view("<i4") / 2.0**31).astype(np.float32)
