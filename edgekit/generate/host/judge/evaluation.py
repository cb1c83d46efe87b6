"""Evaluation of a decoder: perplexity on texts of three kinds, logits of golden prompts, generated text.

The texts (``texts.py``) are prose, source code and a chat. They are read in windows, each with an empty
cache. Perplexity is exp of the mean negative log likelihood of the tokens that follow the first of each
window. Rounding makes some of these tokens likelier and others less likely, so that on a short text luck may
hide its loss. The divergence from the reference's distributions has no such luck: it is the expected increase
of the negative log likelihood if the next tokens are distributed as the reference says.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.bundle.generation_evidence import KindOfText
from edgekit.errors import EngineError
from edgekit.generate.device.decoder import DecoderRunner
from edgekit.generate.host.judge.texts import judged_texts, tokens_of
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder, in_windows
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array

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
CONFIDENCE = 1.96
"""Standard errors of a mean on each side of its 95 % interval."""
TOP = 64
"""Tokens of each position whose likelihoods the divergence compares one by one; the others as one."""
SMALLEST = 1e-9
"""Least probability of the other tokens: that of 64 tokens in float32 may exceed 1."""
TIE = 0.01
"""Logits closer than this are a tie: engines sum in other orders."""


class TextReference(NamedTuple):
    """Results of the float reference.

    Attributes:
        kinds: Kind of text of each window: prose, code, chat.
        windows: The texts' tokens, in windows.
        targets: The text's own next token and the TOP likeliest, for each window, int64 [rows, 1 + TOP].
        likelihoods: Their log likelihoods, for each window, float64 [rows, 1 + TOP].
        likeliest: The likeliest next token at each judged position, for each window, int64.
        logits: Logits after each prompt, float32 [prompts, vocabulary].
    """

    kinds: list[str]
    windows: list[list[int]]
    targets: list[Array]
    likelihoods: list[Array]
    likeliest: list[Array]
    prompts: list[list[int]]
    logits: Array

    def perplexities(self) -> dict[str, float]:
        """Compute the perplexity of each kind of text."""
        rows: dict[str, list[Array]] = {}
        for kind, likelihoods in zip(self.kinds, self.likelihoods, strict=True):
            rows.setdefault(kind, []).append(likelihoods)
        return {kind: perplexity(likelihoods) for kind, likelihoods in rows.items()}

    def shown(self) -> str:
        """Return the perplexities for people: ``28.01 on prose, 5.20 on code``."""
        return ", ".join(f"{value:.2f} on {kind}" for kind, value in self.perplexities().items())

    @property
    def tokens(self) -> int:
        """Return the number of judged tokens."""
        return sum(map(len, self.likeliest))


class VariantTexts(NamedTuple):
    """Results of a variant on the same texts and prompts.

    Attributes:
        windows: Indices of the reference's windows that it read.
        likelihoods: Log likelihoods of the reference's targets, for each of these windows, float64.
        agreement: Share of the positions at which its likeliest token is the reference's.
        logits: Logits after each prompt, float32 [prompts, vocabulary].
        answers: Tokens that it generates after each prompt, greedily.
        prompt_token_seconds: Seconds to read one token of a full window.
        token_seconds: Seconds of each generated token.
    """

    windows: list[int]
    likelihoods: list[Array]
    agreement: float
    logits: Array
    answers: list[list[int]]
    prompt_token_seconds: float
    token_seconds: list[float]


def reference_of(
    model: LanguageModel,
    decoder: ReferenceDecoder,
    context: int,
    texts: Mapping[str, Sequence[int]] | None = None,
) -> TextReference:
    """Run the float reference on the texts and the golden prompts.

    Args:
        context: Maximum tokens of a window, and of a prompt with its response.
        texts: Tokens of each kind of text. None means ``judged_texts``.

    Raises:
        CardError: the tokenizer is damaged.
        MissingDependency: the package ``tokenizers`` is not installed.
        ModelError: a weight can't be read.
        EngineError: the reference's logits are not finite.
    """
    before = [] if model.bos_id is None else [model.bos_id]
    size = min(WINDOW_TOKENS, context)
    pieces = [
        (kind, window)
        for kind, text in (judged_texts(model) if texts is None else texts).items()
        for window in in_windows(text, size - len(before), before)
        if len(window) > 1
    ]
    windows = [window for _, window in pieces]
    prompts = [tokens_of(model, prompt)[: max(size - GREEDY_TOKENS, 1)] for prompt in GOLDEN_PROMPTS]
    hidden = decoder.hidden([*windows, *prompts])
    targets, likelihoods, likeliest = [], [], []
    for window, rows in zip(windows, hidden, strict=False):
        window_logits = decoder.logits(rows[:-1])
        targets.append(np.column_stack([window[1:], _top(window_logits)]))
        likelihood, best = judged(window_logits, targets[-1])
        likelihoods.append(likelihood)
        likeliest.append(best)
    logits = decoder.logits(np.stack([rows[-1] for rows in hidden[len(windows) :]]))
    if not (np.isfinite(logits).all() and np.isfinite(np.concatenate(likelihoods)).all()):
        raise EngineError(
            f"{model.name}: the float reference returns logits that are not finite; check the model file"
        )
    kinds = [kind for kind, _ in pieces]
    return TextReference(kinds, windows, targets, likelihoods, likeliest, prompts, logits)


def _top(logits: Array) -> Array:
    """Return the TOP likeliest tokens of each row, int64 [rows, TOP]; all of a smaller vocabulary."""
    count = min(TOP, logits.shape[1])
    return np.stack([np.argpartition(row, -count)[-count:] for row in logits])


def figures_by_kind(reference: TextReference, written: VariantTexts) -> dict[str, KindOfText]:
    """Compare a variant's perplexity with the reference's, on each kind of text."""
    figures: dict[str, KindOfText] = {}
    for kind in dict.fromkeys(reference.kinds):
        places = [place for place, index in enumerate(written.windows) if reference.kinds[index] == kind]
        own = np.concatenate([written.likelihoods[place] for place in places])
        expected = np.concatenate([reference.likelihoods[written.windows[place]] for place in places])
        differences = expected[:, 0] - own[:, 0]
        with np.errstate(over="ignore", invalid="ignore"):
            error = differences.std() / math.sqrt(differences.size)
            margin = float(np.exp(differences.mean()) * CONFIDENCE * error)
        figures[kind] = {
            "perplexity": six_digits(perplexity([own])),
            "float_perplexity": six_digits(perplexity([expected])),
            "margin": six_digits(margin),
            "divergence": six_digits(divergence(expected, own)),
            "tokens": differences.size,
        }
    return figures


def divergence(reference: Array, variant: Array) -> float:
    """Compute the mean Kullback-Leibler divergence of the variant from the reference, in nats.

    Args:
        reference, variant: Log likelihoods of the reference's targets, float64 [rows, 1 + TOP].
    """
    with np.errstate(over="ignore", invalid="ignore"):
        shares, others = np.exp(reference[:, 1:]), np.exp(variant[:, 1:])
        rest, other_rest = (np.maximum(1 - each.sum(axis=-1), SMALLEST) for each in (shares, others))
        rows = (shares * (reference - variant)[:, 1:]).sum(axis=-1) + rest * np.log(rest / other_rest)
        return max(0.0, float(rows.mean()))


def losses(figures: KindOfText) -> tuple[float, float]:
    """Return by which share a variant's perplexity exceeds the reference's: at least, which is the lower end
    of the measured share's interval, and expected, by the divergence; infinity for what is not finite."""
    own, expected, margin = figures["perplexity"], figures["float_perplexity"], figures["margin"]
    nats = figures["divergence"]
    least = math.inf if own is None or not expected or margin is None else own / expected - 1 - margin
    return least, math.inf if nats is None else math.expm1(nats)


def missed(kinds: Mapping[str, KindOfText], limit: float) -> str:
    """Return why a variant's perplexity misses the limit, with the worst kind of text; "" if it does not."""
    worst, kind = max((max(losses(figures)), kind) for kind, figures in kinds.items())
    if worst <= limit:
        return ""
    own, whole, margin = kinds[kind]["perplexity"], kinds[kind]["float_perplexity"], kinds[kind]["margin"]
    allowed = f"{100 * limit:g} % is allowed"
    if own is None or not whole or margin is None or math.isinf(worst):
        return f"perplexity on {kind} is not finite"
    if losses(kinds[kind])[1] == worst:
        return (
            f"perplexity on {kind} is expected to be {100 * worst:.1f} % above the float model's, by the "
            f"divergence of its distributions; {allowed}"
        )
    excess = f"{100 * (own / whole - 1):.1f} % (+- {100 * margin:.1f})"
    return f"perplexity {own:.2f} on {kind}, {excess} above the float model's {whole:.2f}; {allowed}"


def perplexity(likelihoods: Sequence[Array]) -> float:
    """Compute exp of the mean negative log likelihood of the texts' own tokens.

    Args:
        likelihoods: Float [rows], or [rows, targets], of which the first is the text's own.
    """
    rows = np.concatenate(likelihoods)
    with np.errstate(over="ignore"):
        return float(np.exp(-(rows if rows.ndim == 1 else rows[:, 0]).mean()))


def six_digits(value: float) -> float | None:
    """Return a figure for the evidence; None if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def written_by(
    runner: DecoderRunner, reference: TextReference, stop_ids: Sequence[int], per_kind: int | None = None
) -> VariantTexts:
    """Run a loaded decoder on the texts and the golden prompts.

    Args:
        per_kind: Number of windows of each kind of text to read; None for all.

    Raises:
        EngineError: the engine fails.
    """
    kinds = reference.kinds
    windows = [i for i, kind in enumerate(kinds) if per_kind is None or kinds[:i].count(kind) < per_kind]
    likelihoods, likeliest, seconds = [], [], []
    rows = max(1, LOGITS_BYTES // reference.logits[0].nbytes)
    for index in counted(windows, "windows", name="judged"):
        window = reference.windows[index]
        runner.truncate(0)
        started = time.perf_counter()
        likelihood, best = _read(runner, window, reference.targets[index], rows)
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
    same = np.concatenate(likeliest) == np.concatenate([reference.likeliest[index] for index in windows])
    agreement = float(np.mean(same))
    each_seconds = min(whole for whole, length in seconds if length == longest) / longest
    return VariantTexts(
        windows, likelihoods, agreement, np.stack(logits), answers, each_seconds, token_seconds
    )


def _read(runner: DecoderRunner, window: Sequence[int], targets: Array, rows: int) -> tuple[Array, Array]:
    """Read a window in steps of up to ``rows`` tokens, and judge their logits as ``judged``."""
    judgements = []
    for start in range(0, len(targets), rows):
        part = targets[start : start + rows]
        judgements.append(judged(runner.forward(window[start : start + len(part)], rows=len(part)), part))
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


def judged(logits: Array, tokens: Sequence[int] | Array) -> tuple[Array, Array]:
    """Return log likelihoods of tokens, float64, in their shape, and the likeliest ones, int64 [rows].

    Args:
        logits: [rows, vocabulary].
        tokens: One of each row [rows], or several [rows, n].

    Exponentials are float32, of differences of at most 0, and are summed in float64.
    """
    likelihoods, best = [], []
    for part, targets in _parts(logits, tokens):
        rows = np.arange(len(targets))
        likeliest = part.argmax(axis=-1)
        largest = part[rows, likeliest]
        total = np.log(np.exp(part - largest[:, None]).sum(axis=-1, dtype=np.float64))
        chosen = part[rows[:, None], targets.reshape(len(targets), -1)].astype(np.float64)
        likelihoods.append((chosen - (largest + total)[:, None]).reshape(targets.shape))
        best.append(likeliest)
    return np.concatenate(likelihoods), np.concatenate(best)


def _parts(logits: Array, tokens: Sequence[int] | Array) -> Iterator[tuple[Array, Array]]:
    """Yield a few rows at a time, as float32: 262,144 logits are 1 MB."""
    targets = np.asarray(tokens)
    for start in range(0, len(targets), 32):
        yield logits[start : start + 32].astype(np.float32, copy=False), targets[start : start + 32]
