"""Faults: an unexpected exception of EdgeKit or a vendor's tool costs one variant, not the whole build.

The traceback is written to a file in EdgeKit's cache folder, which the report names. Errors that the user can
fix, Ctrl-C and a full disk still end the build.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from edgekit.errors import EdgeKitError, EngineError, reason_of
from edgekit.system import breadcrumbs
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.cache_folder import cache_folder
from edgekit.system.progress import Progress, Stage
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
    """Fault that lost a variant.

    Attributes:
        error: Type and text of the exception, one line.
        traceback: File of the traceback, below the cache folder; "" if it could not be written.
        is_bug: False if the engine rejected the artifact compiled for it; its message gives the reason.
    """

    error: str
    traceback: str = ""
    is_bug: bool = True

    @property
    def reason(self) -> str:
        """Return the reason for the variant's status."""
        return f"a bug in EdgeKit or in the engine: {self.error}" if self.is_bug else self.error


@dataclass
class Faults:
    """Faults of a build.

    Attributes:
        model_digest: sha256 of the source model, in hexadecimal: tracebacks are named after it.
        by_profile: Profile name -> its first fault.
    """

    model_digest: str
    by_profile: dict[str, Fault] = field(default_factory=dict)
    _of_caller: list[Exception] = field(default_factory=list)

    def passing(self, progress: Progress) -> Progress:
        """Wrap a progress function, so that its exceptions end the build: a closed pipe, or a request to
        stop."""

        def guarded(stage: Stage) -> None:
            try:
                progress(stage)
            except Exception as problem:
                self._of_caller.append(problem)
                raise

        return guarded

    def contain(self, profile: str, name: str, do: Callable[[], T]) -> T | Fault:
        """Return the result of ``do``, or the fault: an exception, or the death of an earlier process.

        Raises:
            EdgeKitError: the user can fix it. An EngineError concerns one variant, and is a fault.
            OSError: the machine failed, e.g. a full disk. MemoryError: the memory limit is reached.
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
            if any(problem is caller_error for caller_error in self._of_caller):
                raise
            fault = Fault(reason_of(problem, for_bundles=True), self.write(name, problem))
        self.by_profile.setdefault(profile, fault)
        return fault

    def write(self, name: str, problem: Exception) -> str:
        """Write the traceback, and return its path below the cache folder, "" if it can't be written.

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
    """Return the path of a traceback on this machine; None if it could not be written.

    >>> traceback_path("") is None
    True
    """
    return cache_folder() / traceback if traceback else None
