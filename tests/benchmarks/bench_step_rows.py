"""Cost of a decoder's step with 1 to 5 tokens, and how often guessed tokens must be right to pay for it.

    python -m tests.benchmarks.bench_step_rows MODEL.gguf ort:int8 ort:int4 openvino:int8 tflite:int8 \
        [--heads-on TEXT ...]

A step of n tokens verifies n - 1 guesses. If each is right with probability p, and one that is wrong ends the
step, it writes (1 - p^n) / (1 - p) tokens. Shown, for each n, are CPU milliseconds of the step (one thread,
after 40 tokens, least of all rounds, variants in turns), with rows that agree with single ones where the
engine has another kernel for these (``row_consistent``), and the least p at which steps of n tokens are as
fast as single ones. ``heads`` adds the cost of n - 1 Medusa heads: each multiplies by a matrix of width x
width and by one of width x vocabulary, in the share of the model's weights.

``--heads-on`` fits such heads to TOKENS tokens of these texts, by least squares: a matrix takes the last
hidden state to the one ``n`` tokens later, of which the model's own output matrix makes logits. Shown is how
often the first n heads are right on an eighth of the text that they were not fitted to, where the model's
likeliest tokens are those of the text, and the gain that follows. Heads that are trained for their tokens may
be better than that.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import numpy as np

from edgekit.compiler.model.language.gguf_model import open_gguf_model
from edgekit.compiler.model.language.language_model import DecoderConfig, LanguageModel
from edgekit.compiler.model.language.reference_decoder import ReferenceDecoder
from edgekit.processing.tokenizer import tokenize
from edgekit.target.decoder import DecoderRunner
from edgekit.target.registry import open_decoder
from tests.benchmarks.bench_generate import write_variant

PROMPT, MOST, REPEATS = 40, 5, 5
TOKENS, WINDOW, DAMPING = 12_288, 256, 0.01


def step_ms(runner: DecoderRunner, count: int) -> float:
    """Return the least CPU milliseconds of a step of ``count`` tokens."""
    times = []
    for repeat in range(REPEATS):
        runner.truncate(PROMPT)
        tokens = [2000 + 7 * repeat + index for index in range(count)]
        started = time.process_time()
        runner.forward(tokens, rows=count)
        times.append(1000 * (time.process_time() - started))
    return min(times)


def needed(cost: float, count: int) -> float:
    """Return the least probability at which steps of ``count`` tokens pay that cost ``cost`` single ones.

    >>> round(needed(1.75, 3), 3), needed(3.5, 3)
    (0.5, inf)
    """
    if cost >= count:
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**n for n in range(count)) < cost else (low, middle)
    return high


def head_share(config: DecoderConfig) -> float:
    """Return the weights of a Medusa head, as a share of those that a step reads."""
    layers = sum(math.prod(s) for n, s in config.weight_shapes().items() if "layers" in n)
    output = config.width * config.vocabulary
    return (config.width**2 + output) / (layers + output)


def right_shares(model: LanguageModel, text: str) -> list[float]:
    """Return the share of places at which the first n fitted heads are right, for n from 1 on."""
    decoder = ReferenceDecoder(model)
    ids = np.array(tokenize(model.tokenizer, text, TOKENS, False).ids)
    ids = ids[: len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW)
    hidden = np.stack(decoder.hidden(ids.tolist()))
    likeliest = np.stack([decoder.logits(rows).argmax(axis=-1) for rows in hidden])
    held_out = max(1, len(ids) // 8)
    right = greedy = np.ones((held_out, WINDOW), bool)
    shares = []
    for ahead in range(1, MOST):
        x, y = (hidden[:-held_out, start : start + WINDOW - ahead] for start in (0, ahead))
        x, y = x.reshape(-1, x.shape[-1]).astype(np.float64), y.reshape(-1, y.shape[-1]).astype(np.float64)
        moments = x.T @ x
        moments += DAMPING * np.trace(moments) / len(moments) * np.eye(len(moments))
        head = np.linalg.solve(moments, x.T @ y).astype(np.float32)
        tried = hidden[-held_out:, : WINDOW - ahead] @ head
        guesses = np.stack([decoder.logits(rows).argmax(axis=-1) for rows in tried])
        # The text continues as the model would up to there, so what it gives there is its own next token.
        follows = likeliest[-held_out:, ahead - 1 : -1] == ids[-held_out:, ahead:]
        greedy = greedy[:, : WINDOW - ahead] & follows
        right = right[:, : WINDOW - ahead] & (guesses == likeliest[-held_out:, ahead:])
        shares.append(float(right[greedy].mean()))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--heads-on", nargs="+", type=Path, default=[])
    arguments = parser.parse_args()
    model = open_gguf_model(arguments.model)
    best: dict[tuple[str, bool, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        runners = {}
        for name in arguments.variants:
            target, _, precision = name.partition(":")
            own = Path(folder) / name.replace(":", "-")
            write_variant(target, precision, model, own)
            made = json.loads((own / "made.json").read_text())
            files = {file: own / file for file in made["files"]}
            runners[name] = open_decoder(target, files, made["options"], 1, made["context"])
            runners[name].forward(list(range(1000, 1000 + PROMPT)))
        for _ in range(arguments.rounds):
            for name, runner in runners.items():
                for consistent in (False, True):
                    runner.row_consistent = consistent
                    for count in range(1, MOST + 1):
                        key = (name, consistent, count)
                        best[key] = min(best.get(key, math.inf), step_ms(runner, count))
    share = head_share(model.config)
    text = "".join(path.read_text("utf-8") for path in arguments.heads_on)
    right = right_shares(model, text) if text else []
    if right:
        print("the first n heads are right: " + ", ".join(f"{part:.2f}" for part in right))
    print(f"a head has {share:.2f} of the weights that a step reads")
    for name in arguments.variants:
        single = best[name, False, 1]
        for consistent in (False, True):
            rows = [best[name, consistent, count] for count in range(1, MOST + 1)]
            kind = "rows agree" if consistent else "plain"
            least = [needed(ms / single, n) for n, ms in enumerate(rows, 1)]
            heads = [needed(ms / single + (n - 1) * share, n) for n, ms in enumerate(rows, 1)]
            print(f"{name:16}{kind:12}" + "".join(f"{ms:8.2f}" for ms in rows) + "   ms")
            for kind, row in (("p needed", least), ("with heads", heads)):
                print(f"{'':16}{kind:12}{'':8}" + "".join(f"{p:8.2f}" for p in row[1:]))
            if right:
                written = [1 + sum(right[: n - 1]) for n in range(1, MOST + 1)]
                gains = [written[n - 1] / (ms / single + (n - 1) * share) for n, ms in enumerate(rows, 1)]
                print(f"{'':16}{'gain':12}" + "".join(f"{gain:8.2f}" for gain in gains))


if __name__ == "__main__":
    main()
