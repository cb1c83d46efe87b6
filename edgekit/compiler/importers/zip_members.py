"""Members of an untrusted zip archive: counted and bounded, then copied, so that a framework's own parser
reads only checked content.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from edgekit.compiler.importers.file_kinds import MEMBERS_LIMIT
from edgekit.errors import ModelError, printable

INFLATED_TIMES, INFLATED_BYTES = 20, 64 << 20
"""Largest size of all members together: so many times the archive, and so much beyond. The frameworks store
weights as they are."""
TEXT_LIMIT_BYTES = 256 << 20
"""Largest member that is read as a whole: a graph or a configuration. Measured: 1.4 KB for an operator."""


class Members(NamedTuple):
    """Members of an open archive.

    Attributes:
        by_name: Name below the folder that holds all members, if there is one, -> member.
    """

    path: Path
    archive: zipfile.ZipFile
    by_name: Mapping[str, zipfile.ZipInfo]

    def read(self, name: str) -> bytes:
        member = self._member(name)
        if member.file_size > TEXT_LIMIT_BYTES:
            raise ModelError(
                f"{self.path.name}: {name} has {member.file_size} bytes; the limit is {TEXT_LIMIT_BYTES}"
            )
        return self.archive.read(member)

    def _member(self, name: str) -> zipfile.ZipInfo:
        if name not in self.by_name:
            raise ModelError(f"{self.path.name}: the archive has no {printable(name)}; save the model again")
        return self.by_name[name]

    def copy(self, target: Path, members: Mapping[str, bytes | None], folder: str = "model/") -> Path:
        """Write some members to a new archive.

        Args:
            members: Name of each member to write -> its new content. None means its old one.
            folder: Folder of the members in the new archive.
        """
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copied:
            for name, content in members.items():
                if content is not None:
                    copied.writestr(folder + name, content)
                    continue
                with (
                    self.archive.open(self._member(name)) as source,
                    copied.open(folder + name, "w", force_zip64=True) as file,
                ):
                    shutil.copyfileobj(source, file, 1 << 20)
        return target


@contextmanager
def open_members(path: Path) -> Iterator[Members]:
    """Open an archive.

    Raises:
        ModelError: it is damaged, two members have the same name, or the members are too many or too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield Members(path, archive, _checked(path, archive.infolist()))
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError) as problem:
        raise ModelError(
            f"{path.name}: the zip archive is damaged: {problem}; save the model again"
        ) from None


def _checked(path: Path, members: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    if len(members) > MEMBERS_LIMIT:
        raise ModelError(f"{path.name}: the archive has {len(members)} members; the limit is {MEMBERS_LIMIT}")
    limit = INFLATED_TIMES * path.stat().st_size + INFLATED_BYTES
    size = sum(member.file_size for member in members)
    if size > limit:
        raise ModelError(
            f"{path.name}: the archive's members have {size} bytes uncompressed; a file of this size may "
            f"have {limit}; save the model again without compression"
        )
    folder = members[0].filename.partition("/")[0] + "/" if members else ""
    if not all(member.filename.startswith(folder) for member in members):
        folder = ""
    member_by_name = {member.filename.removeprefix(folder): member for member in members}
    if len(member_by_name) != len(members):
        raise ModelError(f"{path.name}: two members of the archive have the same name; save the model again")
    return member_by_name
