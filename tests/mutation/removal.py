"""One row of the table of lines that a test must miss."""

from __future__ import annotations

from typing import NamedTuple

TO_COME = "to come"


class Removal(NamedTuple):
    """Lines of a file that a test must miss.

    Attributes:
        file: Below the repository's root.
        lines: The exact text, without the first line's indentation and the last line's end.
        tests: pytest's names of the tests, one of which must fail.
        instead: What stands there without them.
    """

    file: str
    lines: str
    tests: tuple[str, ...]
    instead: str = "pass"
