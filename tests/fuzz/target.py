"""What a reader under test is to the harness, and how one says no."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edgekit.errors import printable
from edgekit.tensor_spec import TensorSpec

SPECS = (TensorSpec("x", "float32", (4, 5)), TensorSpec("y", "int64", (3,)))
READ, REFUSED = "read", "refused"


class Target(NamedTuple):
    """A reader under test.

    Attributes:
        share: Of the cases, in parts of their sum.
        make: The input of a case.
        read: Reads it and says how that ended; raises what it should not.
    """

    share: int
    make: Callable[[random.Random], bytes]
    read: Callable[[bytes], str]


def refused(problem: Exception, path: Path | None = None) -> str:
    """The end of a case whose reader said no: in text that a terminal takes, with its file."""
    text = str(problem)
    assert text
    assert printable(text) == text, text
    assert path is None or text.startswith(str(path)), text
    return REFUSED
