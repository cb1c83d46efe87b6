"""A model's first layers, and the model itself, as its draft: same texts, right guesses, gain in CPU time.

    python -m tests.benchmarks.bench_draft MODEL.gguf ort:int8 --layers 28,30 [--tokens 16] [--each 4]

Prompts of five classes, every other text greedy, the others sampled at .8, against the same steps without
guesses; one thread of the engine, times after the first token, the draft's reading of the prompt included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.language.language_model import LanguageModel
from edgekit.compiler.model.language.open_model import open_language_model
from edgekit.compiler.quantize.language import quantize_decoder
from edgekit.runtime.generate import TextParts, TextSession
from edgekit.runtime.generate.draft_model import DraftModel, DraftProposer
from edgekit.runtime.generate.options import GenerateOptions
from edgekit.runtime.generate.speculation import Speculation
from edgekit.runtime.generate.text_stream import TextStream
from edgekit.target.decoder import DecoderRunner
from edgekit.target.registry import decoder_compiler, open_decoder
from tests.benchmarks.bench_speculation import CLASSES, TOPICS, Answer

CONTEXT = 512


def loaded(
    model: LanguageModel, layers: int, variant: str, weights: Mapping[str, Any], folder: Path
) -> DecoderRunner:
    """The model's first layers, compiled."""
    target, precision = variant.split(":")
    cut = replace(model, config=replace(model.config, layers=layers))
    own = {name: weights[name] for name in cut.weight_names if name in weights}
    artifact = decoder_compiler(target).compile_decoder(cut, precision, own, CONTEXT)
    folder.mkdir(exist_ok=True)
    return open_decoder(target, write_files(artifact, folder), artifact.options, 1, CONTEXT)


def answers(
    session: TextSession, prompts: Sequence[list[int]], tokens: int, draft: DraftModel | None
) -> list[tuple[list[int], Answer]]:
    """Each text's tokens, and how it went."""
    found = []
    for index, prompt in enumerate(prompts):
        sampled = GenerateOptions(max_tokens=tokens, temperature=0.8, seed=index)
        options = sampled if index % 2 else GenerateOptions(max_tokens=tokens)
        stream = TextStream(session, prompt, options, speculation=Speculation(draft is not None, "", 4))
        stream.proposer = None if draft is None else DraftProposer(draft.propose, stream)
        next(stream, "")
        began_s = time.process_time()
        stream.text()
        found.append((stream.tokens, Answer(stream.result, time.process_time() - began_s)))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("variant", help="TARGET:PRECISION")
    parser.add_argument("--layers", required=True, help="of each draft, by commas")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--each", type=int, default=4, help="prompts of each class")
    given = parser.parse_args(arguments)
    model, precision = open_language_model(given.model), given.variant.partition(":")[2]
    weights = {} if precision in ("fp32", "fp16") else quantize_decoder(model, precision, ())
    parts = TextParts(model.tokenizer, model.stop_ids, model.chat_template, model.bos_id)
    with tempfile.TemporaryDirectory() as folder:
        load = partial(loaded, model, variant=given.variant, weights=weights)
        runner = load(layers=model.config.layers, folder=Path(folder, "model"))
        with TextSession.of_parts(runner, parts) as session:
            runner.row_consistent = True
            asked = [text.format(topic) for text in CLASSES.values() for topic in TOPICS[: given.each]]
            prompts = [session.chat([{"role": "user", "content": each}]).tokens for each in asked]
            plain = answers(session, prompts, given.tokens, None)
            for layers in map(int, given.layers.split(",")):
                draft = DraftModel(partial(load, layers=layers, folder=Path(folder, str(layers))), 0.5)
                draft.load()
                made = answers(session, prompts, given.tokens, draft)
                draft.close()
                results = [each.result for _, each in made]
                same = sum(a[0] == b[0] for a, b in zip(plain, made, strict=True))
                right = sum(r.accepted for r in results) / max(1, sum(r.proposed for r in results))
                steps = sum(r.tokens - 1 for r in results) / max(1, sum(r.steps for r in results))
                gain = sum(a.seconds for _, a in plain) / sum(a.seconds for _, a in made)
                print(
                    f"{layers} layers: {same} of {len(made)} texts the same, {right:.2f} of guesses right,"
                    f" {steps:.2f} tokens a step, gain {gain:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
