"""Bytes of a text as GPT-2's byte-level vocabularies spell it (Whisper, BART)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache


def bytes_of(spelled: str) -> bytes:
    """Return the bytes that letters of the vocabulary stand for; others are left out."""
    table = _bytes()
    return bytes(table[letter] for letter in spelled if letter in table)


@cache
def _bytes() -> Mapping[str, int]:
    """Return the byte that each letter of the vocabulary stands for: printable ones for themselves, the
    others for 256, 257 ... in order (``bytes_to_unicode`` of GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    byte_by_letter = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return byte_by_letter | {chr(256 + number): byte for number, byte in enumerate(others)}
