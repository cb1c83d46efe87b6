"""The build backend: setuptools, whose editable installs name the folders of the packages as well.

setuptools maps the packages of targets/ by an import hook. Editors and type checkers run no hook; they read
the paths in the .pth files of an environment. Source archives have the time SOURCE_DATE_EPOCH, as wheels do.
"""

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the other hooks of PEP 517)

ROOT = Path(__file__).resolve().parents[1]
NAME = "edgekit_paths.pth"


def paths() -> str:
    """Return the folders that packages are imported from, one a line."""
    return f"{ROOT}\n{ROOT / 'targets'}\n"


def build_editable(wheel_directory, config_settings=None, metadata_directory=None) -> str:  # type: ignore[no-untyped-def]
    """Build the wheel of an editable install, with the paths in it."""
    name: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    wheel = Path(wheel_directory) / name
    with zipfile.ZipFile(wheel) as built:
        files = {entry: built.read(entry) for entry in built.namelist()}
    for entry in files:
        if entry.endswith(".dist-info/RECORD"):
            files[entry] += f"{NAME},,\n".encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as written:
        for entry, content in {**files, NAME: paths().encode()}.items():
            written.writestr(entry, content)
    return name


def build_sdist(sdist_directory, config_settings=None) -> str:  # type: ignore[no-untyped-def]
    """Build the source archive, with SOURCE_DATE_EPOCH as the same bytes each time."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    archive, time = Path(sdist_directory) / name, os.environ.get("SOURCE_DATE_EPOCH")
    if time is not None:
        with tarfile.open(archive) as built:
            files = {entry.name: built.extractfile(entry).read() for entry in built if entry.isfile()}
            modes = {entry.name: entry.mode for entry in built}
        with (
            archive.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=int(time)) as packed,
            tarfile.open(fileobj=packed, mode="w") as written,
        ):
            for entry, content in sorted(files.items()):
                member = tarfile.TarInfo(entry)
                member.size, member.mtime, member.mode = len(content), int(time), modes[entry]
                written.addfile(member, io.BytesIO(content))
    return name
