"""The texts that a build's variants are verified with: the user's, or sentences that the package ships."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from edgekit.compiler.build.language.evaluation import evaluation_text
from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.text_files import TEXTS, read_line, text_lines
from edgekit.errors import UsageError

TEXTS_LIMIT = 12
"""Most texts of a build: each is encoded and written by the float reference and by every variant."""


class Texts(NamedTuple):
    """Texts of a build.

    Attributes:
        origin: Description of their source.
        sources: The texts to read.
        from_user: Whether they are the user's.
    """

    origin: str
    sources: list[str]
    from_user: bool


def read_texts(samples: object) -> Texts:
    """Read the texts of a build.

    Args:
        samples: Folder or glob of text files, one text a line; None: sentences that the package ships.

    Raises:
        UsageError: they are not files.
        SampleError: no files were found, or one cannot be read.
    """
    if samples is None:
        sentences = re.split(r"(?<=[.!?])\s+", evaluation_text().strip())[:TEXTS_LIMIT]
        return Texts(f"{len(sentences)} sentences of English prose", sentences, False)
    if not isinstance(samples, str | Path):
        raise UsageError(
            "samples of a text-to-text model are texts, one a line: pass a .txt file, folder or glob"
        )
    lines = [line for path in find_files(str(samples), TEXTS) for line in text_lines(path)][:TEXTS_LIMIT]
    return Texts(f"{len(lines)} given texts", [read_line(line) for line in lines], True)
