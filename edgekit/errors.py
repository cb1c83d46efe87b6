"""Every error that the user can fix.

    EdgeKitError                     the root; its text is complete: what, where, why, what to do
    +-- UsageError                   an option or an argument that does not fit
        +-- ContextLengthError           a text that is longer than a language model's context
    +-- ModelError                   the file is not a model EdgeKit can open
    +-- UnsupportedError             a target cannot express some nodes; all of them are listed
    +-- CardError                    the card does not describe the model, or is malformed
    +-- ProfileError                 an unknown or malformed target or device profile
    +-- SampleError                  samples that do not fit the model's inputs
    +-- BuildFault                   every target of a build met a bug of EdgeKit or of its engine
    +-- BundleError                  a bundle that is damaged, hostile or of another version
        +-- SignatureError               it is not signed by a trusted key, or was changed since
    +-- UpdateError                  an update that is refused, or that could not be fetched
    +-- DeviceError                  a device that can't be reached, or that lacks what is needed
    +-- MissingDependency            an engine or a tool is not installed; the pip line is in the text
    +-- ToolchainError               npm failed, or fetched another package
    +-- BusyError                    too many requests; this one was not run
    +-- EngineError                  an engine failed to load a variant or to run it
        +-- NoVariantError           no variant of the bundle works here; every reason is listed
            +-- NonFiniteOutputError     the outputs for this input are NaN or infinite
            +-- RejectedInputError       every variant fails on this input and computes others
        +-- EngineNotReady           the variant's engine is being built on this device

Any other exception that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

REASON_LIMIT_CHARS = 400
"""Length limit of an engine's error message in a reason."""

if TYPE_CHECKING:
    from typing import Protocol

    class DeviceBuild(Protocol):
        """An engine being built, see ``runtime/device_builds/build.py``."""

        @property
        def stage(self) -> str:
            """Return the stage: ``waiting``, ``building``, ``verifying`` ..."""

        @property
        def done(self) -> bool:
            """Return whether the build has ended."""

        @property
        def reason(self) -> str:
            """Return why it failed; empty if it did not."""

        def wait(self, seconds: float | None = None) -> bool:
            """Wait; return whether it has ended. None: no timeout."""


class EdgeKitError(Exception):
    """Root of the errors that the user can fix.

    ``exit_code`` is the command line's: 1 check failed, 2 usage error or invalid input, 3 missing engine or
    tool. The text is printable: engines quote names from the file, which may hold terminal control sequences.

    ``blame`` is the cause, if known: ``bundle``: its own files are damaged, give wrong outputs or crash an
    engine, and will do so again; ``machine``: an engine is missing, the disk is full, memory is short, which
    may pass; ``both``: several errors, some of them the machine's. A store decides by it whether to give a
    bundle up (edgekit/runtime/store/bundle_store.py).
    """

    exit_code = 2
    blame = ""

    def __init__(self, *texts: object) -> None:
        super().__init__(*(printable(text) if isinstance(text, str) else text for text in texts))


def printable(text: str) -> str:
    r"""Escape control characters, direction overrides and lone surrogates in a text. Line breaks are
    preserved.

    >>> print(printable("node \x1b[2J"))
    node \x1b[2J
    """
    if text.isprintable():
        return text
    import re  # here: almost no text needs it

    unprintable = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
    return re.sub(unprintable, lambda match: ascii(match[0])[1:-1], text)


def suggestion(name: str, names: Iterable[str], habits: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the end of an error about a wrong name: the names that are spelt alike.

    Args:
        habits: Names that people know from elsewhere -> ours, or a hint with a space in it.

    >>> suggestion("target", ["targets", "model"]), suggestion("load", ["build"], {"load": "open"})
    ("; did you mean 'targets'?", "; did you mean 'open'?")
    """
    from difflib import get_close_matches  # here: only a wrong name needs it

    if " " in (habit := habits.get(name, "")):
        return f"; {habit}"
    near = [habit] if habit else get_close_matches(name, list(names), 2)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def no_attribute(
    thing: object, name: str, habits: Mapping[str, str] = MappingProxyType({})
) -> AttributeError:
    """Return the error about a wrong attribute, with the right one."""
    names = [entry for entry in dir(type(thing)) if not entry.startswith("_")]
    hint = suggestion(name, names, habits)
    text = f"{type(thing).__name__!r} object has no attribute {name!r}{hint}"
    return AttributeError(text, name=name, obj=thing)


class UsageError(EdgeKitError):
    """An invalid option or argument."""


class ContextLengthError(UsageError):
    """A text that is longer than a language model's context."""


class ModelError(EdgeKitError):
    """The file is not a model EdgeKit can open."""


class CrashError(ModelError):
    """Work on a model ended the child process that it was done in, or took more memory or time than it may.

    The text names the stage and, where it is known, the node. A model that does this is hostile, malformed or
    meets a bug of an engine.
    """


class UnsupportedError(EdgeKitError):
    """One or more targets cannot express some nodes of the model.

    ``findings`` holds every reason, for every target that was checked.
    """

    def __init__(self, message: str, findings: Sequence[Any]) -> None:
        super().__init__(message)
        self.findings = list(findings)


class CardError(EdgeKitError):
    """The card does not describe the model, or is malformed."""


class ProfileError(EdgeKitError):
    """An unknown or malformed target or device profile."""


class SampleError(EdgeKitError):
    """Samples that do not fit the model's inputs."""


class BuildFault(EdgeKitError):  # noqa: N818  (it is a bug, though not one that ends in a traceback)
    """Every target of a build met a bug of EdgeKit or of its engine; the text names the tracebacks' files.

    A fault of some targets costs these alone: their variants are rejected with the reason.
    """

    exit_code = 1


class BundleError(EdgeKitError):
    """A bundle that is damaged, hostile or of another version."""

    blame = "bundle"


class SignatureError(BundleError):
    """A bundle without a signature by a trusted key, or whose signature does not hold."""

    exit_code = 1


class MissingDependency(EdgeKitError):  # noqa: N818  (the contract's name)
    """An engine or a tool is not installed.

    Args:
        name: The package as pip knows it, or the tool's name.
        needed_for: Action that needs it, e.g. "running a .tflite file".
        install: The exact command that installs it, if no extra of EdgeKit does.
        extra: The extra of EdgeKit that installs it.

    ``for_bundles`` is its text without any path of this machine.
    """

    exit_code = 3
    blame = "machine"

    def __init__(self, name: str, needed_for: str, install: str = "", *, extra: str = "") -> None:
        missing = f"{name} is not installed, and {needed_for} needs it"
        install = install or install_line(extra)
        super().__init__(f"{missing}: {install}")
        self.name = name
        self.needed_for = needed_for
        self.install = install
        self.for_bundles = printable(f"{missing}: {index_line(extra) if extra else install}")


@contextmanager
def need_package(
    name: str, needed_for: str, install: str = "", *, extra: str = "", module: str = ""
) -> Iterator[None]:
    """Import an optional package in the block.

    Args:
        name, needed_for, install, extra: Arguments of MissingDependency.
        module: Module that is missing if the package is. The ImportError of another one, of a damaged
            installation, is raised as it is. "": any that fails.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        yield
    except ImportError as problem:
        if module and problem.name not in (None, module):
            raise
        raise MissingDependency(name, needed_for, install, extra=extra) from None


class ToolchainError(EdgeKitError):
    """npm failed to fetch an engine for browsers, or fetched another package."""

    exit_code = 3
    blame = "machine"


class UpdateError(EdgeKitError):
    """An update that is refused or could not be fetched; the installed bundles are as they were."""

    exit_code = 1
    blame = "machine"


class DeviceError(EdgeKitError):
    """A device of ``--device`` cannot be reached, was lost, or lacks what is needed."""

    exit_code = 3
    blame = "machine"


def install_line(extra: str) -> str:
    """Return the pip line that installs an extra for the EdgeKit that runs, even if no index has EdgeKit.

    In a source tree it names the tree: EdgeKit may run there without being installed. Where it is installed
    the name is enough: pip finds it, and fetches what the extra needs. Otherwise, e.g. where its folder was
    copied, only a clone can install it.
    """
    tree = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.isfile(os.path.join(tree, "setup.cfg")):
        import shlex  # here: almost no process needs it

        return f"pip install -e {shlex.quote(f'{tree}[{extra}]')}"
    # The record that pip writes beside what it installs (PEP 376, 427), from an index, a wheel or a folder.
    try:
        recorded = any(name.startswith("edgekit_sdk-") for name in os.listdir(tree))
    except OSError:  # inside a zip file
        recorded = False
    return index_line(extra) if recorded else f"pip install '.[{extra}]' in a clone of EdgeKit"


def index_line(extra: str) -> str:
    """Return the pip line that installs an extra where EdgeKit is installed, or is on an index."""
    return f"pip install 'edgekit-sdk[{extra}]'"


def with_local_lines(text: str) -> str:
    """Replace the pip lines in a bundle's text by those that work here: the bundle names no paths."""
    start = index_line("").partition("]")[0]
    while start in text:
        before, _, rest = text.partition(start)
        extra, _, rest = rest.partition("]'")
        if not extra.replace("-", "").isalnum() or len(extra) > 40 or install_line(extra).startswith(start):
            return text
        text = f"{before}{install_line(extra)}{rest}"
    return text


class BusyError(EdgeKitError):
    """Too many requests: this one was refused, or its deadline passed before it could run."""

    exit_code = 1


class EngineError(EdgeKitError):
    """An engine failed to load a variant or to run it."""

    exit_code = 1


class EngineNotReady(EngineError):  # noqa: N818  (it says what is, and is no fault)
    """A variant's engine is being built on this device; another variant is used meanwhile.

    ``build`` reports the progress (edgekit/runtime/device_builds/build.py).
    """

    blame = "machine"

    def __init__(self, message: str, build: DeviceBuild) -> None:
        super().__init__(message)
        self.build = build


class NoVariantError(EngineError):
    """No variant of the bundle works here; the text lists every reason."""


class NonFiniteOutputError(NoVariantError):
    """Outputs are NaN or infinite where the model's golden outputs are not.

    A request raises it where every variant that ran failed in this way: the input is the likely cause, also a
    finite one with extreme values, and other inputs are answered.
    """


class RejectedInputError(NoVariantError):
    """Every variant that ran fails on this input, twice, and computes a known one, e.g. for an index that is
    out of range. Other inputs are answered.
    """


def text_for_bundles(problem: Exception) -> str:
    """Return the text of an exception, without the path of this machine that a pip line in it may have."""
    return problem.for_bundles if isinstance(problem, MissingDependency) else str(problem)


def reason_of(problem: Exception, *, for_bundles: bool = False) -> str:
    """Return an exception as one line of bounded length; ``for_bundles``: as :func:`text_for_bundles`."""
    text = " ".join((text_for_bundles(problem) if for_bundles else str(problem)).split())
    if not isinstance(problem, EdgeKitError):
        text = f"{type(problem).__name__}: {text}"
    return text if len(text) <= REASON_LIMIT_CHARS else text[: REASON_LIMIT_CHARS - 3] + "..."


def blame_of(problem: BaseException) -> str:
    """Return the cause of a failure, as in ``EdgeKitError.blame``; "" if unknown.

    >>> blame_of(OSError(28, "No space left on device")), blame_of(RuntimeError("kernel died"))
    ('machine', '')
    """
    if isinstance(problem, (OSError, MemoryError, ImportError, ProfileError)):
        return "machine"
    if isinstance(problem, EdgeKitError) and problem.blame:
        return problem.blame
    return blame_of(problem.__cause__) if problem.__cause__ is not None else ""
