"""Options of one generation, declared once and checked before anything runs."""

# No ``from __future__ import annotations``: types of fields are read (edgekit/system/declared_options.py).
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from edgekit.errors import UsageError
from edgekit.system.declared_options import option

STOP_LIMIT = 16
STOP_LIMIT_CHARS = 256
SAMPLING = "Sampling"


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """The options of one generation."""

    max_tokens: int = field(default=256, metadata=option(
        "Maximum number of generated tokens.", minimum=1,
    ))  # fmt: skip
    temperature: float = field(default=0.0, metadata=option(
        "Sampling temperature; 0 is greedy decoding. Logits are divided by it before a token is sampled.",
        heading=SAMPLING,
    ))  # fmt: skip
    top_k: int = field(default=0, metadata=option(
        "Sample from the K most likely tokens; 0: from all.", heading=SAMPLING, minimum=0,
    ))  # fmt: skip
    top_p: float = field(default=1.0, metadata=option(
        "Sample from the most likely tokens whose probabilities add up to this.", heading=SAMPLING,
    ))  # fmt: skip
    min_p: float = field(default=0.0, metadata=option(
        "Sample from tokens with at least this share of the top token's probability.", heading=SAMPLING,
    ))  # fmt: skip
    repetition_penalty: float = field(default=1.0, metadata=option(
        "Divides positive logits of tokens that were in the prompt or the answer, multiplies negative ones "
        "(Keskar et al. 2019, CTRL). 1: none.",
        python_only=True,
    ))  # fmt: skip
    seed: int | None = field(default=None, metadata=option(
        "Random seed. Makes sampling reproducible: the first text of a new session is the same on the same "
        "machine and engine version. None means another one each time.",
        heading=SAMPLING, minimum=0,
    ))  # fmt: skip
    stop: str | Sequence[str] = field(default=(), metadata=option(
        "Stop before this text.", metavar="TEXT", repeatable="values",
    ))  # fmt: skip
    json_schema: Mapping[str, Any] | None = field(default=None, metadata=option(
        "JSON schema that the text must match.", python_only=True,
    ))  # fmt: skip
    grammar: str | None = field(default=None, metadata=option(
        "Grammar that the text must match, in the Lark form of llguidance.", python_only=True,
    ))  # fmt: skip
    adapter: str = field(default="", metadata=option(
        "LoRA adapter of the bundle, by its name.", flags=("--use-adapter",), metavar="NAME",
    ))  # fmt: skip
    deadline_ms: float | None = field(default=None, metadata=option(
        "Time limit from the call, in ms. The text so far is the answer, its reason ``timeout``.",
        python_only=True,
    ))  # fmt: skip

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def checked_options(arguments: Mapping[str, Any]) -> GenerateOptions:
    """Return the options of a call, each honored or refused.

    Raises:
        UsageError: one is unknown, of another type or outside its range.
    """
    names = [entry.name for entry in fields(GenerateOptions)]
    if unknown := [name for name in arguments if name not in names]:
        raise UsageError(f"generate has no option {unknown[0]!r}; available: {', '.join(names)}")
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
    return replace(options, stop=_stop_words(options.stop))


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
