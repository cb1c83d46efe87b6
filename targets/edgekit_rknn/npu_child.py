"""The child: builds a model with rknn-toolkit2, and runs it on the toolkit's simulator.

Run by edgekit/compiler/toolchains/answering.py in the toolkit's environment. The simulator runs what was
built in the same process, and no .rknn file: so one that simulates builds again.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

_built: dict[str, Any] = {}


def answer(request: dict[str, Any], folder: str) -> dict[str, Any]:
    """``build``: model.onnx -> model.rknn. ``run``: in.npz -> out.npz, in the order of the outputs."""
    os.chdir(folder)  # the toolkit writes files next to itself
    if request["do"] == "build":
        return _build(request, folder)
    with np.load(os.path.join(folder, "in.npz"), allow_pickle=False) as arrays:
        feeds = [arrays[name] for name in request["inputs"]]
    # As the ONNX file has images. It is read of inputs of four axes only, and fails on None among others.
    layouts = ["nchw"] * len(feeds) if any(array.ndim == 4 for array in feeds) else None
    outputs = _built["rknn"].inference(inputs=feeds, data_format=layouts)
    if outputs is None:
        raise RuntimeError("the simulator gave no outputs")
    np.savez(os.path.join(folder, "out.npz"), *outputs)
    return {"outputs": len(outputs)}


def _build(request: dict[str, Any], folder: str) -> dict[str, Any]:
    from rknn.api import RKNN

    rknn = RKNN(verbose=True)
    _done(rknn.config(target_platform=request["platform"]), "config")
    _done(rknn.load_onnx(model=os.path.join(folder, "model.onnx")), "load_onnx")
    _done(rknn.build(do_quantization=False), "build")
    if request["simulate"]:
        _done(rknn.init_runtime(), "init_runtime")
    else:
        _done(rknn.export_rknn(os.path.join(folder, "model.rknn")), "export_rknn")
    _built["rknn"] = rknn
    return {}


def _done(code: int, description: str) -> None:
    if code != 0:
        raise RuntimeError(f"{description} failed with {code}")
