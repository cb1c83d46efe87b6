"""Handlers of signals after models of OpenVINO that ended in the order in which they began."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs_openvino, pytest.mark.needs_shared]
HANDLED = """
import ctypes, signal, sys
from pathlib import Path
from edgekit_openvino import run
from edgekit.system.interrupts import SignalStack

def stack():
    now = SignalStack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(now))
    return now.address, now.flags, now.size

def interrupted(*_):
    raise KeyboardInterrupt

core, (model, folder) = run.openvino().Core(), map(Path, sys.argv[1:])
run.openvino().save_model(core.read_model(model), folder / "model.xml", False)
files = {name: folder / name for name in ("model.xml", "model.bin")}
before = stack()
models = [run.compiled_model(files, {}, threads) for threads in (1, 2)]
assert stack() == before, "the stack of a thread that compiled"
while models:
    del models[0]
assert stack() == before, "the stack after the models"
signal.signal(signal.SIGINT, interrupted)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("handled")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sigaltstack of Linux")
def test_an_interrupt_is_handled_after_models_that_ended(shared: Path, tmp_path: Path) -> None:
    model = shared / "models" / "vww_96_float.onnx"
    command = [sys.executable, "-c", HANDLED, str(model), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
