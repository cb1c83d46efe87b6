"""WAV files: every format that is read, and what a hostile or foreign file gets."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import SampleError
from edgekit.processing import sound_files
from edgekit.processing.sound_files import read_sound
from tests.fixtures.sounds import wav

HALF, LOW = 0.5, -1.0


@pytest.mark.parametrize(
    ("data", "form", "bits"),
    [
        (bytes([192, 0]), 1, 8),
        (struct.pack("<2h", 1 << 14, -(1 << 15)), 1, 16),
        (bytes([0, 0, 0x40, 0, 0, 0x80]), 1, 24),
        (struct.pack("<2i", 1 << 30, -(1 << 31)), 1, 32),
        (struct.pack("<2f", HALF, LOW), 3, 32),
        (struct.pack("<2d", HALF, LOW), 3, 64),
    ],
)
def test_formats(tmp_path: Path, data: bytes, form: int, bits: int) -> None:
    for name, channels in (("mono.wav", 1), ("stereo.wav", 2)):
        (tmp_path / name).write_bytes(wav(data, form=form, bits=bits, channels=channels, rate=8000))
        samples, rate = read_sound(tmp_path / name)
        assert rate == 8000
        assert samples.shape == (2 // channels, channels)
        assert samples.dtype == (np.int16 if bits == 16 else np.float32)
        scale = 32768 if bits == 16 else 1
        np.testing.assert_array_equal(samples.ravel() / scale, [HALF, LOW])


def test_extensible_says_its_format_further_on(tmp_path: Path) -> None:
    extra = struct.pack("<HHIH14s", 22, 32, 0, 3, b"")
    data = struct.pack("<f", HALF)
    (tmp_path / "x.wav").write_bytes(wav(data, form=0xFFFE, bits=32, extra=extra))
    assert read_sound(tmp_path / "x.wav").samples.tolist() == [[HALF]]


def test_what_pythons_wave_writes(tmp_path: Path) -> None:
    samples = np.arange(-50, 50, dtype="<i2")
    with wave.open(str(tmp_path / "x.wav"), "wb") as file:
        file.setparams((2, 2, 44100, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    found = read_sound(tmp_path / "x.wav")
    assert found.rate == 44100
    np.testing.assert_array_equal(found.samples, samples.reshape(-1, 2))


def test_other_chunks_are_skipped_and_a_pipes_size_is_not_believed(tmp_path: Path) -> None:
    plain = wav(struct.pack("<2h", 1, 2))
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    piped = plain[:12] + odd + plain[12:36] + b"data" + struct.pack("<I", 0xFFFFFFFF) + plain[44:]
    (tmp_path / "x.wav").write_bytes(piped)
    assert read_sound(tmp_path / "x.wav").samples.tolist() == [[1], [2]]


PLAIN = wav(struct.pack("<2h", 1, 2))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"ID3 mp3", "it is not a WAV file; convert it, e.g. with ffmpeg -i FILE -ac 1 sound.wav"),
        (b"", "it is not a WAV file; convert it, e.g. with ffmpeg -i FILE -ac 1 sound.wav"),
        (PLAIN[:36], "it has no samples"),
        (PLAIN[:44], "it ends after 0 of 4 bytes of samples"),
        (PLAIN[:46], "it ends after 2 of 4 bytes of samples"),
        (wav(b""), "it has no samples"),
        (PLAIN[:12] + PLAIN[36:], "its samples come before their format"),
        (
            PLAIN[:16] + struct.pack("<I", 4) + PLAIN[20:24] + PLAIN[36:],
            "its format has 4 bytes, fewer than 16",
        ),
        (
            wav(b"ab", form=7, bits=8),
            "its samples have format 7 with 8 bits; supported: PCM (8 to 32 bits) and floats",
        ),
        (
            wav(b"ab", bits=12),
            "its samples have format 1 with 12 bits; supported: PCM (8 to 32 bits) and floats",
        ),
        (wav(b"ab", channels=0), "it has 0 channels at 16000 Hz; supported: 1 to 32 at 1 to 768000 Hz"),
        (wav(b"ab", channels=33), "it has 33 channels at 16000 Hz; supported: 1 to 32 at 1 to 768000 Hz"),
        (wav(b"ab", rate=0), "it has 1 channels at 0 Hz; supported: 1 to 32 at 1 to 768000 Hz"),
        (wav(b"ab", rate=768_001), "it has 1 channels at 768001 Hz; supported: 1 to 32 at 1 to 768000 Hz"),
        (
            PLAIN[:32] + struct.pack("<H", 0) + PLAIN[34:],
            "its format declares 0 bytes for 1 samples of 16 bits",
        ),
        (wav(struct.pack("<f", float("nan")), form=3, bits=32), "it has samples that are NaN or infinite"),
    ],
)
def test_what_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "x.wav").write_bytes(content)
    with pytest.raises(SampleError) as error:
        read_sound(tmp_path / "x.wav")
    assert str(error.value) == f"{tmp_path / 'x.wav'} can't be read as a sound: {text}"


def test_a_file_that_is_too_large_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SampleError) as error:
        read_sound(tmp_path / "x.wav")
    assert str(error.value) == f"{tmp_path / 'x.wav'}: file not found"
    monkeypatch.setattr(sound_files, "SOUND_LIMIT_BYTES", 1 << 20)
    (tmp_path / "x.wav").write_bytes(wav(bytes(1 << 20)))
    with pytest.raises(SampleError) as error:
        read_sound(tmp_path / "x.wav")
    assert str(error.value) == f"{tmp_path / 'x.wav'} can't be read as a sound: it has more than 1 MB"


@settings(max_examples=300)
@given(st.binary(max_size=64), st.integers(0, 43), st.binary(min_size=1, max_size=8))
def test_damaged_files_are_read_or_refused(tail: bytes, at: int, change: bytes) -> None:
    content = bytearray(wav(struct.pack("<8h", *range(8))) + tail)
    content[at : at + len(change)] = change
    try:
        sound = sound_files.decode_sound(bytes(content))
    except ValueError:
        return
    assert sound.samples.ndim == 2
    assert sound.samples.size
    assert np.isfinite(sound.samples.astype(np.float64)).all()
