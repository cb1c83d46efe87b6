"""Bounds on what a tokenizer's file from a stranger does with a text: how much longer it makes it.

The package ``tokenizers`` has none. Where memory ends, it ends the process; it never returns from a text that
34 steps doubled, and no other thread runs meanwhile. Steps are read back from the package, which has them as
it understood the file; of two equal keys it may have taken either.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from edgekit.errors import CardError

STEPS_LIMIT = 200
"""Normalizers, pre-tokenizers, post-processors and decoders."""
GROWTH_LIMIT = 1000
"""Times as long as a text may become. SentencePiece's Unicode table writes up to 36 bytes for a character."""
GROWN_LIMIT_CHARS = 64 << 20
"""Length of a text times its growth. The package takes 17 bytes for each."""
ADDED_LIMIT = 1000
"""Special tokens that a template adds to a text."""
WORD_LIMIT_CHARS = 10_000
"""Longest word that WordPiece splits, in time that grows with its square; BERT's has 100."""
TOKEN_CHARS = 4096
"""Most characters a token, on average over a text."""
TEXT_SECONDS, CHARACTER_SECONDS = 1.0, 1e-4
"""Time of a core that a text may take, and each of its characters; usual tokenizers take 1e-6 of a second."""
_LETTER = re.compile(rb"\\u00(?:[46][1-9a-fA-F]|[57][0-9aA])")
"""A letter of ASCII as an escape, which no program writes: it would hide a key. After another backslash it is
none, but the file takes no harm."""
_CHARSMAP = re.compile(rb'"precompiled_charsmap"\s*:\s*"([^"]*)"')


def checked_charsmaps(content: bytes) -> bytes:
    """Return a tokenizer's file whose tables have the size that they state; the package allocates that size
    unchecked.

    Raises:
        CardError: one has another.
    """
    if _LETTER.search(content):
        try:
            content = json.dumps(json.loads(content)).encode()
        except (ValueError, RecursionError) as problem:
            raise CardError(f"the card's tokenizer is not valid JSON: {problem}") from None
    for match in _CHARSMAP.finditer(content):
        _table(match[1].replace(b"\\/", b"/"))
    return content


def _table(text: str | bytes) -> bytes:
    """Return the texts of a SentencePiece Unicode table. They follow the size of a trie in 4 bytes, and the
    trie."""
    try:
        table = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        table = b""
    size = int.from_bytes(table[:4], "little")
    if len(table) < 4 or size % 4 or size > len(table) - 4:
        raise _unusable("its precompiled_charsmap is damaged")
    return table[4 + size :]


class TokenizerBounds:
    """Bounds of how much a tokenizer lengthens texts.

    Args:
        tokenizer: The package's ``Tokenizer``.

    Attributes:
        growth: Most characters for one of a text, while it is split.
        decoded_growth: Most characters for one of a token, while tokens become a text.

    Raises:
        CardError: that, or the number of its steps, is beyond the limits.
    """

    def __init__(self, tokenizer: Any) -> None:
        parts = (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.post_processor, tokenizer.decoder)
        lists = [list(_steps(_state(part))) for part in parts]
        if sum(map(len, lists)) > STEPS_LIMIT:
            raise _unusable(f"it has more than {STEPS_LIMIT} steps")
        normal, split, after, decoded = (prod(map(_growth, steps)) for steps in lists)
        self.growth, self.decoded_growth = normal * split * after, decoded
        for growth in (self.growth, decoded):
            if growth > GROWTH_LIMIT:
                raise _unusable(f"it may make a text more than {GROWTH_LIMIT} times as long")
        if sum(map(_added, lists[2])) > ADDED_LIMIT:
            raise _unusable(f"it adds more than {ADDED_LIMIT} special tokens")
        for step in (step for steps in lists for step in steps):
            pattern = step.get("pattern")
            if isinstance(pattern, dict) and "Regex" in pattern and _repeats_in_itself(pattern["Regex"]):
                raise _unusable(
                    f"its pattern {pattern['Regex'][:80]!r} repeats a group that holds a repetition or a"
                    " choice, or refers to a group: its time may double with each character of a text"
                )
        self._slow = ""
        if getattr(tokenizer.model, "max_input_chars_per_word", 0) > WORD_LIMIT_CHARS:
            raise _unusable(f"its max_input_chars_per_word is above {WORD_LIMIT_CHARS}")

    def check(self, text: str) -> None:
        """Check a text before it is split.

        Raises:
            CardError: it may become too long, or an earlier text took too long.
        """
        if self._slow:
            raise _unusable(self._slow)
        if len(text) * self.growth > GROWN_LIMIT_CHARS:
            raise _unusable(
                f"it may make the {len(text)} characters of this text {self.growth:.0f} times as many"
            )

    @contextmanager
    def timed(self, text: str) -> Iterator[None]:
        """Time the splitting of a text. One that took too long is the last one: a pattern that backtracks
        would hold the process for each text anew, and no other thread runs meanwhile."""
        started = time.thread_time()
        try:
            yield
        except CardError as problem:
            if "retry-limit" in str(problem):  # Oniguruma's, after ten million steps
                self._slow = f"a text of {len(text)} characters met the limit of its regular expressions"
            raise
        finally:
            seconds = time.thread_time() - started
            if seconds > TEXT_SECONDS + CHARACTER_SECONDS * len(text):
                self._slow = f"a text of {len(text)} characters took {seconds:.1f} s"


_TOKEN = re.compile(
    r"""(?P<escape>\\(?:[pPxuo]\{[^}]*\}|.)) | (?P<class>\[\^?\]?)
    | (?P<open>\((?:\?(?:<?[=!]|[^:)]*:|>|<\w+>))?) | (?P<close>\))
    | (?P<repeat>[*+]|\{\d*,\d*\}) | (?P<choice>[?|])""",
    re.VERBOSE | re.DOTALL,
)
_REPEATED = re.compile(r"[*+]|\{\d*,\d*\}|\{\d\d+\}")


def _repeats_in_itself(pattern: str) -> bool:
    """Return whether a group that is repeated holds a repetition or a choice, e.g. ``(a+)*`` or ``(a|a)*``,
    or whether the pattern refers to a group."""
    groups, position = [False], 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        position = token.end() if token else position + 1
        if token is None:
            continue
        if token["class"]:
            position = _end_of_class(pattern, position)
        elif token["open"]:
            groups.append(False)
        elif token["close"] and len(groups) > 1:
            varies = groups.pop()
            if varies and _REPEATED.match(pattern, position):
                return True
            groups[-1] |= varies
        elif token["repeat"] or token["choice"]:
            groups[-1] = groups[-1] or len(groups) > 1
        elif token["escape"] and token["escape"][1] in "gk123456789":
            return True
    return False


def _end_of_class(pattern: str, position: int) -> int:
    depth = 1
    while position < len(pattern) and depth:
        if pattern[position] == "\\":
            position += 1
        depth += {"[": 1, "]": -1}.get(pattern[position : position + 1], 0)
        position += 1
    return position


def _state(part: Any) -> dict[str, Any]:
    return {} if part is None else json.loads(part.__getstate__())


def _steps(state: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in ("normalizers", "pretokenizers", "processors", "decoders"):
        if key in state:
            for step in state[key]:
                yield from _steps(step)
            return
    if state:
        yield state


def _growth(step: dict[str, Any]) -> float:
    kind = step.get("type")
    if kind == "Replace":
        pattern, content = step["pattern"], step["content"]
        if pattern.get("String"):
            return max(1.0, len(content) / len(pattern["String"]))
        return 1.0 + len(content)  # it may match an empty text, between any two characters
    if kind == "Prepend":
        return 1.0 + len(step["prepend"])
    if kind == "Precompiled":
        return float(max(1, *map(len, _table(step["precompiled_charsmap"]).split(b"\0"))))
    if kind == "TemplateProcessing":
        return float(max(1, *(sum("Sequence" in e for e in step[form]) - n for form, n in _FORMS.items())))
    return 2.0 if kind in ("ByteLevel", "Metaspace") else 1.0


_FORMS = {"single": 0, "pair": 1}
"""Forms of a template, and how many texts it has in addition to the first."""


def _added(step: dict[str, Any]) -> int:
    if step.get("type") != "TemplateProcessing":
        return 0
    ids = {name: len(token["ids"]) for name, token in step["special_tokens"].items()}
    return max(sum(ids.get(e.get("SpecialToken", {}).get("id"), 0) for e in step[form]) for form in _FORMS)


def _unusable(reason: str) -> CardError:
    return CardError(f"the card's tokenizer can't be used: {reason}")
