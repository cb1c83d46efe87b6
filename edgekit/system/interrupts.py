"""Interrupts: what the app's signal handlers raise, and threads and waiting that they cannot break.

A signal handler of the app may raise any exception, as a timeout, at any moment in the main thread, also
while an engine runs. Where an engine's errors are caught, ``pass_on`` lets the app's through.

Ctrl-C raises KeyboardInterrupt in the main thread between any two bytecode instructions, also in this
library. ``with lock`` on a plain lock is safe: it is acquired and released in C, and signals are handled only
inside the block. What ``threading`` implements in Python is not: a Condition or an Event interrupted on entry
may stay locked, and a Thread interrupted in ``start`` may never run.
"""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

from edgekit.system.forked import inside, skip_destructors

_VARARGS = 0x04
"""``inspect.CO_VARARGS``; the module costs 10 ms to import."""
EXIT_S = 10.0
"""Seconds that the exiting interpreter waits for threads that are inside an engine."""
END_S = 1.0
"""Timeout of Thread.join for a thread whose work is done: interrupted twice, join may block forever."""


def pass_on(problem: BaseException) -> None:
    """Raise what a signal handler or a trace function of the app raised: ``problem``, or what it was made of.

    It is called where ``problem`` is caught, and returns if an engine is at fault.
    """
    raised = _of_the_app(problem)
    try:
        if raised is not None:
            raise raised
    finally:
        # Else the traceback's frames, and the files they hold open, live until a collection.
        del raised, problem


def _of_the_app(problem: BaseException) -> BaseException | None:
    looked_at: list[BaseException] = [problem]
    for error in looked_at:
        frames = _frames(error)
        if any(_is_handler(frame, caller) for caller, frame in pairwise(frames)):
            return error
        for cause in (error.__cause__, error.__context__):
            # A function on the way caught the cause. Not so the context of an app that calls from where it
            # handles an exception: its own function caught that.
            if cause is not None and cause not in looked_at and _frames(cause)[0] in frames:
                looked_at.append(cause)
    return None


def _frames(problem: BaseException) -> list[FrameType | None]:
    """Return the frames of an exception, the one that caught it first; [None]: it was not raised."""
    frames: list[FrameType | None] = []
    trace = problem.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames or [None]


def _is_handler(frame: FrameType | None, interrupted: FrameType | None) -> bool:
    """Return whether Python itself called a function. Signal handlers and trace functions are given the frame
    that they interrupt. A function that calls another never passes that frame."""
    assert frame is not None
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS)
    for name in code.co_varnames[:count]:
        value = frame.f_locals.get(name)
        if value is interrupted or (type(value) is tuple and any(item is interrupted for item in value)):
            return True
    return False


@contextmanager
def in_engine() -> Iterator[None]:
    """Mark this background thread as inside an engine; the interpreter then waits for it before it exits.

    A thread that comes back from an engine in an interpreter that is exiting ends the process: CPython before
    3.14 unwinds the thread's stack, which C++ answers with ``abort``.
    """
    inside.append(None)
    try:
        yield
    finally:
        inside.pop()


def _leave_engines() -> None:
    """Wait for the threads that are inside an engine. If one stays there, let the process end, with its own
    exit code, without the engines' destructors: they would free what that thread is using."""
    end_s = time.monotonic() + EXIT_S
    while inside and time.monotonic() < end_s:
        time.sleep(0.01)
    if inside:
        skip_destructors()


atexit.register(_leave_engines)


class Background:
    """A daemon thread. An interrupt during its creation leaves either no thread or a running one."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._pid = os.getpid()
        self._ident: int | None = None
        self._done = False
        started, ended = threading.Lock(), threading.Lock()
        started.acquire()
        ended.acquire()

        def whole() -> None:
            self._ident = threading.get_ident()
            try:
                work()
            finally:
                self._done = True
                ended.release()

        def start() -> None:
            try:
                thread.start()
            except RuntimeError:  # no further thread can be started; use this one
                whole()
            finally:
                started.release()

        self._started, self._ended = started, ended
        self._thread = thread = threading.Thread(target=whole, name=name, daemon=True)
        # Thread.start waits, in Python code, until the thread runs. Signals interrupt only the main thread,
        # so it is called in another one, whose own start is a single C call.
        _thread.start_new_thread(start, ())

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the work has ended, or for the timeout. Returns at once within the work itself, and in a
        forked process, which does not have the thread."""
        if self._pid != os.getpid() or self._ident == threading.get_ident():
            return
        if timeout_s is None and not self._done:
            with self._ended:
                pass
        elif not self._done:  # else an interrupted call may have kept the lock
            if not self._ended.acquire(timeout=timeout_s or 0):
                return
            self._ended.release()
        with self._started:
            pass
        if self._thread.ident is not None:  # it started, and is about to end
            self._thread.join(END_S)


class Notifier:
    """A minimal condition variable. Its methods are called with the lock held that guards the state; waiting
    happens without it:

    with lock:
        if not ready:
            waiter = notifier.waiter()
    waiter.acquire()        # until notify(); then check again
    """

    def __init__(self) -> None:
        self._waiters: list[threading.Lock] = []

    def waiter(self) -> threading.Lock:
        """Return a lock that can be acquired, once, after the next change."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: threading.Lock) -> None:
        """Remove a waiter that is no longer used."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def notify(self) -> None:
        """Wake all waiters. Those that an interrupt leaves waiting are woken by the next call."""
        for waiter in self._waiters:
            if waiter.locked():
                waiter.release()
        self._waiters.clear()


class SignalStack(ctypes.Structure):
    """``stack_t`` of Linux (sigaltstack(2))."""

    _fields_ = (("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Restore this thread's alternate stack for signal handlers afterwards.

    OpenVINO 2026.4 sets a stack of its own when it compiles, and the one before when the compiled model ends.
    If two models end in the order in which they began, a freed stack is left, and the next signal that Python
    handles, such as Ctrl-C, ends the process.
    """
    if sys.platform != "linux":
        yield
        return
    sigaltstack, before = ctypes.CDLL(None).sigaltstack, SignalStack()
    sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        sigaltstack(ctypes.byref(before), None)
