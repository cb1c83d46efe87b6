"""Hash of everything that a build depends on. The same hash gives the same bundle, except measured times.

Times are stored on the machine that measured them (docs/decisions/0006).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from edgekit._version import __version__
from edgekit.batch.matrix import MatrixBuild
from edgekit.batch.stored_files import (
    fetch_card,
    fetch_model,
    fetch_samples,
    model_files,
    sample_files,
)
from edgekit.system.formats import strict_json
from edgekit.system.regular_file import sha256_of
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Json

FORMAT = 1
"""Rises when what goes into a key changes."""


class ContentKeys:
    """Keys of builds; each file is read once."""

    def __init__(self) -> None:
        self._model = lru_cache(None)(_model_digest)
        self._card = lru_cache(None)(_card_digest)
        self._samples = lru_cache(None)(_samples_digest)
        self._tools = tool_versions()

    def key(self, build: MatrixBuild) -> str:
        facts: Json = [
            FORMAT,
            __version__,
            self._tools,
            self._model(build.model.source),
            None if build.model.card is None else self._card(build.model.card),
            None if build.source is None else self._samples(build.source),
            [find_profile(target).as_json() for target in build.targets],
            build.requested,
            {name: list(shape) for name, shape in build.model.shapes.items()},
            dict(build.options),
        ]
        return hashlib.sha256(strict_json.encode(facts)).hexdigest()


def tool_versions() -> dict[str, str]:
    """Return the versions of all packages that can change a bundle's bytes."""
    from edgekit.compiler.pipeline import bundle_contents  # here: it loads the whole host side

    return bundle_contents.tool_versions()


def _model_digest(source: str) -> Json:
    with TemporaryDirectory(prefix="edgekit-") as folder:
        path = fetch_model(source, Path(folder))
        top = path if path.is_dir() else path.parent
        return [path.name, {str(file.relative_to(top)): sha256_of(file) for file in model_files(path)}]


def _card_digest(source: str) -> Json:
    from edgekit.processing.card import load_card

    with TemporaryDirectory(prefix="edgekit-") as folder:
        card = load_card(fetch_card(source, Path(folder)))
    files = {name: hashlib.sha256(content).hexdigest() for name, content in card.files.items()}
    return [card.as_json(), files]


def _samples_digest(source: str) -> str:
    digest = hashlib.sha256()
    with TemporaryDirectory(prefix="edgekit-") as folder:
        for file in sample_files(fetch_samples(source, Path(folder))):
            digest.update(f"{sha256_of(file)}  {file.name}\n".encode())
    return digest.hexdigest()
