"""Many generations, memory flat: ``python -m tests.benchmarks.soak_text_session [GENERATIONS] [BUNDLE]``.

Without a bundle the small numpy decoder answers. Prompts share beginnings or not; texts end or are cancelled.
Resident memory is printed at each tenth. It grows until the tokenizer has seen as many words as it remembers
(``CACHED_WORDS``), of which each prompt is one here; then it stays.
"""

from __future__ import annotations

import random
import sys

from edgekit.runtime.generate import TextParts, TextSession
from edgekit.runtime.metrics.text_metrics import TextMetrics
from edgekit.system.memory import resident_bytes
from tests.fixtures.numpy_decoder import CHATML, STOP_ID, NumpyDecoder, byte_tokenizer


def generate_one(session: TextSession, draw: random.Random) -> str:
    """One text of one of five kinds; its reason."""
    kind = draw.randrange(5)
    prompt = "".join(
        draw.choice(["the ", "a cat ", "sat ", "é", "on ", str(draw.random())]) for _ in range(9)
    )
    if kind == 0:
        stream = session.chat(
            [{"role": "system", "content": "Be kind " * 6}, {"role": "user", "content": prompt}]
        )
    else:
        stream = session.generate("once upon a time " + prompt, max_tokens=12, temperature=0.5, seed=kind)
    with stream:
        for number, _ in enumerate(stream):
            if number >= 6 and kind == 1:
                stream.cancel()
            if number >= 12:
                break
    return stream.result.reason


def main() -> None:
    generations = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    metrics, draw = TextMetrics(), random.Random(1)
    if len(sys.argv) > 2:
        session = TextSession(sys.argv[2], metrics=metrics, conversations=2, kept_bytes=8 << 20)
    else:
        parts = TextParts(byte_tokenizer(), (STOP_ID,), CHATML)
        session = TextSession.of_parts(
            NumpyDecoder(2), parts, metrics=metrics, conversations=2, kept_bytes=1 << 20, speculate="lookup"
        )
    with session:
        for number in range(1, generations + 1):
            generate_one(session, draw)
            if number % max(1, generations // 10) == 0:
                print(f"{number}: {resident_bytes() >> 20} MB, {metrics.snapshot()['texts']}", flush=True)


if __name__ == "__main__":
    main()
