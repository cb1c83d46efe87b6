"""Outputs of an original .tflite file, on LiteRT in a child process: the file is untrusted and may crash
LiteRT.

    python -m edgekit_tflite.importer.original FOLDER

The folder holds ``model.tflite`` and, for each sample, its inputs in the file's order, ``0.x0.npy`` ...; the
child writes the outputs, ``0.y0.npy`` ..., and its engine's name, or the error, into ``answer.json``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.compiler.importers.contract import FrameworkOutputs
from edgekit.errors import EdgeKitError, EngineError
from edgekit.system.confinement import die_with_parent
from edgekit.tensor_spec import Array
from edgekit_tflite.graph import Graph
from edgekit_tflite.importer.file import end_names, read_file
from edgekit_tflite.run import engine_version, open_interpreter

DETECTIONS = "TFLite_Detection_PostProcess"
FILE, ANSWER = "model.tflite", "answer.json"
SECONDS = 300.0
"""The most that all samples together may take."""


def run_original(path: Path, samples: Sequence[Mapping[str, Array]]) -> FrameworkOutputs:
    """Run the file on LiteRT.

    ``samples``: inputs by the names that they have in ONNX.

    Raises:
        MissingDependency: LiteRT is not installed.
        EngineError: LiteRT refuses the file, crashed, or takes too long.
    """
    version = engine_version()
    graph = read_file(path.read_bytes()).graph
    inputs, outputs = end_names(graph)
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        folder = Path(name)
        shutil.copyfile(path, folder / FILE)
        for number, sample in enumerate(samples):
            for index, key in enumerate(inputs):
                np.save(folder / f"{number}.x{index}.npy", sample[key])
        command = [sys.executable, "-m", "edgekit_tflite.importer.original", name]
        try:
            child = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{version} did not end within {SECONDS:g} s") from None
        try:
            reason = json.loads((folder / ANSWER).read_bytes())["why"]
        except (OSError, ValueError):
            raise EngineError(f"{version} crashed on it (exit code {child.returncode})") from None
        if reason:
            raise EngineError(reason)
        results = [
            {key: np.load(folder / f"{number}.y{index}.npy") for index, key in enumerate(outputs)}
            for number in range(len(samples))
        ]
    for answer in results:
        _clear_unset(graph, dict(zip(graph.outputs, answer.values(), strict=True)))
    return FrameworkOutputs(version, results)


def _clear_unset(graph: Graph, outputs: Mapping[int, Array]) -> None:
    """Zero the parts that the kernel of a detector's last operator leaves unset.

    It fills its outputs as far as there are detections (tensorflow/lite/kernels/detection_postprocess.cc).
    """
    for op in graph.ops:
        if op.options.get("custom_code") == DETECTIONS and len(op.outputs) >= 4:
            boxes, classes, scores, count = (outputs.get(i) for i in op.outputs[:4])
            if count is None or not np.isfinite(count).all():
                continue
            for array in (boxes, classes, scores):
                if array is not None and array.ndim > 1:
                    array[:, max(int(count.ravel()[0]), 0) :] = 0


def run_folder(folder: Path) -> None:
    """Run the folder's file on its samples."""
    reason = ""
    try:
        version, interpreter = open_interpreter(folder / FILE, 1)
        number = 0
        while (folder / f"{number}.x0.npy").exists() or not number:
            _run_once(folder, number, version, interpreter)
            number += 1
    except EdgeKitError as problem:
        reason = str(problem).replace(str(folder / FILE), "it")
    (folder / ANSWER).write_text(json.dumps({"why": reason}), "utf-8")


def _run_once(folder: Path, number: int, version: str, interpreter: Any) -> None:
    try:
        interpreter.reset_all_variables()
        for index, detail in enumerate(interpreter.get_input_details()):
            interpreter.set_tensor(detail["index"], np.load(folder / f"{number}.x{index}.npy"))
        interpreter.invoke()
    except (RuntimeError, ValueError) as problem:
        raise EngineError(f"{version} failed to run it: {' '.join(str(problem).split())}") from None
    for index, detail in enumerate(interpreter.get_output_details()):
        np.save(folder / f"{number}.y{index}.npy", interpreter.get_tensor(detail["index"]))


if __name__ == "__main__":
    die_with_parent()
    run_folder(Path(sys.argv[1]))
