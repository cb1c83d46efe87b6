"""Lines that a confined child sends."""

from __future__ import annotations

import json

from edgekit.compiler.sandbox.messages import error_lines
from edgekit.errors import ModelError
from edgekit.system.formats.strict_json import TEXT_LIMIT_CHARS


def test_the_text_of_an_error_fits_a_message() -> None:
    """A hostile file's names are in it, and the reader of messages refuses longer ones."""
    (line,) = error_lines(ModelError("x" * (4 * TEXT_LIMIT_CHARS)))
    text = json.loads(line)["error"]["text"]
    assert text == "x" * (TEXT_LIMIT_CHARS // 4) + "..."
