"""Figures of the judge: likelihoods, and perplexity by kind of text with its margin."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.generate.host.judge.evaluation import (
    TextReference,
    VariantTexts,
    excess_of,
    figures_by_kind,
    judged,
)

RANDOM = np.random.default_rng(4)


def test_likelihoods_are_those_of_float64() -> None:
    logits = (40 * RANDOM.standard_normal((70, 5000))).astype(np.float32)
    tokens = RANDOM.integers(0, 5000, 70).tolist()
    wide = logits.astype(np.float64)
    exact = wide[np.arange(70), tokens] - np.logaddexp.reduce(wide, axis=1)
    likelihoods, likeliest = judged(logits, tokens)
    np.testing.assert_allclose(likelihoods, exact, atol=1e-6)
    assert np.array_equal(likeliest, logits.argmax(axis=1))


def test_each_kind_of_text_has_its_own_figures_and_margin() -> None:
    rows = [RANDOM.normal(-3, 1, 400) for _ in range(4)]
    kinds = ["prose", "prose", "code", "code"]
    reference = TextReference(kinds, [[0]] * 4, rows, [np.zeros(400, int)] * 4, [], np.zeros((0, 0)))
    worse = [rows[0], rows[2] - 0.05 + RANDOM.normal(0, 0.3, 400)]
    written = VariantTexts([0, 2], worse, 1.0, np.zeros((0, 0)), [], 0.0, [])
    figures = figures_by_kind(reference, written)
    assert [row["tokens"] for row in figures.values()] == [400, 400]
    assert (excess_of(figures["prose"]), figures["prose"]["margin"]) == (0, 0)
    expected = float(np.exp((rows[2] - worse[1]).mean())) - 1
    assert excess_of(figures["code"]) == pytest.approx(expected, rel=1e-3)
    assert figures["code"]["margin"] == pytest.approx(1.05 * 1.96 * 0.3 / 20, rel=0.15)
    broken = written._replace(likelihoods=[rows[0], np.full(400, -np.inf)])
    assert excess_of(figures_by_kind(reference, broken)["code"]) == np.inf
