"""Time to the first token and tokens a second of a language model, for ``edgekit bench``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import EngineError, MissingDependency, UsageError
from edgekit.runtime.local_timings import median
from edgekit.runtime.session_state import log
from edgekit.system.memory import resident_bytes

PROMPT_CHARS = 400
"""Of a prompt, about 100 tokens of English; less if the context is short."""
TOKENS = 32
"""Of an answer, as long as ``seconds`` are not over."""
LEAST_TEXTS = 2
WORDS = "The device reads the temperature every ten seconds and stores it in a local file. "


def refuse_for_text(options: Mapping[str, object]) -> None:
    """Refuse options that are not measured for a language model.

    Raises:
        UsageError: one was given.
    """
    named = [flag for flag, value in options.items() if value]
    if named:
        raise UsageError(f"{', '.join(named)}: does not apply to language models; leave it out")


def bench_text(
    bundle: Bundle, *, engine: str | None, variant: str | None, threads: int | None, seconds: float
) -> list[dict[str, Any]]:
    """Measure each variant that runs here, without speculation and without cached prefixes.

    Args:
        bundle: Bundle of a language model.
        engine: Target whose variants are measured. None means all.
        variant: Name of the only variant to measure. None means all.
        threads: Number of threads of a step. None means a session's default.
        seconds: Time for the texts of one variant, in seconds; at least two texts are generated.

    Returns:
        One row per variant; times are medians.

    Raises:
        UsageError: the variant or engine does not exist.
        EngineError: no variant runs here; the text has the reasons.
    """
    from edgekit.generate import TextSession

    named = [
        v for v in bundle.variants if v.usable and engine in (None, v.target) and variant in (None, v.name)
    ]
    if not named:
        requested = variant or engine
        raise UsageError(
            f"{bundle.name} has no usable variant {requested!r}" if requested else f"{bundle.name} is empty"
        )
    rows, failed = [], []
    for candidate in named:
        began = time.perf_counter()
        try:
            session = TextSession(
                bundle, variant=candidate.name, strict=True, threads=threads, kept_bytes=0, speculate="off"
            )
        except (EngineError, MissingDependency) as problem:
            failed.append(f"{candidate.name}  {problem}")
            log().warning("%s was not measured: %s", candidate.name, problem)
            continue
        with session:
            rows.append(_measured(session, 1000 * (time.perf_counter() - began), seconds))
    if not rows:
        raise EngineError("\n  ".join([f"no variant of {bundle.name} can run here", *failed]))
    return rows


def _measured(session: Any, load_ms: float, seconds: float) -> dict[str, Any]:
    firsts: list[float] = []
    speeds: list[float] = []
    prompts: list[float] = []
    end = time.perf_counter() + seconds
    while len(firsts) < LEAST_TEXTS or time.perf_counter() < end:
        # Another first word each time: nothing of the prompt is in the cache.
        prompt_chars = min(PROMPT_CHARS, max(8, session.capacity // 4))
        stream = session.generate((f"{len(firsts)} " + WORDS * 9)[:prompt_chars], max_tokens=TOKENS)
        stream.text()
        firsts.append(stream.result.first_token_ms)
        prompts.append(stream.result.prompt_tokens)
        if stream.result.tokens_per_s:
            speeds.append(stream.result.tokens_per_s)
    active = session.active
    return {
        "variant": active.variant,
        "engine": active.engine,
        "device": active.device,
        "precision": active.precision,
        "texts": len(firsts),
        "load_ms": load_ms,
        "prompt_tokens": int(median(prompts)),
        "first_token_ms": median(firsts),
        "tokens_per_s": median(speeds) if speeds else None,
        "resident_mb": resident_bytes() >> 20,
    }


def render_text(rows: list[dict[str, Any]]) -> str:
    """Format the rows as a table."""
    width = max(len("variant"), *(len(row["variant"]) for row in rows))
    ran = max(len("engine"), *(len(row["engine"]) for row in rows))
    lines = [f"  {'variant':{width}}  {'engine':{ran}}     load  prompt      first token  tokens/s  memory"]
    for row in rows:
        speed = f"{row['tokens_per_s']:.1f}" if row["tokens_per_s"] else "-"
        prompt, first = f"{row['prompt_tokens']} tokens", row["first_token_ms"]
        names = f"  {row['variant']:{width}}  {row['engine']:{ran}}  {row['load_ms']:>4.0f} ms"
        lines.append(f"{names}  {prompt:<10}  {first:>8.1f} ms  {speed:>8}  {row['resident_mb']} MB")
    return "\n".join(lines)
