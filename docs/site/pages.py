"""The pages of the site: the documents as they are, with links that work there, and three generated ones."""

from __future__ import annotations

import os
import re
import shutil
from configparser import ConfigParser
from pathlib import Path

from docs.site.api import api_page
from docs.site.commands import commands_page
from docs.site.errors import errors_page

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "docs"
CONFIG = Path(__file__).with_name("zensical.toml")
FOLDERS = ("", "devices", "measured", "decisions")
"""Folders of docs/ whose documents are pages."""
GENERATED = {"api.md": api_page, "commands.md": commands_page, "errors.md": errors_page}
"""Page of the site -> what writes it."""
DECISIONS = '"decisions/*.md"'
"""Stands in the navigation for all records, in their order."""
PICTURES = (".jpg", ".png", ".svg")


def documents() -> dict[str, str]:
    """Path in the repository -> page of the site."""
    docs = ROOT / "docs"
    found = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
    for path in sorted(path for folder in FOLDERS for path in (docs / folder).glob("*.md")):
        found[path.relative_to(ROOT).as_posix()] = path.relative_to(docs).as_posix()
    found["docs/README.md"] = "documents.md"  # beside index.md, which is the site's first page
    return found


def repository_url() -> str:
    """``Source`` of setup.cfg's project_urls."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    lines = config["metadata"]["project_urls"].splitlines()
    return dict(line.split(" = ") for line in lines if line)["Source"]


def link_on_site(link: str, document: str, pages: dict[str, str]) -> str:
    """A link of ``document`` as it works on the site.

    To another document: its page. To a picture of docs/: its copy. To any other file of the repository: the
    file where the repository is. Links elsewhere, and those within the page, stay.
    """
    url = repository_url()
    raw = url.replace("https://github.com/", "https://raw.githubusercontent.com/")
    target, hash_, anchor = link.partition("#")
    for prefix in (f"{url}/blob/main/", f"{url}/tree/main/", f"{raw}/main/"):
        if target.startswith(prefix):
            path = target.removeprefix(prefix)
            break
    else:
        if not target or ":" in target:
            return link
        path = os.path.normpath(os.path.join(os.path.dirname(document), target))
    page = pages.get(path)
    if page is None and path.startswith("docs/") and path.endswith(PICTURES):
        page = path.removeprefix("docs/")
    if page is None:
        return f"{url}/blob/main/{path}{hash_}{anchor}"
    return os.path.relpath(page, os.path.dirname(pages[document]) or ".") + hash_ + anchor


def page_of(document: str, pages: dict[str, str]) -> str:
    """The document with its links as they work on the site; blocks of code stay as they are."""
    text = (ROOT / document).read_text("utf-8")
    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(
            r"\]\(([^)\s]+)", lambda found: f"]({link_on_site(found[1], document, pages)}", parts[at]
        )
    return "".join(parts)


def configuration(pages: dict[str, str]) -> str:
    """What Zensical reads, with all decision records in its navigation."""
    records = [f'"{page}"' for page in pages.values() if page.startswith("decisions/")]
    return CONFIG.read_text("utf-8").replace(DECISIONS, ", ".join(records))


def write_pages(folder: Path) -> None:
    """Write what Zensical builds: zensical.toml and the folder pages; what the folder held is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = documents()
    written = {page: page_of(document, pages) for document, page in pages.items()}
    written |= {page: generate() for page, generate in GENERATED.items()}
    for page, text in written.items():
        path = folder / "pages" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for path in (ROOT / "docs").rglob("*"):
        if path.suffix in PICTURES:
            copy = folder / "pages" / path.relative_to(ROOT / "docs")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    for name in ("site.css", "site.js", "iframe-worker.js"):
        shutil.copy(CONFIG.with_name(name), folder / "pages")
    (folder / "zensical.toml").write_text(configuration(pages), "utf-8")
