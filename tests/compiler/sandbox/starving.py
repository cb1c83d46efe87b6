"""A card whose shapes can't be read for want of memory: it runs in the child, and takes all that there is.

Memory is reserved and not touched, so that the kernel refuses more before the parent sees too much of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
import threading
from dataclasses import dataclass
from typing import Any

import onnx

from edgekit.processing.card import Card

WAITED_S = 20.0
"""For an end that should come at once."""
HELD: list[Any] = []
"""Never given back, so that a handler of the error has no memory either."""


@dataclass(frozen=True)
class Starving(Card):
    """A card of that kind of starvation; it crosses to the child as a pickle."""

    how: str = ""

    def shapes(self) -> Any:
        """Raise, or end the process."""
        return _write_a_large_file() if self.how == "file" else STARVATIONS[self.how]()


def take_all() -> None:
    """Raises: MemoryError."""
    size = 1 << 26
    while size >= 4096:
        try:
            HELD.append(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError:
            size //= 2
    while True:
        HELD.append(bytearray(512))


def in_a_thread() -> None:
    """A thread of an engine meets it, and the caller waits for what never comes."""
    thread = threading.Thread(target=take_all)
    thread.start()
    thread.join()
    threading.Event().wait(WAITED_S)


def in_a_finalizer() -> None:
    """Python prints what finalizers raise, and goes on."""

    class Finalized:
        def __del__(self) -> None:
            take_all()

    Finalized()
    threading.Event().wait(WAITED_S)


def in_native_code() -> None:
    """The C++ library ends the process, with words of its own."""
    ctypes.CDLL("libstdc++.so.6")._Znwm(ctypes.c_size_t(1 << 60))


def in_protobuf() -> None:
    """Protobuf's exception is no MemoryError."""
    node = onnx.NodeProto(op_type="Add", input=["a", "b"], output=["c"])
    content = onnx.GraphProto(node=[node] * 100_000).SerializeToString()
    try:
        take_all()
    except MemoryError:
        HELD.append(onnx.GraphProto.FromString(content))


def in_an_error_handler() -> None:
    """What comes of it is another error."""
    try:
        take_all()
    except MemoryError:
        raise IndexError("a table is cut short")  # noqa: B904


def in_an_unrelated_error() -> None:
    """Nothing in the error tells of memory; what handles it has none."""
    with contextlib.suppress(MemoryError):
        take_all()
    raise ZeroDivisionError


def of_the_system() -> None:
    """The kernel refuses a mapping."""
    try:
        take_all()
    except MemoryError:
        HELD.append(mmap.mmap(-1, 1 << 26, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


STARVATIONS = {
    "memory": take_all,
    "thread": in_a_thread,
    "finalizer": in_a_finalizer,
    "native": in_native_code,
    "protobuf": in_protobuf,
    "handler": in_an_error_handler,
    "system": of_the_system,
    "unrelated": in_an_unrelated_error,
}


def _write_a_large_file() -> None:
    with tempfile.TemporaryFile() as file:
        os.truncate(file.fileno(), 901_000_000)
