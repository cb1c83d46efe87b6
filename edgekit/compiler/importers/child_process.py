"""A file of a framework, loaded, exported and run in a child process.

    python -m edgekit.compiler.importers.confined_start FOLDER

FOLDER has the request, and gets the results: the ONNX file, arrays, or why there are none. Importing a
framework takes seconds, so one process does both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import numpy as np

from edgekit.compiler.importers.contract import Converted, FrameworkOutputs, ImportOptions
from edgekit.compiler.importers.original import Original, Samples, failure, reason_line, signature_names
from edgekit.compiler.toolchains.child import end_child
from edgekit.errors import EdgeKitError, EngineError, MissingDependency, ModelError, UsageError
from edgekit.system.confinement import die_with_parent
from edgekit.tensor_spec import Array, Json

SECONDS_LIMIT = 1800
"""Longest export. A network of 100 MB took 20 s here; a hostile file must not keep the build for ever."""
LOG_LIMIT_BYTES = 4 << 20
"""How much of what the child said is kept."""

LOADING = "can't be loaded"
OWN_FOLDERS = ("TMPDIR", "KERAS_HOME")
"""Environment variables of folders that frameworks write to."""
REQUEST, RESULT, MODEL, ARRAYS, LOG = "request.json", "result.json", "model.onnx", "arrays.npz", "log.txt"
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


class _LoadingChild:
    """A child process that has one file to load. It ends when it is closed or forgotten."""

    def __init__(self, path: Path, request: Mapping[str, Json]) -> None:
        self._path = path
        self._temporary = tempfile.TemporaryDirectory(prefix="edgekit-import-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        (self.folder / REQUEST).write_text(json.dumps(request), "utf-8")
        command = [sys.executable, "-m", "edgekit.compiler.importers.confined_start", str(self.folder)]
        folders = {name: str(self.folder) for name in OWN_FOLDERS}
        search = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {**os.environ, **folders, "PYTHONPATH": search}
        with open(self.folder / LOG, "wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self.folder,
                env=environment, text=True,
            )  # fmt: skip
        self._end = weakref.finalize(self, end_child, self._process, self._temporary)

    @property
    def is_alive(self) -> bool:
        return self._end.alive

    def close(self) -> None:
        self._end()

    def ask(self, question: Mapping[str, Json]) -> dict[str, Json]:
        """Send a request, return the result. Raises the child's errors; ModelError for the framework's."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(SECONDS_LIMIT, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answered = self._process.stdout.readline()
        except BrokenPipeError:
            answered = ""
        finally:
            in_time = timer.is_alive()
            timer.cancel()
        if answered:
            response: dict[str, Json] = json.loads((self.folder / RESULT).read_text("utf-8"))
            if "engine" in response or "notes" in response:
                return response
        output = self._output()
        code = self._process.poll() if answered else self._process.wait()
        self.close()
        if not answered:
            reason = (
                f"its process ended with {code}" if in_time else f"it did not end within {SECONDS_LIMIT} s"
            )
            raise failure(self._path.name, "its framework failed", reason, output)
        if "failure" in response:
            text = output + str(response["text"])
            raise failure(self._path.name, str(response["what"]), str(response["failure"]), text)
        if "missing" in response:
            raise MissingDependency(*map(str, response["missing"]))
        raise _KINDS.get(str(response["kind"]), ModelError)(str(response["error"]))

    def _output(self) -> str:
        with open(self.folder / LOG, "rb") as file:
            return file.read(LOG_LIMIT_BYTES).decode("utf-8", "replace")


def _save(folder: Path, rows: list[list[Array]]) -> None:
    arrays = {f"{k}.{i}": array for k, row in enumerate(rows) for i, array in enumerate(row)}
    np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]


def _load(folder: Path, rows: int, columns: int) -> list[list[Array]]:
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        return [[arrays[f"{k}.{i}"] for i in range(columns)] for k in range(rows)]


def answer_parent(folder: Path) -> None:
    """Serve requests as the child, one per line of stdin; a line on stdout reports a result in the folder."""
    die_with_parent()
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print goes into the log
    request = json.loads((folder / REQUEST).read_text("utf-8"))
    loaded: list[Original] = []
    for line in sys.stdin:
        result = _answer(folder, request, json.loads(line), loaded)
        (folder / RESULT).write_text(json.dumps(result), "utf-8")
        channel.write("done\n")
        channel.flush()


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
