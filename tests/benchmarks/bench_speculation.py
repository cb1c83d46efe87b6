"""Guesses on 100 prompts: which texts are the same, acceptance and gain by class of prompt.

    python -m tests.benchmarks.bench_speculation CHAT.edgekit [--by draft] [--tokens 48] [--each 20]

Each prompt is answered with guesses, and by the same steps without, the likeliest token each time. ``as
plain`` counts the texts that are those of a session that does not speculate, whose single tokens are not
padded. Times are CPU times of the process, one thread of the engine, after the first token; a ratio above 1
is a gain. ``plain`` is the gain over that session. Last comes the decision of
``speculate="auto"`` on this machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from edgekit.runtime.generate import GeneratedText, TextSession

TOPICS = (
    "a capacitor", "bread", "the tides", "a bicycle", "rice", "a lighthouse", "glass", "the moon", "a violin",
    "copper", "a compass", "snow", "a bridge", "honey", "a clock", "paper", "a river", "salt", "a kite",
    "steel",
)  # fmt: skip
FACTS = (
    "{0} has three parts. The first part of {0} is old. The second part of {0} is new. The third part of {0}"
    " is small. Every part of {0} is checked once a year, and every part of {0} is listed in the register."
)
CLASSES = {
    "explain": "Explain in two sentences what you know about {0}.",
    "story": "Tell me a short story about {0}.",
    "correct": "Rewrite this text with correct punctuation and repeat it in full: "
    + FACTS.lower().replace(".", ""),
    "summarise": "Summarise this text: " + FACTS,
    "extract": "Copy each sentence of this text as an item of a list:\n" + FACTS,
}


class Answer(NamedTuple):
    """A text, and the CPU seconds after its first token."""

    result: GeneratedText
    seconds: float


def answers(session: TextSession, prompts: Sequence[str], tokens: int) -> list[Answer]:
    """One after the other."""
    found = []
    for prompt in prompts:
        stream = session.chat([{"role": "user", "content": prompt}], max_tokens=tokens)
        next(stream, "")
        began_s = time.process_time()
        stream.text()
        found.append(Answer(stream.result, time.process_time() - began_s))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--by", choices=("lookup", "draft"), default="lookup")
    parser.add_argument("--engine")
    parser.add_argument("--variant")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--each", type=int, default=20, help="prompts of each class")
    given = parser.parse_args(arguments)

    def opened(speculate: str) -> TextSession:
        return TextSession(
            given.bundle, engine=given.engine, variant=given.variant, threads=1, speculate=speculate
        )

    columns = f"{'class':12}{'same text':>12}{'as plain':>12}{'accepted':>10}"
    print(f"{columns}{'tokens a step':>15}{'gain':>8}{'plain':>8}")
    same = total = 0
    with opened("off") as plain, opened("off") as padded, opened(given.by) as guessing:
        for cache in padded._scheduler.decoder.load()._caches:
            cache.runner.row_consistent = True
        for kind, template in CLASSES.items():
            prompts = [template.format(topic) for topic in islice(cycle(TOPICS), given.each)]
            runs = [answers(session, prompts, given.tokens) for session in (plain, padded, guessing)]
            pairs = list(zip(runs[1], runs[2], strict=True))
            equal = sum(a.result.text == b.result.text for a, b in pairs)
            plainly = sum(a.result.text == b.result.text for a, b in zip(runs[0], runs[2], strict=True))
            made = sum(b.result.tokens - 1 for b in runs[2])
            steps = sum(b.result.steps for b in runs[2])
            proposed = sum(b.result.proposed for b in runs[2])
            accepted = sum(b.result.accepted for b in runs[2])
            seconds = [sum(answer.seconds for answer in run) for run in runs]
            print(
                f"{kind:12}{f'{equal} of {len(pairs)}':>12}{plainly:>12}{accepted / max(1, proposed):>10.2f}"
                f"{made / max(1, steps):>15.2f}{seconds[1] / seconds[2]:>8.2f}"
                f"{seconds[0] / seconds[2]:>8.2f}",
                flush=True,
            )
            same, total = same + equal, total + len(pairs)
        print(f"{same} of {total} texts are the same, on {guessing.active.variant}, {guessing.active.engine}")
    with opened("auto") as session:
        print(f"auto: {session.facts()['speculation']}")


if __name__ == "__main__":
    main()
