"""Ultralytics' YOLO checkpoints (``.pt``, trusted: they are pickles) and ``YOLO`` objects, by their exporter.
Checked with ultralytics 8.4 and torch 2.13.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from edgekit.compiler.importers.child_process import convert_file
from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, Importer, ImportOptions
from edgekit.compiler.importers.file_kinds import file_kind
from edgekit.compiler.importers.original import Original, Samples, convert_object
from edgekit.errors import MissingDependency, UsageError
from edgekit.tensor_spec import Array

INSTALL = "pip install ultralytics onnx"
SETTINGS = {"YOLO_AUTOINSTALL": "false", "YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"}
"""Their exporter would install packages by itself, and looks for new versions of itself."""


def recognize(head: bytes, path: Path) -> bool:
    """Return whether the file is a checkpoint: a torch pickle with classes of Ultralytics."""
    return file_kind(head, path).has("ultralytics")


def recognize_object(model: object) -> bool:
    return any(cls.__module__.startswith("ultralytics.engine.model") for cls in type(model).__mro__)


def to_onnx(source: Any, options: ImportOptions) -> Converted:
    """Export a checkpoint in a child process, an object in this one."""
    if not isinstance(source, Path):
        return convert_object(partial(_original, source, options), type(source).__name__)
    alternative = 'export it yourself: YOLO("model.pt").export(format="onnx")'
    options.need_trust(source, "an Ultralytics checkpoint (a Python pickle)", alternative)
    return convert_file(__name__, source, options)


def load(path: Path, options: ImportOptions) -> Original:
    if find_spec("ultralytics") is None:
        raise MissingDependency("ultralytics", "importing its checkpoints", INSTALL)
    os.environ.update(SETTINGS)
    os.environ.setdefault("YOLO_CONFIG_DIR", os.getcwd())
    from ultralytics import YOLO

    copy = shutil.copy(path, Path.cwd() / f"model{path.suffix}")  # the export is written next to it
    return _original(YOLO(copy), options)


def _original(model: Any, options: ImportOptions) -> Original:
    if find_spec("onnx") is None:
        raise MissingDependency("onnx", "exporting YOLO models", "pip install onnx")
    return Original(partial(_export, model, options), partial(_run, model), "ultralytics")


def _export(model: Any, options: ImportOptions) -> Converted:
    size: dict[str, Any] = {}
    if options.shapes:
        shape = next(iter(options.shapes.values()))
        if len(shape) != 4:
            raise UsageError("a YOLO model has one image input: give one --shape, e.g. --shape 1x3x640x640")
        size = {"imgsz": list(shape[2:]), "batch": shape[0]}
    with TemporaryDirectory(prefix="edgekit-yolo-") as name:
        before = getattr(model.model, "pt_path", None), getattr(model, "ckpt_path", None)
        model.model.pt_path = model.ckpt_path = os.path.join(name, "model.pt")
        try:
            path = model.export(format="onnx", simplify=False, dynamic=False, device="cpu", **size)
        finally:
            model.model.pt_path, model.ckpt_path = before
        return Converted(Path(path).read_bytes())


def _run(model: Any, samples: Samples, inputs: Sequence[str], outputs: Sequence[str]) -> FrameworkOutputs:
    import copy

    import torch
    import ultralytics

    network = copy.deepcopy(model.model).float().eval().fuse()
    for module in network.modules():
        if hasattr(module, "export"):
            module.export, module.format = True, "onnx"
    rows = []
    for sample in samples:
        with torch.no_grad():
            result = network(torch.from_numpy(np.array(sample[inputs[0]])))
        leaves = torch.utils._pytree.tree_leaves(result)
        arrays: list[Array] = [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]
        rows.append(dict(zip(outputs, arrays, strict=True)))
    return FrameworkOutputs(f"Ultralytics {ultralytics.__version__} on PyTorch {torch.__version__}", rows)


IMPORTER = Importer("Ultralytics", (), recognize, to_onnx, ("ultralytics", "torch"), recognize_object)
