"""A file of a framework, loaded, exported and run in a child process.

The first line for the process has the file and the options; its folder gets the results: the ONNX file,
arrays, or why there are none. Importing a framework takes seconds, so one process does both.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np

from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, ImportOptions
from edgekit.compiler.importers.original import Original, Samples, failure, reason_line, signature_names
from edgekit.compiler.toolchains.answering import serve
from edgekit.compiler.toolchains.child import ServingProcess
from edgekit.errors import EdgeKitError, EngineError, MissingDependency, ModelError, UsageError
from edgekit.system.confinement import die_with_parent
from edgekit.tensor_spec import Array, Json

SECONDS_LIMIT = 1800
"""Longest export. A network of 100 MB took 20 s here; a hostile file must not keep the build for ever."""
LOADING = "can't be loaded"
MODEL, ARRAYS = "model.onnx", "arrays.npz"
_KINDS = {kind.__name__: kind for kind in (ModelError, UsageError, EngineError)}


def convert_file(module: str, path: Path, options: ImportOptions) -> Converted:
    """Export a file in a child process, which stays alive to run the original too.

    Args:
        module: Importer whose ``load(path, options)`` returns the Original.

    Raises:
        ModelError: the file can't be loaded or exported; the text has the framework's reason.
        MissingDependency: the framework or its exporter is not installed.
    """
    shapes: dict[str, Json] = {name: list(shape) for name, shape in options.shapes.items()}
    request: dict[str, Json] = {"module": module, "path": str(path.absolute()), "shapes": shapes}
    request["trust_pickle"] = options.trust_pickle
    child = _LoadingChild(path, request)
    response = child.ask({"do": "export"})
    data = (child.folder / MODEL).read_bytes()
    inputs, outputs = signature_names(data)

    def answers(samples: Samples) -> FrameworkOutputs:
        runner = child if child.is_alive else _LoadingChild(path, request)
        try:
            _save(runner.folder, [[sample[name] for name in inputs] for sample in samples])
            names: dict[str, Json] = {
                "samples": len(samples),
                "inputs": list(inputs),
                "outputs": list(outputs),
            }
            engine = runner.ask({"do": "run", **names})["engine"]
            rows = _load(runner.folder, len(samples), len(outputs))
        finally:
            runner.close()
        return FrameworkOutputs(str(engine), [dict(zip(outputs, row, strict=True)) for row in rows])

    return Converted(data, tuple(map(str, response["notes"])), answers=answers)


class _LoadingChild(ServingProcess):
    def __init__(self, path: Path, request: Mapping[str, Json]) -> None:
        super().__init__("edgekit.compiler.importers.confined_start")
        self._path, self._first = path, json.dumps(request).encode() + b"\n"

    def ask(self, question: Mapping[str, Json]) -> dict[str, Json]:
        """Send a request, return the result. Raises the child's errors; ModelError for the framework's."""
        lines, self._first = self._first + json.dumps(question).encode() + b"\n", b""
        ended = ""
        try:
            response: dict[str, Json] = json.loads(self.respond(lines, SECONDS_LIMIT))
        except TimeoutError:
            ended = f"it did not end within {SECONDS_LIMIT} s"
        except ChildProcessError as problem:
            ended = f"its process ended with {problem}"
        if not ended and ("engine" in response or "notes" in response):
            return response
        output = self.output()
        self.close()
        if ended:
            raise failure(self._path.name, "its framework failed", ended, output)
        if "failure" in response:
            text = output + str(response["text"])
            raise failure(self._path.name, str(response["what"]), str(response["failure"]), text)
        if "missing" in response:
            raise MissingDependency(*map(str, response["missing"]))
        raise _KINDS.get(str(response["kind"]), ModelError)(str(response["error"]))


def _save(folder: Path, rows: list[list[Array]]) -> None:
    arrays = {f"{k}.{i}": array for k, row in enumerate(rows) for i, array in enumerate(row)}
    np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]


def _load(folder: Path, rows: int, columns: int) -> list[list[Array]]:
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        return [[arrays[f"{k}.{i}"] for i in range(columns)] for k in range(rows)]


def answer_parent(request: Mapping[str, Json], folder: str) -> None:
    die_with_parent()
    loaded: list[Original] = []
    serve(lambda question, folder: _answer(Path(folder), request, question, loaded), folder)


def _answer(
    folder: Path, request: Mapping[str, Json], question: Mapping[str, Json], loaded: list[Original]
) -> dict[str, Json]:
    description = LOADING
    try:
        if not loaded:
            shapes = {name: tuple(shape) for name, shape in request["shapes"].items()}
            options = ImportOptions(shapes, trust_pickle=bool(request["trust_pickle"]))
            loaded.append(import_module(request["module"]).load(Path(request["path"]), options))
        (original,) = loaded
        if question["do"] == "export":
            description = f"{original.exporter} can't export it"
            converted = original.export()
            (folder / MODEL).write_bytes(converted.onnx)
            return {"notes": list(converted.notes)}
        description = "its framework can't run it"
        rows = _load(folder, question["samples"], len(question["inputs"]))
        samples = [dict(zip(question["inputs"], row, strict=True)) for row in rows]
        answers = original.run(samples, question["inputs"], question["outputs"])
        _save(folder, [[row[name] for name in question["outputs"]] for row in answers.outputs])
        return {"engine": answers.engine}
    except MissingDependency as missing:
        return {"missing": [missing.name, missing.needed_for, missing.install]}
    except EdgeKitError as problem:
        return {"error": str(problem), "kind": type(problem).__name__}
    except Exception as problem:  # a framework may throw anything
        text = "".join(traceback.format_exception(problem))
        reason = loaded[0].reason(problem) if question["do"] == "export" and loaded else reason_line(problem)
        if description == LOADING and isinstance(problem, AttributeError | ImportError):
            reason += "; its classes must be importable: set PYTHONPATH to their folder"
        return {"failure": reason, "what": description, "text": text}
