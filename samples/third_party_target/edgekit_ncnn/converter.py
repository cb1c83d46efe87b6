"""The pnnx program: an ONNX file to ncnn's .param and .bin.

Its Python package imports torch; the program in it does not. So the package is found, and not imported.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from edgekit.errors import MissingDependency

INSTALL = "pip install --no-deps pnnx"
SECONDS = 300
"""The program's time limit. YOLOX-nano, 231 nodes, takes 0.7 s."""

BATCH_AXIS = re.compile(r"(\w+)\.numpy\((?:\), )?batch_index=(\d+)\)")
"""In the script that pnnx writes for each network: ``ncnn.Mat(in0.numpy(), batch_index=0)``, and for outputs
``out0.numpy(batch_index=0)``."""
LAYER = re.compile(r"[A-Z][A-Za-z0-9]*")
"""Names of ncnn's layers. What pnnx has no layer for keeps the name that it has there: ``Tensor.slice``."""
OWN_LAYER = re.compile(r"\w+(\.\w+)+")
"""Names in pnnx's own form. What it does not know keeps ONNX's name, and ncnn has some of these for other
layers: ``Slice`` splits."""


class Network(NamedTuple):
    """A converted model.

    Attributes:
        param: The layers, as text.
        weights: The weights.
        batch_axes: Blob -> the axis that ncnn keeps apart, for inputs (``in0``) and outputs (``out0``).
    """

    param: bytes
    weights: bytes
    batch_axes: dict[str, int]


class ConversionError(Exception):
    """pnnx did not convert the model; the text is its reason."""


def program() -> Path:
    """Where the program is.

    Raises:
        MissingDependency: pnnx is not installed.
    """
    found = find_spec("pnnx")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        for name in ("pnnx", "pnnx.exe"):
            if Path(folder, name).is_file():
                return Path(folder, name)
    raise MissingDependency(
        "pnnx", "converting a model for ncnn", f"{INSTALL} (its program runs without PyTorch, 5.7 GB)"
    )


@lru_cache(maxsize=2)  # a check and a compilation convert the same model
def convert(onnx: bytes, half: bool) -> Network:
    """Convert a model.

    Args:
        onnx: Serialized, with static shapes.
        half: Store the weights in float16.

    Raises:
        MissingDependency: pnnx is not installed.
        ConversionError: pnnx failed, or wrote layers that ncnn does not have.
    """
    pnnx = program()
    with tempfile.TemporaryDirectory(prefix="edgekit-ncnn-") as folder:
        home = Path(folder)
        (home / "m.onnx").write_bytes(onnx)
        command = [str(pnnx), "m.onnx", f"fp16={int(half)}"]
        try:
            ended = subprocess.run(
                command, cwd=home, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ConversionError(f"pnnx did not end within {SECONDS} s") from None
        if ended.returncode != 0:
            how = f"code {ended.returncode}" if ended.returncode > 0 else f"signal {-ended.returncode}"
            raise ConversionError(f"pnnx ended with {how}")
        try:
            param = (home / "m.ncnn.param").read_bytes()
            weights = (home / "m.ncnn.bin").read_bytes()
            own = (home / "m.pnnx.param").read_bytes()
            script = (home / "m_ncnn.py").read_text("utf-8")
        except OSError:
            raise ConversionError("pnnx wrote no network") from None
    left = sorted({*_layers(param, LAYER), *_layers(own, OWN_LAYER)})
    if left:
        raise ConversionError(f"ncnn has no layer for {', '.join(left)}")
    return Network(param, weights, {blob: int(axis) for blob, axis in BATCH_AXIS.findall(script)})


def _layers(param: bytes, known: re.Pattern[str]) -> set[str]:
    """The layers of a .param file whose names are none that is known."""
    names = {line.split()[0] for line in param.decode().splitlines()[2:] if line.strip()}
    return {name for name in names if not known.fullmatch(name)}
