"""The one place that imports ONNX Runtime, for the host and for the device: without its telemetry.

From 1.29 on its wheels start an uploader while they are imported: a device id and a queue in the user's
cache at once, the vendor's host resolved and asked after nine seconds (seen on 1.31.1, Linux).
``disable_telemetry_events`` comes after that and stops only later events; what prevents all of it is a
variable that is in the environment before the import, see
https://github.com/microsoft/onnxruntime/blob/main/docs/Privacy.md. Child processes inherit it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from edgekit.errors import MissingDependency

SWITCH = "ORT_DISABLE_TELEMETRY"
OFF = ("1", "true", "yes", "on")
"""Values that ONNX Runtime takes for yes, in capitals too; with any other one it sends (tried on 1.31.1)."""

_imported_too_early = False


def onnxruntime(
    needed_for: str = "the reference that every variant is compared with", extra: str = "build"
) -> Any:
    """The package, imported with its telemetry off.

    A value that the user gave the variable stands, and what he asked for so is left on; an empty one is none.

    Args:
        needed_for: What cannot be done without it, for the error.
        extra: The extra of ``edgekit-sdk`` that installs it.

    Raises:
        MissingDependency: onnxruntime is not installed.
    """
    global _imported_too_early
    if not os.environ.get(SWITCH):
        _imported_too_early = sys.modules.get("onnxruntime") is not None
        os.environ[SWITCH] = "1"
    try:
        import onnxruntime as package
    except ImportError as problem:
        if problem.name not in (None, "onnxruntime"):
            raise
        raise MissingDependency("onnxruntime", needed_for, extra=extra) from None
    if not _asked_for():
        # For a process that had imported it before, and for Windows builds that do not know the variable.
        package.disable_telemetry_events()
    return package


def telemetry_left() -> str | None:
    """Why this process may send telemetry of ONNX Runtime all the same, and what to do; None: it does not."""
    if _asked_for():
        return (
            f"{SWITCH}={os.environ[SWITCH]} lets ONNX Runtime send telemetry to its vendor:"
            f" unset it, or set {SWITCH}=1"
        )
    if _imported_too_early:
        return (
            "this process had imported onnxruntime before EdgeKit did, so what telemetry it has is on:"
            f" set {SWITCH}=1 in the environment before that import"
        )
    return None


def _asked_for() -> bool:
    value = os.environ.get(SWITCH, "")
    return bool(value) and value.lower() not in OFF
