"""The only module that imports ONNX Runtime, on host and device: without its telemetry.

Since 1.29 its wheels start an uploader during the import: a device id and a queue are created in the user's
cache, and after nine seconds the vendor's host is resolved and contacted (seen on 1.31.1, Linux).
``disable_telemetry_events`` comes too late and stops only later events; all of it is prevented by an
environment variable set before the import, see
https://github.com/microsoft/onnxruntime/blob/main/docs/Privacy.md. Child processes inherit it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from edgekit.errors import need_package
from edgekit.system.shared_libraries import check_libraries

SWITCH = "ORT_DISABLE_TELEMETRY"
OFF = ("1", "true", "yes", "on")
"""Values that ONNX Runtime takes as true, in any case; with any other one it sends (tested on 1.31.1)."""

_imported_too_early = False


def onnxruntime(
    needed_for: str = "the reference that every variant is compared with", extra: str = "build"
) -> Any:
    """Return the package, imported with its telemetry off.

    A value that the user has set is respected, even if it leaves telemetry on; an empty one counts as unset.

    Args:
        extra: The extra of ``edgekit-sdk`` that installs it.

    Raises:
        MissingDependency: onnxruntime is not installed.
        EngineError: one of its libraries is cut short.
    """
    global _imported_too_early
    if not os.environ.get(SWITCH):
        _imported_too_early = sys.modules.get("onnxruntime") is not None
        os.environ[SWITCH] = "1"
    check_libraries("onnxruntime", "capi")
    with need_package("onnxruntime", needed_for, extra=extra, module="onnxruntime"):
        import onnxruntime as package
    if not _enabled_by_user():
        # For a process that had imported it before, and for Windows builds that ignore the variable.
        package.disable_telemetry_events()
    return package


def telemetry_left() -> str | None:
    """Return why this process may still send ONNX Runtime telemetry and how to stop it, or None if it sends
    none."""
    if _enabled_by_user():
        return (
            f"{SWITCH}={os.environ[SWITCH]} lets ONNX Runtime send telemetry to its vendor:"
            f" unset it, or set {SWITCH}=1"
        )
    if _imported_too_early:
        return (
            "this process imported onnxruntime before EdgeKit did, so its telemetry is on:"
            f" set {SWITCH}=1 in the environment before that import"
        )
    return None


def _enabled_by_user() -> bool:
    value = os.environ.get(SWITCH, "")
    return bool(value) and value.lower() not in OFF
