"""From tokens to text: byte-level byte pair encoding, as in the vocabularies of GPT-2 and Whisper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache


def text_of(tokens: Sequence[int], pieces: Sequence[str], end: int) -> str:
    """Return the text of tokens; special ones, from ``end`` on, have none.

    Args:
        tokens: Token ids.
        pieces: Text of each token as the vocabulary spells it.
        end: First special token.
    """
    spelled = "".join(pieces[token] for token in tokens if token < min(end, len(pieces)))
    table = _bytes()
    return bytes(table[letter] for letter in spelled if letter in table).decode("utf-8", "replace").strip()


@cache
def _bytes() -> Mapping[str, int]:
    """Return the byte that each letter of the vocabulary stands for: printable ones for themselves, the
    others for 256, 257 ... in order (``bytes_to_unicode`` of GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    found = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return found | {chr(256 + number): byte for number, byte in enumerate(others)}
