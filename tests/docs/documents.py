"""The documents of the repository, their code blocks, and their links into the repository."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "docs", ROOT / "samples", ROOT / "targets", ROOT / "tests" / "benchmarks")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in folder.rglob("*.md"))])
FRAGMENT = "<!-- fragment -->"
"""Before a block that is compiled but not run: it needs what no test has, e.g. a server."""


class Block(NamedTuple):
    """One fenced block of Python, and whether it is run."""

    source: str
    line: int
    runs: bool


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_blocks(text: str) -> list[Block]:
    """In their order.

    >>> [block.runs for block in python_blocks("```python\\n```\\n<!-- fragment -->\\n```python\\n```")]
    [True, False]
    """
    found = re.finditer(rf"^({FRAGMENT}\n)?```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [Block(m[2], text[: m.start(2)].count("\n") + 1, m[1] is None) for m in found]


def repository_url() -> str:
    """Where links that must work on a package index lead: ``Source`` of setup.cfg's project_urls."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    urls = dict(line.split(" = ") for line in config["metadata"]["project_urls"].splitlines() if line)
    return urls["Source"]


def linked_file(link: str) -> str | None:
    """Path in the repository of an absolute link into it; None for other links."""
    url = repository_url()
    raw = url.replace("https://github.com/", "https://raw.githubusercontent.com/")
    for prefix in (f"{url}/blob/main/", f"{url}/tree/main/", f"{raw}/main/"):
        if link.startswith(prefix):
            return link.removeprefix(prefix).partition("#")[0]
    return None
