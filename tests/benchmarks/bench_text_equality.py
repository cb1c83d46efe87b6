"""Greedy texts of 100 prompts with each feature of a session, compared with plain decoding token for token.

    python -m tests.benchmarks.bench_text_equality MODEL.gguf ort:fp32 ort:int8 openvino:int4 [--tokens 32]

Plain decoding is a session with its own cache, empty before each text. The features are ``speculate="auto"``,
prompt lookup, a draft (the model without its last two layers), four conversations in shared steps, the next
turn of a chat whose first turn is in the cache, and a question after a system prompt that was read before.
For texts that differ, it prints the largest gap of the two likeliest plain logits at the first other token.

``--feature llama.cpp`` compares with llama.cpp's texts of the same file, and prints each place where texts
part with both gaps.

``--draft SMALL.gguf:int8`` compares texts and their CPU time with those of a bundle that was built with this
draft instead: without proposals, and with 1 to ``--proposals`` in a step. Texts are written in turns, prompt
by prompt. Times begin after the prompt was read, by the draft too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.compiler.evaluate.verify import write_files
from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.decoder import DecoderRunner
from edgekit.generate.device.decoder_registry import decoder_compiler, open_decoder
from edgekit.generate.device.draft_model import DraftModel, DraftProposer
from edgekit.generate.device.options import GenerateOptions
from edgekit.generate.device.speculation import Speculation
from edgekit.generate.device.text_stream import TextStream
from edgekit.generate.host.judge.texts import calibration_tokens
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.weights.language import quantize_decoder
from tests.benchmarks.text_runners import LlamaCppRunner

TOPICS = (
    "a capacitor", "bread", "the tides", "a bicycle", "rice", "a lighthouse", "glass", "the moon", "a violin",
    "copper", "a compass", "snow", "a bridge", "honey", "a clock", "paper", "a river", "salt", "a kite",
    "steel",
)  # fmt: skip
FACTS = (
    "{0} has three parts. The first part of {0} is old. The second part of {0} is new. The third part of {0}"
    " is small. Every part of {0} is checked once a year, and every part of {0} is listed in the register."
)
CONTEXT = 512
CLASSES = {
    "explain": "Explain in two sentences what you know about {0}.",
    "story": "Tell me a short story about {0}.",
    "correct": "Rewrite this text with correct punctuation and repeat it in full: "
    + FACTS.lower().replace(".", ""),
    "summarise": "Summarise this text: " + FACTS,
    "extract": "Copy each sentence of this text as an item of a list:\n" + FACTS,
}
CODE = {"code": "Write a Python class for {0} with three methods."}
FEATURES = ("auto", "lookup", "draft", "together", "next turn", "system prompt")
LLAMA_CPP = "llama.cpp"
SYSTEM = {"role": "system", "content": FACTS.format("a printer")}


def loaded(
    model: LanguageModel,
    layers: int,
    variant: str,
    weights: Mapping[str, Any],
    folder: Path,
    equal_rows: bool = False,
) -> DecoderRunner:
    """Compile the first layers of a model."""
    target, precision = variant.split(":")
    cut = replace(model, config=replace(model.config, layers=layers))
    own = {name: weights[name] for name in cut.weight_names if name in weights}
    artifact = decoder_compiler(target).compile_decoder(cut, precision, own, CONTEXT, (), equal_rows)
    folder.mkdir(exist_ok=True)
    return open_decoder(target, write_files(artifact, folder), artifact.options, 1, CONTEXT)


class Written(NamedTuple):
    """A text's new tokens, the gap of the two largest logits at each of them, and the CPU seconds of a token
    after the prompt was read; share of right proposals."""

    tokens: list[int]
    gaps: list[float]
    token_s: float = 0.0
    right: float = 0.0


def write(
    session: TextSession,
    prompt: Sequence[int],
    limit: int,
    draft: DraftModel | None = None,
    proposals: int = 4,
) -> Written:
    """Generate a greedy text."""
    options = GenerateOptions(max_tokens=limit)
    if draft is not None:
        stream = TextStream(session, list(prompt), options, speculation=Speculation(True, "", proposals))
        stream.proposer = DraftProposer(draft.propose, stream)
    else:
        stream = session._stream(list(prompt), options, 0.0)
    gaps: list[float] = []
    choose = stream._choose

    def recorded(row: Any) -> int | None:
        second, first = np.partition(row, -2)[-2:]
        gaps.append(float(first - second))
        return choose(row)

    stream._choose = recorded  # type: ignore[method-assign]
    times = []
    for _ in stream:
        times.append((time.process_time(), len(stream.tokens)))
    (start_s, first), (end_s, last) = times[min(1, len(times) - 1)], times[-1]
    right = stream.result.accepted / max(1, stream.result.proposed)
    return Written(stream.tokens[len(prompt) :], gaps, (end_s - start_s) / max(1, last - first), right)


def forget(session: TextSession) -> None:
    """Empty the caches of a session."""
    for cache in session._scheduler.decoder.load()._caches:
        cache.forget()


@contextmanager
def opened(runner: DecoderRunner, parts: TextParts, **options: Any) -> Iterator[TextSession]:
    """Open a session on a decoder of its own that shares the weights."""
    with TextSession.of_parts(runner.another(), parts, **options) as session:
        yield session


def plain(runner: DecoderRunner, parts: TextParts, prompts: Sequence[list[int]], limit: int) -> list[Written]:
    """Generate each text alone."""
    with opened(runner, parts, kept_bytes=0) as session:
        texts = []
        for prompt in prompts:
            forget(session)
            texts.append(write(session, prompt, limit))
        return texts


def compared(feature: str, expected: Sequence[Written], actual: Sequence[Written]) -> str:
    """Return how many texts are the same, and the largest gap at which one parts."""
    gaps = []
    for one, other in zip(expected, actual, strict=True):
        if one.tokens != other.tokens:
            common = sum(np.cumprod([a == b for a, b in zip(one.tokens, other.tokens, strict=False)]))
            gaps.append(one.gaps[int(common)])
    parts = f", gaps up to {max(gaps):.3g}" if gaps else ""
    return f"{feature}: {len(expected) - len(gaps)} of {len(expected)} the same{parts}"


def written_by_llama_cpp(
    file: Path, prompts: Sequence[list[int]], limit: int, stop_ids: Any
) -> list[Written]:
    """Generate each text with llama.cpp, on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.gguf").symlink_to(file.resolve())
        runner, texts = LlamaCppRunner(Path(folder), "", 1), []
        for prompt in prompts:
            texts.append(Written([], []))
            for row in runner.rows(prompt, limit):
                second, first = np.partition(row, -2)[-2:]
                texts[-1].gaps.append(float(first - second))
                texts[-1].tokens.append(int(row.argmax()))
                if texts[-1].tokens[-1] in stop_ids:
                    break
        return texts


def run_draft(
    model: LanguageModel,
    variant: str,
    weights: Mapping[str, Any],
    small: LanguageModel,
    draft_precision: str,
    prompts: Mapping[str, list[str]],
    limit: int,
    most: int,
) -> None:
    """Print a line for each class of prompts and number of proposals, with the gain over a bundle without a
    draft."""
    parts = TextParts(model.tokenizer, model.stop_ids, model.chat_template, model.bos_id)
    with tempfile.TemporaryDirectory() as folder:
        names = ("without a draft", "proposals: 0", *(f"proposals: {count + 1}" for count in range(most)))
        layers, target = model.config.layers, variant.partition(":")[0]
        plain_runner, equal_runner = (
            loaded(model, layers, variant, weights, Path(folder, str(equal)), equal)
            for equal in (False, True)
        )
        own = {} if draft_precision.startswith("fp") else quantize_decoder(small, draft_precision, ())
        form, place = f"{target}:{draft_precision}", Path(folder, "draft")
        draft = DraftModel(lambda: loaded(small, small.config.layers, form, own, place), 0.5)
        with (
            opened(plain_runner, parts, kept_bytes=0) as one,
            opened(equal_runner, parts, kept_bytes=0) as two,
        ):
            for kind, asked in prompts.items():
                texts: dict[str, list[Written]] = {name: [] for name in names}
                for text in asked:
                    prompt = one.chat([{"role": "user", "content": text}]).tokens
                    for count, name in enumerate(names, -1):
                        session = two if count >= 0 else one
                        forget(session)
                        written = write(session, prompt, limit, draft if count > 0 else None, count)
                        texts[name].append(written)
                base = sum(written.token_s for written in texts[names[0]])
                for name in names:
                    rows = texts[name]
                    seconds, right = (sum(column) for column in zip(*(row[2:] for row in rows), strict=True))
                    token_ms, share = 1000 * seconds / len(rows), right / len(rows)
                    same = compared(name, texts[names[1]], rows)
                    print(f"{kind}: {same}; {token_ms:.1f} ms, gain {base / seconds:.2f}, right {share:.2f}")
        draft.close()


def run(
    file: Path,
    model: LanguageModel,
    variant: str,
    weights: Mapping[str, Any],
    each: int,
    limit: int,
    wanted: Sequence[str],
) -> None:
    """Print a line for each feature of a variant."""
    parts = TextParts(model.tokenizer, model.stop_ids, model.chat_template, model.bos_id)
    with tempfile.TemporaryDirectory() as folder:
        runner = loaded(model, model.config.layers, variant, weights, Path(folder, "model"))
        asked = [text.format(topic) for text in CLASSES.values() for topic in TOPICS[:each]]
        with opened(runner, parts) as session:
            user = [{"role": "user", "content": text} for text in asked]
            prompts = [session.chat([message]).tokens for message in user]
            after_system = [session.chat([SYSTEM, message]).tokens for message in user]
            text_of = session.tokenizer.text_of
        alone = plain(runner, parts, prompts, limit)

        if LLAMA_CPP in wanted:
            texts = written_by_llama_cpp(file, prompts, limit, model.stop_ids)
            print(f"{variant} {compared(LLAMA_CPP, alone, texts)}")
            for one, other in zip(alone, texts, strict=True):
                at = next(
                    (
                        i
                        for i, pair in enumerate(zip(one.tokens, other.tokens, strict=False))
                        if len(set(pair)) > 1
                    ),
                    None,
                )
                if at is not None:
                    print(f"  token {at + 1}: gap {one.gaps[at]:.3f}, llama.cpp's {other.gaps[at]:.3f}")

        def say(feature: str, expected: Sequence[Written], actual: Sequence[Written]) -> None:
            print(f"{variant} {compared(feature, expected, actual)}", flush=True)

        for mode in ("auto", "lookup"):
            if mode not in wanted:
                continue
            with opened(runner, parts, speculate=mode, kept_bytes=0) as session:
                texts = []
                for prompt in prompts:
                    forget(session)
                    texts.append(write(session, prompt, limit))
            say(mode, alone, texts)
        if "draft" in wanted:
            smaller = Path(folder, "draft")
            draft = DraftModel(lambda: loaded(model, model.config.layers - 2, variant, weights, smaller), 0.5)
            with opened(runner, parts, kept_bytes=0) as session:
                session._scheduler.decoder.load().runner.row_consistent = True
                texts = []
                for prompt in prompts:
                    forget(session)
                    texts.append(write(session, prompt, limit, draft))
            draft.close()
            say("draft", alone, texts)
        if "together" in wanted:
            with (
                opened(runner, parts, conversations=4, kept_bytes=0) as session,
                ThreadPoolExecutor(4) as pool,
            ):
                texts = list(pool.map(lambda prompt: write(session, prompt, limit), prompts))
            say("together", alone, texts)
        if "next turn" in wanted:
            follow = "Say that again in fewer words."
            with opened(runner, parts) as session:
                answers = ["".join(map(text_of, written.tokens)) for written in alone]
                turns = [
                    session.chat(
                        [
                            message,
                            {"role": "assistant", "content": answer},
                            {"role": "user", "content": follow},
                        ]
                    ).tokens
                    for message, answer in zip(user, answers, strict=True)
                ]
                texts = []
                for prompt, turn in zip(prompts, turns, strict=True):
                    forget(session)
                    write(session, prompt, limit)
                    texts.append(write(session, turn, limit))
            say("next turn", plain(runner, parts, turns, limit), texts)
        if "system prompt" in wanted:
            with opened(runner, parts) as session:
                texts = [write(session, prompt, limit) for prompt in after_system]
            say("system prompt", plain(runner, parts, after_system, limit), texts)
        runner.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("variants", nargs="+", metavar="TARGET:PRECISION")
    parser.add_argument("--each", type=int, default=20, help="prompts of each of five classes")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--draft", metavar="MODEL:PRECISION", default="")
    parser.add_argument("--proposals", type=int, default=3)
    parser.add_argument(
        "--feature", choices=(*FEATURES, LLAMA_CPP), action="append", help="repeatable; all by default"
    )
    given = parser.parse_args(arguments)
    model = open_language_model(given.model)
    for variant in given.variants:
        precision = variant.partition(":")[2]
        text = calibration_tokens(model) if precision == "int4" else ()
        weights = {} if precision in ("fp32", "fp16") else quantize_decoder(model, precision, text)
        if given.draft:
            path, _, own = given.draft.rpartition(":")
            prompts = {
                k: [text.format(topic) for topic in TOPICS[: given.each]]
                for k, text in (CLASSES | CODE).items()
            }
            small = open_language_model(Path(path))
            run_draft(model, variant, weights, small, own, prompts, given.tokens, given.proposals)
            continue
        run(given.model, model, variant, weights, given.each, given.tokens, given.feature or FEATURES)


if __name__ == "__main__":
    main()
