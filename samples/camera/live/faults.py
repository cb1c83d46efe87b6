"""Faults for the page's switches, injected where they would happen: in the engine, in the processor's load.

    faults = Faults()
    faults.install(session_bundle_targets)    # before the session is opened
    faults.kill("ort")                        # from now on every run of ONNX Runtime fails

An engine that is killed raises at every run; one that hangs does not return. The runtime is not told: it sees
what it would see on a device whose engine does that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from edgekit.errors import EngineError
from edgekit.target import registry

HANG_S = 60.0
"""A hung run returns after that in any case, so that its thread and its memory come back."""
LOAD_S = 60.0
BUSY = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end:\n    pass"


class Faults:
    """Which engines are killed and which hang, by target name, e.g. ``ort``; and busy processes."""

    def __init__(self) -> None:
        self.killed = self.hung = ""
        self._released = threading.Event()
        self._installed: dict[str, Any] = {}
        self._busy: list[subprocess.Popen[bytes]] = []

    def install(self, targets: Iterable[str]) -> None:
        """Put a switchable fault around every runner that these engines open from now on."""
        for target in set(targets) - set(self._installed):
            engine: Any = registry.engine(target)
            opened = self._installed[target] = engine.open_runner

            engine.open_runner = partial(self._open, opened, target)

    def _open(self, opened: Any, target: str, *arguments: Any, **options: Any) -> Any:
        return _Faulty(opened(*arguments, **options), target, self)

    def uninstall(self) -> None:
        """Engines are themselves again, and nothing hangs or is busy."""
        for target, opened in self._installed.items():
            engine: Any = registry.engine(target)
            engine.open_runner = opened
        self._installed.clear()
        self.kill("")
        self.hang("")
        self.load(False)

    def kill(self, target: str) -> None:
        """Every run of this engine fails; "": of none."""
        self.killed = target

    def hang(self, target: str) -> None:
        """Runs of this engine do not return; "": all return."""
        self.hung = target
        if target:
            self._released.clear()
        else:
            self._released.set()

    def load(self, on: bool) -> None:
        """Keep every core busy with a process of its own, for at most a minute."""
        for process in self._busy:
            process.kill()
            process.wait()
        self._busy = []
        if on:
            command = [sys.executable, "-c", BUSY.format(seconds=LOAD_S)]
            self._busy = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]

    @property
    def busy(self) -> int:
        """Busy processes that run."""
        return sum(process.poll() is None for process in self._busy)

    def strike(self, target: str) -> None:
        """What happens at a run of this engine.

        Raises:
            EngineError: it is killed.
        """
        if target == self.hung:
            self._released.wait(HANG_S)
        if target == self.killed:
            raise EngineError("the engine was killed (a switch of the page)")


class _Faulty:
    """A runner with the fault before each run."""

    def __init__(self, runner: Any, target: str, faults: Faults) -> None:
        self._runner, self._target, self._faults = runner, target, faults

    def run(self, feeds: Mapping[str, Any]) -> Any:
        self._faults.strike(self._target)
        return self._runner.run(feeds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)
