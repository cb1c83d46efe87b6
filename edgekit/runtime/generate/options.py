"""Options of one generation, checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from edgekit.errors import UsageError

MAX_TOKENS = 256
"""Tokens of an answer where nothing is said."""
STOP_LIMIT = 16
STOP_LIMIT_CHARS = 256


class GenerateOptions(NamedTuple):
    """The options of one generation.

    Attributes:
        max_tokens: Maximum number of new tokens.
        temperature: 0: the likeliest token (greedy). Above: logits are divided by it, and a token is sampled.
        top_k: Number of likeliest tokens to sample from; 0: all.
        top_p: Sample from the likeliest tokens that together have this probability.
        min_p: Sample from tokens that have at least this share of the likeliest one's probability.
        repetition_penalty: Divides positive logits of tokens that were in the prompt or the answer,
            multiplies negative ones (Keskar et al. 2019, CTRL). 1: none.
        seed: Random seed; None: another one each time. The same seed gives the same text on the same engine.
        stop: Stop words: the text ends before the first of them.
        json_schema: JSON schema that the text must match.
        grammar: Grammar that the text must match, in the Lark form of llguidance.
        adapter: Name of one of the bundle's LoRA adapters; "": none.
        deadline_ms: Time limit from the call, in ms. The text so far is the answer, its reason ``timeout``.
    """

    max_tokens: int = MAX_TOKENS
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    json_schema: Mapping[str, Any] | None = None
    grammar: str | None = None
    adapter: str = ""
    deadline_ms: float | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def checked_options(arguments: Mapping[str, Any]) -> GenerateOptions:
    """Return the options of a call, each honored or refused.

    Raises:
        UsageError: one is unknown, of another type or outside its range.
    """
    unknown = [name for name in arguments if name not in GenerateOptions._fields]
    if unknown:
        have = ", ".join(GenerateOptions._fields)
        raise UsageError(f"generate has no option {unknown[0]!r}; available: {have}")
    options = GenerateOptions(**arguments)
    _whole("max_tokens", options.max_tokens, 1, 1 << 20)
    _number("temperature", options.temperature, 0.0, 100.0)
    _whole("top_k", options.top_k, 0, 1 << 24)
    _number("top_p", options.top_p, 0.0, 1.0, above=True)
    _number("min_p", options.min_p, 0.0, 1.0)
    _number("repetition_penalty", options.repetition_penalty, 0.0, 100.0, above=True)
    if options.seed is not None:
        _whole("seed", options.seed, 0, (1 << 64) - 1)
    if options.deadline_ms is not None:
        _number("deadline_ms", options.deadline_ms, 0.0, 1e12, above=True)
    if options.json_schema is not None and options.grammar is not None:
        raise UsageError("json_schema and grammar were both given; give one")
    if options.json_schema is not None and not isinstance(options.json_schema, Mapping):
        raise UsageError(f"json_schema is a mapping, not a {type(options.json_schema).__name__}")
    if options.grammar is not None and not isinstance(options.grammar, str):
        raise UsageError(f"grammar is a text, not a {type(options.grammar).__name__}")
    if not isinstance(options.adapter, str):
        raise UsageError(f"adapter is the name of an adapter, not a {type(options.adapter).__name__}")
    return options._replace(stop=_stop_words(options.stop))


def _stop_words(value: object) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(word, str) and word for word in words):
        raise UsageError("stop is a text or a list of texts that are not empty")
    if len(words) > STOP_LIMIT or any(len(word) > STOP_LIMIT_CHARS for word in words):
        raise UsageError(f"stop takes {STOP_LIMIT} texts of at most {STOP_LIMIT_CHARS} characters")
    return tuple(words)


def _whole(name: str, value: object, minimum: int, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise UsageError(f"{name} must be a whole number from {minimum} to {maximum}, not {value!r}")


def _number(name: str, value: object, minimum: float, maximum: float, above: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not minimum <= value <= maximum or (above and value == minimum):  # type: ignore[operator]
        span = f"above {minimum:g}, at most {maximum:g}" if above else f"from {minimum:g} to {maximum:g}"
        raise UsageError(f"{name} must be a number {span}, not {value!r}")
