"""Resampling and features of audio."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.processing.audio_features import compute_features
from edgekit.processing.inputs.audio_features import read_features
from edgekit.processing.resample import resample
from edgekit.tensor_spec import Array
from tests.fixtures.sounds import KWS, chirp


def computed(samples: Array, rate: int = 16000, **table: Any) -> Array:
    return compute_features(samples.astype(np.float64), read_features(table, rate, "features"), rate)


def test_mfcc_are_those_of_tensorflow() -> None:
    """tf.signal of TensorFlow 2.21, as MLPerf Tiny's get_dataset.py calls it; it computes in float32."""
    found = computed(chirp() / chirp().max(), **KWS)
    assert found.shape == (49, 10)
    expected = [
        [-33.6639, 17.4223, 8.8726, 1.8602, -1.2133, -2.9514, -3.6893, -4.196, -3.6217, -1.9011],
        [-36.824, 0.2097, -14.8773, -2.7735, 8.0377, 0.926, -5.3396, -1.203, 4.0644, 2.4344],
        [-43.7282, -11.0062, -5.4636, 9.8793, -6.9506, -0.1263, 4.3155, -4.5292, 1.2666, 2.4055],
    ]
    np.testing.assert_allclose(found[[0, 24, 48]], expected, atol=3e-3)


def test_mel_bands_are_those_of_librosa() -> None:
    """librosa 0.11: melspectrogram, centred with zeros, and power_to_db(top_db=80)."""
    found = computed(
        chirp() / 32768, kind="mel", frame=400, n_fft=512, hop=160, align="center", center="constant", mels=8,
        mel_scale="slaney", mel_norm="slaney", log="db", floor=1e-10, range=80,
    )  # fmt: skip
    assert found.shape == (101, 8)
    expected = [
        [-0.111, -22.222, -32.037, -38.567, -44.454, -50.101, -55.222, -59.322],
        [-73.371, -42.224, 3.723, -2.847, -73.37, -74.944, -74.944, -74.944],
        [-25.248, -24.386, -22.48, -11.672, -1.359, -18.379, -32.671, -38.383],
    ]
    np.testing.assert_allclose(found[[0, 50, 100]], expected, atol=2e-3)


def test_mel_bands_are_those_of_kaldi() -> None:
    """kaldi-native-fbank 1.23, without dither; samples of 16 bits."""
    found = computed(
        chirp(), kind="mel", frame=400, hop=160, window="povey", preemphasis=0.97, remove_dc=True, mels=8,
        fmin=20, triangles="mel", log="ln", floor=1.1920929e-07,
    )  # fmt: skip
    assert found.shape == (98, 8)
    expected = [
        [22.998, 17.264, 7.769, 5.392, 5.428, 6.245, 7.206, 7.89],
        [8.236, 12.911, 25.788, 25.186, 9.835, 6.815, 7.473, 7.96],
        [6.896, 7.041, 9.753, 25.997, 26.998, 12.682, 7.631, 7.789],
    ]
    np.testing.assert_allclose(found[[0, 50, 97]], expected, atol=2e-3)


def test_a_cosine_is_one_bin() -> None:
    """Without a taper a cosine of amplitude 1 at a bin has magnitude n / 2 there, and nothing elsewhere."""
    cosine = np.cos(2 * np.pi * 3 * np.arange(32) / 16)
    found = computed(cosine, kind="spectrogram", frame=16, hop=16, window="rectangular", power=1)
    np.testing.assert_allclose(found, [[0, 0, 0, 8, 0, 0, 0, 0, 0]] * 2, atol=1e-12)
    power = computed(cosine, kind="spectrogram", frame=16, hop=16, window="rectangular")
    np.testing.assert_allclose(power[:, 3], [64, 64])


@pytest.mark.parametrize("scale", ["htk", "slaney"])
def test_one_band_is_a_triangle_with_its_tip_in_the_middle_of_the_scale(scale: str) -> None:
    if scale == "htk":
        tip = 700 * ((1 + 8000 / 700) ** 0.5 - 1)
    else:  # 1000 Hz is 15 mel, and each factor of 6.4 above it 27 more
        half_mel = (15 + 27 * np.log(8) / np.log(6.4)) / 2
        tip = 1000 * 6.4 ** ((half_mel - 15) / 27)
    table: dict[str, Any] = {
        "kind": "mel",
        "frame": 16000,
        "n_fft": 16000,
        "hop": 1,
        "window": "rectangular",
        "mels": 1,
    }
    for hertz in (1000, 2000, 3000):
        tone = np.cos(2 * np.pi * hertz * np.arange(16000) / 16000)
        found = computed(tone, **table, mel_scale=scale)[0, 0] / 8000**2
        assert found == pytest.approx(min(hertz / tip, (8000 - hertz) / (8000 - tip)))


def test_offset_floor_and_range() -> None:
    silent = np.zeros(16)
    table: dict[str, Any] = {"kind": "spectrogram", "frame": 16, "hop": 16}
    assert np.unique(computed(silent, **table, log="ln", offset=1e-6)).tolist() == [np.log(1e-6)]
    assert np.unique(computed(silent, **table, log="log10", floor=1e-10)).tolist() == [-10]
    cosine = np.cos(2 * np.pi * 3 * np.arange(16) / 16)
    found = computed(cosine, **table, window="rectangular", log="db", floor=1e-10, range=80)
    assert found.max() - found.min() == 80


def test_cmvn() -> None:
    table: dict[str, Any] = {"kind": "mel", "frame": 400, "hop": 160, "mels": 8, "log": "ln", "offset": 1e-6}
    plain = computed(chirp() / 32768, **table)
    np.testing.assert_allclose(computed(chirp() / 32768, **table, cmvn="mean"), plain - plain.mean(0))
    whole = computed(chirp() / 32768, **table, cmvn="mean-std")
    np.testing.assert_allclose(whole, (plain - plain.mean(0)) / plain.std(0))
    assert computed(np.zeros(800), **table, cmvn="mean-std").tolist() == [[0.0] * 8] * 3


def test_many_frames_are_those_of_each_frame_alone() -> None:
    """More than a block of frames."""
    noise = np.random.default_rng(0).normal(size=4000)
    table: dict[str, Any] = {"kind": "spectrogram", "frame": 16, "hop": 8}
    alone = [computed(noise[i * 8 : i * 8 + 16], **table)[0] for i in range(499)]
    np.testing.assert_allclose(computed(noise, **table), alone, atol=1e-12)


RATES = [(44100, 16000), (48000, 16000), (8000, 16000), (22050, 8000), (16000, 48000)]
ODD = (16001, 8000)  # 8000 phases


@pytest.mark.parametrize(("rate", "new_rate"), RATES)
@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9])
def test_a_tone_within_nine_tenths_of_the_band_stays(rate: int, new_rate: int, part: float) -> None:
    hertz = part * min(rate, new_rate) / 2
    found = resample(np.cos(2 * np.pi * hertz * np.arange(rate // 4) / rate), rate, new_rate)
    expected = np.cos(2 * np.pi * hertz * np.arange(len(found)) / new_rate)
    middle = slice(len(found) // 4, 3 * len(found) // 4)  # the ends see the zeros outside
    np.testing.assert_allclose(found[middle], expected[middle], atol=1e-4)


@pytest.mark.parametrize(("rate", "new_rate"), [pair for pair in RATES if pair[0] > pair[1]])
@pytest.mark.parametrize("part", [1.0, 1.05, 1.5, 1.9])
def test_a_tone_beyond_the_new_band_is_gone(rate: int, new_rate: int, part: float) -> None:
    tone = np.cos(2 * np.pi * part * new_rate / 2 * np.arange(rate // 4) / rate)
    found = resample(tone, rate, new_rate)
    middle = found[len(found) // 4 : 3 * len(found) // 4]
    assert np.abs(middle).max() < 10 ** (-85 / 20)


@pytest.mark.parametrize("count", [1, 2, 5, 160, 441, 1000])
def test_lengths(count: int) -> None:
    for rate, new_rate in (*RATES, ODD):
        assert len(resample(np.ones(count), rate, new_rate)) == -(-count * new_rate // rate)


def test_rates_without_a_common_divisor() -> None:
    rate, new_rate = ODD
    found = resample(np.cos(2 * np.pi * 440 * np.arange(rate // 4) / rate), rate, new_rate)
    expected = np.cos(2 * np.pi * 440 * np.arange(len(found)) / new_rate)
    np.testing.assert_allclose(found[500:-500], expected[500:-500], atol=1e-4)


def test_the_same_rate_changes_nothing() -> None:
    samples = np.array([0.1, 0.2], np.float32)
    assert resample(samples, 8000, 8000).tolist() == samples.astype(np.float64).tolist()
