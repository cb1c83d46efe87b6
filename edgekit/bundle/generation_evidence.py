"""Evidence on the texts that a variant writes."""

from __future__ import annotations

from typing import TypedDict


class GreedyChoices(TypedDict):
    """Tokens that a language model writes after the golden prompts, the likeliest each time."""

    likeliest: int
    """Number of these tokens that are also the float reference's likeliest at their position."""
    of: int


class EqualTexts(TypedDict):
    """Texts that a text-to-text model writes."""

    equal: int
    """Number of them that are the float model's."""
    of: int


class KindOfText(TypedDict):
    """Perplexity of a language model's variant on one kind of text."""

    perplexity: float | None
    """None if it is not finite."""
    float_perplexity: float | None
    """Perplexity of the float reference on the same tokens."""
    margin: float | None
    """Half of the 95 % interval of perplexity / float_perplexity, from the differences of the tokens'
    log likelihoods, which are taken as independent."""
    divergence: float | None
    """Mean Kullback-Leibler divergence from the float reference's distributions of the next token, in nats,
    over its 64 likeliest tokens and all others together. exp(divergence) is the factor by which the
    perplexity is expected to grow."""
    tokens: int


class Generation(TypedDict, total=False):
    """Quality of a language model's variant (edgekit/generate/host/judge/evaluation.py), or of a
    text-to-text model's (generate/host/pipeline/encoder_decoder/text2text.py)."""

    perplexity: float | None
    """Perplexity on all tokens of the texts that the package ships; None if it is not finite."""
    float_perplexity: float | None
    """Perplexity of the float reference."""
    limit: float
    """Share by which the perplexity may exceed the reference's, on each kind of text."""
    kinds: dict[str, KindOfText]
    """Language models only: prose, code, chat."""
    tokens: int
    """Number of evaluated tokens of the texts."""
    agreement: float | None
    """Share of those tokens at which its likeliest token is the reference's."""
    answers: list[list[int]]
    """Tokens that it writes after each golden prompt."""
    greedy: GreedyChoices
    """fp32 and fp16 only."""
    texts: EqualTexts
    """Text-to-text models only: texts that are the float model's."""
