"""Figures of the judge: likelihoods, and perplexity by kind of text with its margin."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.generate.host.judge.evaluation import (
    TextReference,
    VariantTexts,
    divergence,
    figures_by_kind,
    judged,
    losses,
    missed,
)
from edgekit.tensor_spec import Array

RANDOM = np.random.default_rng(4)


def test_likelihoods_are_those_of_float64() -> None:
    logits = (40 * RANDOM.standard_normal((70, 5000))).astype(np.float32)
    tokens = RANDOM.integers(0, 5000, 70).tolist()
    wide = logits.astype(np.float64)
    exact = wide[np.arange(70), tokens] - np.logaddexp.reduce(wide, axis=1)
    likelihoods, likeliest = judged(logits, tokens)
    np.testing.assert_allclose(likelihoods, exact, atol=1e-6)
    several, _ = judged(logits, np.column_stack([tokens, likeliest]))
    np.testing.assert_allclose(several[:, 0], exact, atol=1e-6)
    assert np.array_equal(likeliest, logits.argmax(axis=1))


def test_divergence_is_found_where_the_text_s_own_tokens_hide_it() -> None:
    """Noise on logits makes about as many of the text's tokens likelier as less likely."""
    logits = 3 * RANDOM.standard_normal((600, 40))
    noisy = logits + 0.3 * RANDOM.standard_normal(logits.shape)
    wide, other = (each - np.logaddexp.reduce(each, axis=1, keepdims=True) for each in (logits, noisy))
    tokens = np.argsort(logits, axis=1)[:, [5, *range(8, 40)]]  # those of low rank as one
    exact = float((np.exp(wide) * (wide - other)).sum(axis=1).mean())
    rows = [np.take_along_axis(each, tokens, axis=1) for each in (wide, other)]
    assert divergence(*rows) == pytest.approx(exact, rel=0.05)
    assert divergence(rows[0], rows[0]) == 0
    alike = rows[1].copy()
    alike[:, 0] = rows[0][:, 0]  # the text's own tokens are as likely as before
    figures = figures_by_kind(*_texts(["code"], [rows[0]], [alike]))
    least, expected = losses(figures["code"])
    assert least == 0
    assert expected == pytest.approx(np.expm1(exact), rel=0.05)
    assert missed(figures, 2 * exact) == ""
    assert missed(figures, 0.01) == (
        f"perplexity on code is expected to be {100 * expected:.1f} % above the float model's, by the "
        "divergence of its distributions; 1 % is allowed"
    )


def test_each_kind_of_text_has_its_own_figures_and_margin() -> None:
    rows = [RANDOM.normal(-3, 1, (400, 1)) for _ in range(2)]
    worse = [rows[0], rows[1] - 0.05 + RANDOM.normal(0, 0.3, (400, 1))]
    figures = figures_by_kind(*_texts(["prose", "code"], rows, worse))
    assert [row["tokens"] for row in figures.values()] == [400, 400]
    assert (losses(figures["prose"]), figures["prose"]["margin"]) == ((0, 0), 0)
    excess, margin = float(np.exp((rows[1] - worse[1]).mean())) - 1, figures["code"]["margin"]
    assert margin is not None
    assert margin == pytest.approx(1.05 * 1.96 * 0.3 / 20, rel=0.15)
    assert losses(figures["code"])[0] == pytest.approx(excess - margin, rel=1e-3)
    assert missed(figures, excess - margin + 0.001) == ""
    assert f" on code, {100 * excess:.1f} % (+- {100 * margin:.1f}) above the float model's " in missed(
        figures, excess - margin - 0.001
    )
    broken = figures_by_kind(*_texts(["prose", "code"], rows, [rows[0], np.full((400, 1), -np.inf)]))
    assert missed(broken, 0.1) == "perplexity on code is not finite"


def _texts(kinds: list[str], rows: list[Array], others: list[Array]) -> tuple[TextReference, VariantTexts]:
    count, none = len(kinds), np.zeros((0, 0))
    reference = TextReference(kinds, [[0]] * count, [none] * count, rows, [none] * count, [], none)
    return reference, VariantTexts(list(range(count)), others, 1.0, none, [], 0.0, [])
