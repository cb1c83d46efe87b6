"""Another rate: what both rates hold stays, what the new one does not hold goes."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.resample import resample

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
