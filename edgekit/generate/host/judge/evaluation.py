"""Evaluation of a decoder: perplexity on a text, logits of golden prompts, and generated text.

The text (``evaluation_text.txt``) was written for this: about 2,450 tokens of plain English prose. It is read
in windows, each with an empty cache. Perplexity is exp of the mean negative log likelihood of the tokens that
follow the first of each window.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from edgekit.errors import EngineError
from edgekit.generate.device.decoder import DecoderRunner
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder, in_windows
from edgekit.processing.tokenizer import tokenize
from edgekit.tensor_spec import Array

TEXT_TOKENS = 2560
"""Most tokens of the text: a tokenizer with few words makes more of it."""
WINDOW_TOKENS = 256
"""Most tokens of a window."""
GOLDEN_PROMPTS = (
    "The three most important things to remember about electricity are",
    "Question: Why do leaves turn red in autumn?\nAnswer:",
    "def mean(values):\n    ",
    "Once upon a time, in a village at the foot of a mountain,",
)
LOGITS_BYTES = 64 << 20
"""Most logits of a window that are in memory at one time: an engine has them twice."""
GREEDY_TOKENS = 32
"""How many tokens a variant writes after each golden prompt."""
TIE = 0.01
"""Logits closer than this are a tie: engines sum in other orders."""


class TextReference(NamedTuple):
    """Results of the float reference.

    Attributes:
        windows: The text's tokens, in windows.
        likelihoods: Log likelihoods of the text's own tokens, for each window, float64.
        likeliest: The likeliest next token at each judged position, for each window, int64.
        logits: Logits after each prompt, float32 [prompts, vocabulary].
    """

    windows: list[list[int]]
    likelihoods: list[Array]
    likeliest: list[Array]
    prompts: list[list[int]]
    logits: Array

    def perplexity(self, windows: int | None = None) -> float:
        """Compute the perplexity of the text, or of its first windows."""
        return perplexity(self.likelihoods[:windows])

    @property
    def tokens(self) -> int:
        """Return the number of judged tokens."""
        return sum(map(len, self.likeliest))


class VariantTexts(NamedTuple):
    """Results of a variant on the same text and prompts.

    Attributes:
        agreement: Share of the positions at which its likeliest token is the reference's.
        logits: Logits after each prompt, float32 [prompts, vocabulary].
        answers: Tokens that it generates after each prompt, greedily.
        prompt_token_seconds: Seconds to read one token of a full window.
        token_seconds: Seconds of each generated token.
    """

    windows: int
    perplexity: float
    agreement: float
    logits: Array
    answers: list[list[int]]
    prompt_token_seconds: float
    token_seconds: list[float]


def evaluation_text() -> str:
    """Return the text that perplexity is measured on."""
    return _shipped("evaluation_text.txt")


def calibration_tokens(model: LanguageModel) -> list[int]:
    """Return the tokens that int4 is fitted to: about 1,500 of another text, which is not judged.

    Raises:
        CardError: the tokenizer is damaged.
        MissingDependency: the package ``tokenizers`` is not installed.
    """
    return tokens_of(model, _shipped("calibration_text.txt"))


def _shipped(name: str) -> str:
    return files("edgekit.generate.host.judge").joinpath(name).read_text("utf-8")


def reference_of(model: LanguageModel, decoder: ReferenceDecoder, context: int) -> TextReference:
    """Run the float reference on the text and the golden prompts.

    Args:
        context: Maximum tokens of a window, and of a prompt with its response.

    Raises:
        CardError: the tokenizer is damaged.
        MissingDependency: the package ``tokenizers`` is not installed.
        ModelError: a weight can't be read.
        EngineError: the reference's logits are not finite.
    """
    before = [] if model.bos_id is None else [model.bos_id]
    size = min(WINDOW_TOKENS, context)
    text = tokens_of(model, evaluation_text(), special_tokens=False)
    windows = [window for window in in_windows(text, size - len(before), before) if len(window) > 1]
    prompts = [tokens_of(model, prompt)[: max(size - GREEDY_TOKENS, 1)] for prompt in GOLDEN_PROMPTS]
    hidden = decoder.hidden([*windows, *prompts])
    likelihoods, likeliest = [], []
    for window, rows in zip(windows, hidden, strict=False):
        likelihood, best = judged(decoder.logits(rows[:-1]), window[1:])
        likelihoods.append(likelihood)
        likeliest.append(best)
    logits = decoder.logits(np.stack([rows[-1] for rows in hidden[len(windows) :]]))
    if not (np.isfinite(logits).all() and np.isfinite(np.concatenate(likelihoods)).all()):
        raise EngineError(
            f"{model.name}: the float reference returns logits that are not finite; check the model file"
        )
    return TextReference(windows, likelihoods, likeliest, prompts, logits)


def perplexity(likelihoods: Sequence[Array]) -> float:
    """Compute exp of the mean negative log likelihood."""
    with np.errstate(over="ignore"):
        return float(np.exp(-np.concatenate(likelihoods).mean()))


def six_digits(value: float) -> float | None:
    """Return a figure for the evidence; None if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def written_by(
    runner: DecoderRunner, reference: TextReference, stop_ids: Sequence[int], windows: int | None = None
) -> VariantTexts:
    """Run a loaded decoder on the text and the golden prompts.

    Args:
        windows: Number of windows to read; None for all.

    Raises:
        EngineError: the engine fails.
    """
    likelihoods, likeliest, seconds = [], [], []
    for window in reference.windows[:windows]:
        runner.truncate(0)
        started = time.perf_counter()
        likelihood, best = _read(runner, window, max(1, LOGITS_BYTES // reference.logits[0].nbytes))
        seconds.append((time.perf_counter() - started, len(window)))
        likelihoods.append(likelihood)
        likeliest.append(best)
    longest = max(length for _, length in seconds)
    answers, logits, token_seconds = [], [], list[float]()
    for prompt in reference.prompts:
        first, answer, elapsed_s = _answer(runner, prompt, stop_ids)
        logits.append(first)
        answers.append(answer)
        token_seconds += elapsed_s
    same = np.concatenate(likeliest) == np.concatenate(reference.likeliest[:windows])
    agreement = float(np.mean(same))
    each_seconds = min(whole for whole, length in seconds if length == longest) / longest
    return VariantTexts(
        len(likelihoods), perplexity(likelihoods), agreement, np.stack(logits), answers, each_seconds,
        token_seconds,
    )  # fmt: skip


def _read(runner: DecoderRunner, window: Sequence[int], rows: int) -> tuple[Array, Array]:
    """Read a window in steps of up to ``rows`` tokens, and judge their logits as ``judged``."""
    judgements = []
    for start in range(0, len(window) - 1, rows):
        targets = window[start + 1 : start + 1 + rows]
        tokens = window[start : start + len(targets)]
        judgements.append(judged(runner.forward(tokens, rows=len(tokens)), targets))
    likelihoods, likeliest = zip(*judgements, strict=True)
    return np.concatenate(likelihoods), np.concatenate(likeliest)


def _answer(
    runner: DecoderRunner, prompt: Sequence[int], stop_ids: Sequence[int]
) -> tuple[Array, list[int], list[float]]:
    """Return the logits after a prompt, the greedy tokens, and their seconds."""
    runner.truncate(0)
    first = row = runner.forward(prompt)[-1].astype(np.float32)
    answer, seconds = [int(row.argmax())], list[float]()
    while len(answer) < GREEDY_TOKENS and answer[-1] not in stop_ids and runner.length < runner.capacity:
        started = time.perf_counter()
        row = runner.forward(answer[-1:])[-1]
        seconds.append(time.perf_counter() - started)
        answer.append(int(row.argmax()))
    return first, answer, seconds


def float_choices(
    decoder: ReferenceDecoder, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[Sequence[int]]]
) -> list[int]:
    """Count the generated tokens of each variant that are the reference's likeliest at their position.

    Args:
        answers: Tokens that each variant generated after each prompt.
    """
    texts = {
        (tuple(prompt), tuple(answer)) for row in answers for prompt, answer in zip(prompts, row, strict=True)
    }
    ordered = sorted(texts)
    hidden = decoder.hidden([[*prompt, *answer[:-1]] for prompt, answer in ordered])
    counts = {}
    for (prompt, answer), rows in zip(ordered, hidden, strict=True):
        logits = decoder.logits(rows[len(prompt) - 1 :])
        chosen = logits[np.arange(len(answer)), list(answer)]
        counts[prompt, answer] = int((chosen >= logits.max(axis=-1) - TIE).sum())
    return [
        sum(counts[tuple(prompt), tuple(answer)] for prompt, answer in zip(prompts, row, strict=True))
        for row in answers
    ]


def judged(logits: Array, tokens: Sequence[int]) -> tuple[Array, Array]:
    """Return log likelihoods of the next tokens, float64, and the likeliest ones, int64; both [rows]."""
    likelihoods, best = [], []
    for part, targets in _parts(logits, tokens):
        wide = part.astype(np.float64)
        largest = wide.max(axis=-1, keepdims=True)
        total = np.log(np.exp(wide - largest).sum(axis=-1)) + largest[:, 0]
        likelihoods.append(wide[np.arange(len(targets)), targets] - total)
        best.append(wide.argmax(axis=-1))
    return np.concatenate(likelihoods), np.concatenate(best)


def _parts(logits: Array, tokens: Sequence[int]) -> Iterator[tuple[Array, list[int]]]:
    """Yield a few rows at a time: 262,144 logits in float64 are 2 MB."""
    for start in range(0, len(tokens), 32):
        yield logits[start : start + 32], list(tokens[start : start + 32])


def tokens_of(model: LanguageModel, text: str, special_tokens: bool = True) -> list[int]:
    """Return the first TEXT_TOKENS tokens of a text.

    Raises:
        CardError: the tokenizer is damaged, or returns no tokens.
        MissingDependency: the package ``tokenizers`` is not installed.
    """
    ids = tokenize(model.tokenizer, text, TEXT_TOKENS, special_tokens).ids
    if not ids or max(ids) >= model.config.vocabulary:
        raise EngineError(
            f"{model.name}: its tokenizer returns tokens that the model does not have; check that both "
            "belong together"
        )
    return ids
