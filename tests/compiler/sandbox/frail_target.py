"""A target called ``frail``: ONNX Runtime's, whose compiler and engine end the process where a test says.

It is installed as a third party's would be, so that a child process finds it. The environment variable FRAIL
is a regular expression, which is searched in texts such as ``check``, ``compile fp32``, ``compile int8 in
frail-int8 > all, minmax, nearest (45a84f19)`` and ``open in frail-fp32``. FRAIL_HOW is the name of a signal,
``exit``, ``hang`` or ``memory``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.target import registry

_COMPILE = """
from edgekit_frail import die
from edgekit_ort import compile as ort
from edgekit_ort.compile import TARGET

def check_model(model, profile):
    die("check")
    return ort.check_model(model, profile)

def compile_model(model, profile, precision):
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    die(f"compile {'int8' if quantized else precision}")
    return ort.compile_model(model, profile, precision)
"""
_DIE = """
import os, re, signal, time
from edgekit.system import breadcrumbs

def die(step):
    if re.search(os.environ["FRAIL"], f"{step} in {breadcrumbs.last()[2]}"):
        how = os.environ.get("FRAIL_HOW", "SIGSEGV")
        if how == "exit":
            os._exit(7)
        if how == "hang":
            time.sleep(600)
        if how == "memory":
            kept = bytearray(1 << 30)
            kept[::4096] = b"1" * len(kept[::4096])
            time.sleep(600)
        os.kill(os.getpid(), getattr(signal, how))
"""
_RUN = """
from edgekit_frail import die
from edgekit_ort.run import ENGINE, engine_version
from edgekit_ort import run as ort

def open_runner(files, inputs, outputs, options, threads):
    die("open")
    return ort.open_runner(files, inputs, outputs, options, threads)
"""
_ENTRY_POINTS = """
[edgekit.compilers]
{0} = edgekit_{0}.compile
[edgekit.runners]
{0} = edgekit_{0}.run
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...] = ("frail",)) -> None:
    """Install the target, once for each name, into this folder, which is put on the search path."""
    for name in names:
        package, metadata = folder / f"edgekit_{name}", folder / f"edgekit_{name}-1.0.dist-info"
        (package / "profiles").mkdir(parents=True)
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: edgekit-{name}\nVersion: 1.0\n", "utf-8"
        )
        (metadata / "entry_points.txt").write_text(_ENTRY_POINTS.format(name), "utf-8")
        for file, text in (("__init__", _DIE), ("compile", _COMPILE), ("run", _RUN)):
            (package / f"{file}.py").write_text(text.replace("edgekit_frail", f"edgekit_{name}"), "utf-8")
        (package / "profiles" / f"{name}.toml").write_text(f'title = "{name}"\n', "utf-8")
    monkeypatch.syspath_prepend(str(folder))
    registry._entry_points.cache_clear()
