"""An interrupt at each boundary between two bytecode instructions, one after the other: no soak, no luck."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any


class Interrupt(Exception):  # noqa: N818
    """What an app's signal handler raises."""


CALLS = ("CALL", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX", "CALL_METHOD", "CALL_KW")
SIGNALS_AFTER = (*CALLS, "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME")
"""Instructions after which CPython calls signal handlers. So it calls none between the last statement of a
``with lock`` block and the lock's release."""


def interrupted_at(
    call: Callable[[], object], number: int, folders: tuple[Path, ...], as_signals: bool = False
) -> str:
    """Call, and raise Interrupt before the instruction of this number, counted in the folders' files.

    Args:
        call: What is called.
        number: From 1.
        folders: Files, or folders of files.
        as_signals: Count only instructions before which CPython may call a signal handler.

    Returns:
        The file, line and offset of the interrupted instruction; "" if the call ended before it.

    Raises:
        AssertionError: the interrupt did not reach the caller.
    """
    left, place, known, before_it = number, "", dict[str, bool](), dict[FrameType, str]()

    def opcode(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left, place
        if event == "return":
            before_it.pop(frame, None)
        if event == "opcode":
            counts = not as_signals or before_it.get(frame, "") in SIGNALS_AFTER
            before_it[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            left -= counts
            if counts and left == 0:
                place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} +{frame.f_lasti}"
                raise Interrupt
        return opcode

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in known:
            known[name] = any(folder in Path(name).parents or folder == Path(name) for folder in folders)
        if left <= 0 or not known[name]:
            return None
        frame.f_trace_opcodes = True
        return opcode

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        call()
    except Interrupt:
        return place
    finally:
        sys.settrace(before)
    assert not place, f"the interrupt at {place} was swallowed"
    return ""
