"""The sounds that a build's variants are verified with: the user's recordings, or a generated sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.errors import UsageError
from edgekit.generate.device.encoder_decoder import FEATURES, MASK, SAMPLES
from edgekit.generate.device.sample_stem import LEAST_SAMPLES
from edgekit.generate.host.pipeline.encoder_decoder.job import Source, Sources
from edgekit.processing.audio_preparation import mono, prepare_audio
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.sound_files import SOUNDS, read_sound
from edgekit.tensor_spec import Array

RECORDINGS_LIMIT = 6
"""Most recordings of a build: each is encoded by the float reference and by every variant."""
SYLLABLES_A_SECOND, PITCH_HZ = 3.0, 120.0


def read_recordings(samples: object, entry: AudioInput, further: Sequence[int] = ()) -> Sources:
    """Read the recordings of a build.

    Args:
        samples: Folder or glob of WAV files; None: a generated sound.
        entry: The model's input.
        further: Further numbers of samples of a window. The begin of the first sound is a recording in each,
            before all others.

    Raises:
        UsageError: they are not files.
        SampleError: no files were found, or one cannot be read.
    """
    if samples is None:
        sounds = [_generated(entry)]
        origin = "a generated sound; pass recordings with --samples to have texts compared"
    elif isinstance(samples, str | Path):
        paths = find_files(str(samples), SOUNDS)[:RECORDINGS_LIMIT]
        read = [read_sound(path) for path in paths]
        sounds = [mono(sound.samples, entry, sound.rate)[: entry.window] for sound in read]
        origin = f"{len(paths)} recording{'s' if len(paths) > 1 else ''}, the first window of each"
    else:
        raise UsageError("samples of a speech model are WAV files: pass a folder or a glob")
    smaller = [(replace(entry, shape=(1, size), window=size, hop=size), sounds[0][:size]) for size in further]
    clips = [*smaller, *((entry, sound) for sound in sounds)]
    return Sources(origin, [_source(*clip) for clip in clips], samples is not None)


def _source(entry: AudioInput, clip: Array) -> Source:
    """Return the first window of a sound: features, or samples with zeros after the sound, and their mask."""
    prepared, length = np.ascontiguousarray(prepare_audio(entry, clip)), len(clip)
    if entry.name == FEATURES:
        return Source({FEATURES: prepared}, prepared[0], length)
    mask = np.zeros_like(prepared)
    mask[:, :length] = 1
    return Source({SAMPLES: prepared, MASK: mask}, prepared[0, : max(length, LEAST_SAMPLES)], length)


def _generated(entry: AudioInput) -> Array:
    """Return a sound like a voice: harmonics of a moving pitch, in syllables, with two moving resonances."""
    seconds = np.arange(int(0.8 * entry.window)) / entry.rate
    pitch = PITCH_HZ * (1 + 0.15 * np.sin(2 * np.pi * 0.4 * seconds))
    phase = 2 * np.pi * np.cumsum(pitch) / entry.rate
    first, second = (
        500 + 250 * np.sin(2 * np.pi * 1.3 * seconds),
        1500 + 600 * np.sin(2 * np.pi * 0.9 * seconds),
    )
    sound = np.zeros_like(seconds)
    for harmonic in range(1, 24):
        hertz = harmonic * pitch
        level = np.exp(-(((hertz - first) / 150) ** 2)) + 0.5 * np.exp(-(((hertz - second) / 250) ** 2))
        sound += (level + 0.02) * np.sin(harmonic * phase)
    loudness = np.clip(np.sin(2 * np.pi * SYLLABLES_A_SECOND * seconds), 0, None)
    noise = np.random.default_rng(36).standard_normal(len(seconds))
    voice: Array = sound * loudness * 0.1 + noise * 1e-3
    return voice
