"""Write the pages and have Zensical build them; a warning ends it. ``docs/build-site`` runs this."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from docs.site.pages import BUILD, write_pages


def build(folder: Path = BUILD) -> None:
    """The site, in ``folder``/site; its first page is index.html.

    Raises:
        SystemExit: Zensical is not installed, or warned.
    """
    if find_spec("zensical") is None:
        raise SystemExit("zensical is not installed: pip install -e '.[docs]'")
    write_pages(folder)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=folder, check=False)
    if done.returncode:
        raise SystemExit(f"the site was not built: zensical ended with {done.returncode}")


if __name__ == "__main__":
    build()
