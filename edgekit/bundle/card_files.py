"""Files that a bundle's card names, e.g. its tokenizer: entries ``card/NAME``."""

from __future__ import annotations

from edgekit.bundle.bundle import Bundle
from edgekit.errors import BundleError

LIMIT_BYTES = 64 << 20


def entry_of(name: str) -> str:
    """Return the entry of a file that the card names.

    >>> entry_of("tokenizer.json")
    'card/tokenizer.json'
    """
    return f"card/{name}"


def read_card_file(bundle: Bundle, name: str) -> bytes:
    """Return the content of a file that the card names.

    Raises:
        BundleError: it is absent, damaged or too large.
    """
    entry = entry_of(name)
    if (size := bundle.size_bytes(entry)) > LIMIT_BYTES:
        raise BundleError(f"{bundle.name}: entry {entry} has {size} bytes; the limit is {LIMIT_BYTES}")
    return bytes(bundle.read(entry))
