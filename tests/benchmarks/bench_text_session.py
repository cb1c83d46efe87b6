"""What a text session gains on a real language model: ``python -m tests.benchmarks.bench_text_session
BUNDLE``.

Speculative decoding against none (same text, tokens a step, CPU time a token), a system prompt read again
from memory and from disk, and four conversations at once against one by one. Times are CPU times of the
process, on one thread of the engine: other programs disturb them little.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

from edgekit.runtime.generate import GeneratedText, TextSession, TextStream

FREE = (
    "Explain in two sentences what you know about Labrador retriever.",
    "Tell me a short story about a cicada.",
    "What are the advantages and disadvantages of bicycles?",
)
GROUNDED = (
    "Copy the following list and add one more item at the end:\n- apples from the garden\n"
    "- bread from the bakery\n- milk from the farm\n- cheese from the market\n- eggs from the farm",
    "Rewrite this text with correct punctuation and repeat it in full: the edge device reads the "
    "temperature every ten seconds it stores the reading in a local file when the network is available "
    "it sends the file to the server and deletes the local copy",
    "Summarise: The camera runs a detector on every frame. The detector finds people, cars and bicycles. "
    "The camera runs a second detector at night. The second detector finds people and animals. "
    "Both run on the device.",
)
RULE = "Rule {}: answer in plain words, name the source of each figure, and say what is not known. "


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def speculation(path: Path, tokens: int) -> None:
    """Against the same loop without proposals, rows that agree in both."""
    for kind, prompts in (("free", FREE), ("grounded", GROUNDED)):
        texts, seconds, made, steps, plain_s, agreed = {}, 0.0, 0, 0, 0.0, 0
        with TextSession(path, threads=1, speculate="off") as session:
            for cache in session._scheduler.decoder.load()._caches:
                cache.runner.row_consistent = True
            for prompt in prompts:
                texts[prompt], took_s, _ = _timed(session, prompt, tokens)
                plain_s += took_s
        with TextSession(path, threads=1, speculate="lookup") as session:
            for prompt in prompts:
                text, took_s, result = _timed(session, prompt, tokens)
                agreed += text == texts[prompt]
                seconds += took_s
                made, steps = made + result.tokens - 1, steps + result.steps
        print(
            f"{kind}: same text {agreed} of {len(prompts)}, {made / steps:.2f} tokens a step, "
            f"{plain_s / seconds:.2f}x of CPU time ({made} tokens)",
            flush=True,
        )


def _timed(session: TextSession, prompt: str, tokens: int) -> tuple[str, float, GeneratedText]:
    stream = session.chat(ask(prompt), max_tokens=tokens)
    next(stream)
    began = time.process_time()
    text = stream.text()
    return text, time.process_time() - began, stream.result


def prefix(path: Path, rules: int) -> None:
    """Time to the first token of a long system prompt: the first time, again, and in another session from
    disk."""
    system = {"role": "system", "content": "".join(RULE.format(i) for i in range(rules))}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EDGEKIT_CACHE"] = folder
        for name in ("first session", "second session"):
            with TextSession(path, threads=1, speculate="off", keeps_on_disk=True) as session:
                for question in ("Who are you?", "What is a capacitor?"):
                    began = time.process_time()
                    stream = session.chat([system, *ask(question)], max_tokens=1)
                    stream.text()
                    took_ms = 1000 * (time.process_time() - began)
                    result = stream.result
                    print(
                        f"{name}: {result.prompt_tokens} tokens, {result.cached_tokens} cached, first token "
                        f"after {took_ms:.0f} ms of CPU",
                        flush=True,
                    )


def conversations(path: Path, tokens: int) -> None:
    """Four at once, each with a cache of its own, against one by one; what each had when the first ended, and
    the steps that were shared."""
    prompts = [*FREE, GROUNDED[0]]
    with TextSession(path, threads=1, speculate="off") as session:
        began = time.process_time()
        for prompt in prompts:
            session.chat(ask(prompt), max_tokens=tokens).text()
        alone_s = time.process_time() - began
    with TextSession(path, threads=1, speculate="off", conversations=4) as session:
        alone = [session.chat(ask(prompt), max_tokens=tokens).text() for prompt in prompts]
    with TextSession(path, threads=1, speculate="off", conversations=4) as session:
        streams = [session.chat(ask(prompt), max_tokens=tokens) for prompt in prompts]
        one_ended = Event()

        def write(stream: TextStream) -> None:
            stream.text()
            one_ended.set()

        began = time.process_time()
        threads = [Thread(target=write, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        one_ended.wait()
        made = [stream._generated for stream in streams]
        for thread in threads:
            thread.join()
        together_s = time.process_time() - began
        shared = session.facts()["together"]
    same = sum(stream.result.text == text for stream, text in zip(streams, alone, strict=True))
    print(
        f"four at once: {together_s / alone_s:.2f} of the CPU time one by one, same text {same} of 4, "
        f"tokens when the first ended {made}, {shared['tokens']} of them in {shared['steps']} shared steps"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rules", type=int, default=45)
    parser.add_argument("--only", nargs="*", default=["prefix", "speculation", "conversations"])
    given = parser.parse_args(arguments)
    if "prefix" in given.only:
        prefix(given.bundle, given.rules)
    if "speculation" in given.only:
        speculation(given.bundle, given.tokens)
    if "conversations" in given.only:
        conversations(given.bundle, given.tokens)


if __name__ == "__main__":
    main()
