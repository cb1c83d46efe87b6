"""Greedy text of one language model in float32 on several engines, token for token.

    python -m tests.benchmarks.bench_same_text MODEL.gguf [ort openvino tflite] [--prompts 20] [--tokens 128]

The first target writes the texts. Each other one writes its own after the same prompts, and is given the
first one's text too: a token that is not its own likeliest is counted with how far below it is.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.language import LanguageModel
from edgekit.compiler.model.language.open_model import open_language_model
from edgekit.processing.tokenizer import tokenize
from edgekit.target.decoder import DecoderRunner
from edgekit.target.registry import decoder_compiler, open_decoder

PROMPTS = (
    "Once upon a time", "The capital of France is", "A recipe for bread:", "def mean(values):\n    ",
    "The three most important things about electricity are", "In the year 1900,", "Water boils at",
    "Question: Why is the sky blue?\nAnswer:", "Dear Sir or Madam,", "The first step in building a house is",
    "import numpy as np\n", "Birds can fly because", "Her brother opened the door and", "A triangle has",
    "The history of the bicycle begins", "1, 2, 3, 4,", "To clean a window, you need",
    "The sea was calm that morning.", "A good teacher", "SELECT name FROM",
)  # fmt: skip
CONTEXT = 256


def written(runner: DecoderRunner, prompt: Sequence[int], tokens: int, stop_ids: Sequence[int]) -> list[int]:
    """The likeliest token each time."""
    runner.truncate(0)
    answer = [int(runner.forward(prompt)[-1].argmax())]
    while len(answer) < tokens and answer[-1] not in stop_ids:
        answer.append(int(runner.forward(answer[-1:])[-1].argmax()))
    return answer


def below_likeliest(runner: DecoderRunner, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
    """For each token of another engine's text, how far its logit is below the likeliest's."""
    runner.truncate(0)
    whole = [*prompt, *answer[:-1]]
    logits = runner.forward(whole, len(answer))
    found: list[float] = (logits.max(axis=-1) - logits[np.arange(len(answer)), list(answer)]).tolist()
    return found


def compare(model: LanguageModel, targets: Sequence[str], prompts: int, tokens: int) -> None:
    """Print a line for each target."""
    asked = [tokenize(model.tokenizer, text, CONTEXT - tokens, True).ids for text in PROMPTS[:prompts]]
    first: list[list[int]] = []
    for target in targets:
        began_s = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            artifact = decoder_compiler(target).compile_decoder(model, "fp32", {}, CONTEXT)
            files = write_files(artifact, Path(folder))
            with closing(open_decoder(target, files, artifact.options, 1, CONTEXT)) as runner:
                del artifact
                gc.collect()
                texts = [written(runner, prompt, tokens, model.stop_ids) for prompt in asked]
                first = first or texts
                same = sum(own == other for own, other in zip(texts, first, strict=True))
                gaps = [
                    gap
                    for prompt, text in zip(asked, first, strict=True)
                    for gap in below_likeliest(runner, prompt, text)
                ]
        print(
            f"{target}: {same} of {len(texts)} texts are {targets[0]}'s, {sum(map(len, texts))} tokens;"
            f" {sum(gap > 0 for gap in gaps)} of {targets[0]}'s are not its likeliest, by {max(gaps):.4f} at"
            f" most; {time.process_time() - began_s:.0f} s of CPU",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("targets", nargs="*", default=["ort", "openvino", "tflite"])
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args(arguments)
    compare(open_language_model(given.model), given.targets, given.prompts, given.tokens)


if __name__ == "__main__":
    main()
