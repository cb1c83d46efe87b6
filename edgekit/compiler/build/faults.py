"""Faults: an unexpected exception of ours or of a vendor costs one variant, and not the whole build.

The traceback goes into a file of EdgeKit's cache folder, which the report names. Errors that the user can
mend, Ctrl-C and a full disk end the build as ever.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from edgekit.compiler.build.progress import Progress, Stage
from edgekit.errors import EdgeKitError, EngineError, reason_of
from edgekit.system import breadcrumbs
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.cache_folder import cache_folder
from edgekit.system.records_folder import records_folder

T = TypeVar("T")

FOLDER = "faults"
"""Folder of the tracebacks, in the cache folder."""
FILES_LIMIT = 100
"""Tracebacks kept; the oldest are removed first."""
OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE)
"""A full disk, or no more files may be open: the next target would meet the same."""


@dataclass(frozen=True)
class Fault:
    """Why a variant was lost.

    Attributes:
        error: Type and text of the exception, one line.
        traceback: File of the traceback, below the cache folder; "" where none could be written.
        is_bug: False: the engine refused what was compiled for it, and its message tells why.
    """

    error: str
    traceback: str = ""
    is_bug: bool = True

    @property
    def reason(self) -> str:
        """For the variant's status."""
        return f"a bug in EdgeKit or in the engine: {self.error}" if self.is_bug else self.error


@dataclass
class Faults:
    """The faults of a build.

    Attributes:
        model_digest: sha256 of the source model, in hexadecimal: tracebacks are named after it.
        by_profile: Profile name -> its first fault.
    """

    model_digest: str
    by_profile: dict[str, Fault] = field(default_factory=dict)
    _of_caller: list[Exception] = field(default_factory=list)

    def passing(self, progress: Progress) -> Progress:
        """The same progress function; what it raises is its caller's and ends the build: a closed pipe, or a
        wish to stop."""

        def told(stage: Stage) -> None:
            try:
                progress(stage)
            except Exception as problem:
                self._of_caller.append(problem)
                raise

        return told

    def contain(self, profile: str, name: str, do: Callable[[], T]) -> T | Fault:
        """Return the result of ``do``, or the fault: an exception, or the death of an earlier process.

        Args:
            profile: Whose variant it is about.
            name: Of the variant; the traceback's file is named after it.
            do: A step of the build.

        Raises:
            EdgeKitError: what the user can mend. An EngineError is about one variant, and is a fault.
            OSError: the machine's, e.g. a full disk. MemoryError: the process has all that it may have.
            Exception: raised by the progress function.
        """
        try:
            with breadcrumbs.at_risk(name):
                return do()
        except EngineError as problem:
            fault = Fault(reason_of(problem, for_bundles=True), is_bug=False)
        except (EdgeKitError, MemoryError):  # the next variant would meet the same
            raise
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno in OF_THE_MACHINE:
                raise
            if any(problem is each for each in self._of_caller):
                raise
            fault = Fault(reason_of(problem, for_bundles=True), self.write(name, problem))
        self.by_profile.setdefault(profile, fault)
        return fault

    def write(self, name: str, problem: Exception) -> str:
        """Write the traceback; returns its path below the cache folder, "" where it can't be written.

        It is named after model and variant, so that a rebuild gives the same bundle.
        """
        text = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
        folder, file = records_folder() / FOLDER, f"{self.model_digest[:12]}-{name}.txt"
        try:
            private_folder(folder)
            write_atomically(folder / file, [text.encode("utf-8", "backslashreplace")], 0o600)
            for old in sorted(folder.glob("*.txt"), key=lambda path: path.stat().st_mtime_ns)[:-FILES_LIMIT]:
                old.unlink(missing_ok=True)
        except OSError:
            return ""
        return (folder / file).relative_to(cache_folder()).as_posix()


def traceback_path(traceback: str) -> Path | None:
    """Where a traceback of this machine lies; None where it could not be written.

    >>> traceback_path("") is None
    True
    """
    return cache_folder() / traceback if traceback else None
