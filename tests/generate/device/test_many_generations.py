"""Memory stays as it is over many texts."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import tracemalloc

import pytest

from edgekit.generate import TextParts, TextSession
from edgekit.generate.device.text_metrics import TextMetrics
from tests.fixtures.numpy_decoder import CHATML, NumpyDecoder

pytestmark = [pytest.mark.needs_tokenizers, pytest.mark.needs_templates]


def generate_one(session: TextSession, draw: random.Random) -> str:
    """Generate a text of one of five kinds. Return why it ended."""
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


def test_memory_is_flat(parts: TextParts) -> None:
    metrics, draw = TextMetrics(), random.Random(1)
    session = TextSession.of_parts(
        NumpyDecoder(2),
        parts._replace(template=CHATML),
        metrics=metrics,
        conversations=2,
        kept_bytes=1 << 18,
        speculate="lookup",
    )
    with session:
        for _ in range(40):
            generate_one(session, draw)
        tracemalloc.start()
        try:
            for _ in range(10):
                generate_one(session, draw)
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(30):
                generate_one(session, draw)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert session.facts()["kept_bytes"] <= 1 << 18
    # Kept caches come and go within their limit; a stream that leaked would add some 10 kB for each text.
    assert after - before < (1 << 18) + 60_000
    assert sum(metrics.snapshot()["texts"].values()) == 80


WORDS = """
import random
from edgekit.processing.tokenizer import CACHED_WORDS, open_whole
from edgekit.system.memory import resident_bytes
from tests.fixtures.numpy_decoder import byte_tokenizer
import os
tokenizer, draw = open_whole(byte_tokenizer()), random.Random(1)
for number in range(6 * CACHED_WORDS):
    tokenizer.encode("".join(draw.choices("abcdefghij", k=100)))
    if number == CACHED_WORDS + 100:
        before_mb = resident_bytes() >> 20
print((resident_bytes() >> 20) - before_mb)
"""


def test_the_tokenizer_remembers_only_so_many_words() -> None:
    """Its memory is not Python's: seen from outside, in a process of its own. 26 MB were added without."""
    done = subprocess.run([sys.executable, "-c", WORDS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 6
