"""A model in its own framework: exported to ONNX by the framework's exporter, and run for the comparison.

An object that the user gives is exported in this process; a file is loaded in a child process
(child_process.py), which a crash, a flood of messages or a hostile file of a framework ends without harm to
this one.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import NamedTuple

from edgekit.compiler.importers.contract import Converted, FrameworkOutputs
from edgekit.errors import EdgeKitError, ModelError
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.records_folder import records_folder
from edgekit.tensor_spec import Array

REASON_CHARS = 300
"""How much of an exporter's message is shown; the rest is in the file."""
FOLDER, FILES_LIMIT = "imports", 50
"""Folder of the exporters' messages in the cache folder; the newest files stay."""

Samples = Sequence[Mapping[str, Array]]


class Original(NamedTuple):
    """Loaded model of a framework.

    Attributes:
        export: Function that writes the ONNX file, with the framework's exporter.
        run: ``(samples, names of the ONNX model's inputs, of its outputs) -> Answers``.
        exporter: Name of the exporter, for messages, e.g. ``torch.onnx``.
        advice: Another way, for where it fails; "" if none is known.
    """

    export: Callable[[], Converted]
    run: Callable[[Samples, Sequence[str], Sequence[str]], FrameworkOutputs]
    exporter: str
    advice: str = ""

    def reason(self, problem: BaseException) -> str:
        """Return why the exporter failed, and what to try."""
        return "; ".join(filter(None, (reason_line(problem), self.advice)))


def convert_object(load: Callable[[], Original], name: str) -> Converted:
    """Export a model in this process; the same object computes the original outputs.

    Raises:
        ModelError: the exporter failed, with its reason; the full text is in a file.
    """
    captured = io.StringIO()
    original = load()
    try:
        with quiet(captured):
            converted = original.export()
    except EdgeKitError:
        raise
    except Exception as problem:
        text = captured.getvalue() + "".join(traceback.format_exception(problem))
        raise failure(name, f"{original.exporter} can't export it", original.reason(problem), text) from None
    inputs, outputs = signature_names(converted.onnx)

    def answers(samples: Samples) -> FrameworkOutputs:
        with quiet(io.StringIO()):
            return original.run(samples, inputs, outputs)

    return converted._replace(answers=answers)


@contextlib.contextmanager
def quiet(output: io.StringIO) -> Iterator[None]:
    """Redirect the prints and warnings of exporters to ``output``."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))  # their handlers hold the real stderr
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def failure(name: str, description: str, reason: str, text: str) -> ModelError:
    """Return the error of a failed framework or exporter. The full text is in a file of the cache folder."""
    path = _write(name, text)
    location = f"; the full message is in {path}" if path else ""
    return ModelError(f"{name}: {description}: {reason}{location}")


def reason_line(problem: BaseException) -> str:
    """Return the first line of the root exception, which exporters wrap in others."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(problem))
    line = next((line.strip() for line in plain.splitlines() if line.strip()), "")
    text = f"{type(problem).__name__}: {line}" if line else type(problem).__name__
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 3] + "..."


def signature_names(onnx_file: bytes) -> tuple[list[str], list[str]]:
    """Return the names of the inputs, without weights, and of the outputs of an ONNX file."""
    import onnx  # here: the importers are imported to ask whose a file is

    graph = onnx.ModelProto.FromString(onnx_file).graph
    weights = {weight.name for weight in graph.initializer}
    return [v.name for v in graph.input if v.name not in weights], [v.name for v in graph.output]


def serialized(proto: object) -> bytes:
    """Return the bytes of an exporter's ``onnx.ModelProto``."""
    from edgekit.compiler.model.untrusted import (
        MAX_BYTES,  # here: it imports onnx, which a child may not need
    )

    size = proto.ByteSize()  # type: ignore[attr-defined]
    if size > MAX_BYTES:
        raise ModelError(f"the model has {size / 2**30:.1f} GB; an ONNX file can have at most 2 GB")
    data: bytes = proto.SerializeToString(deterministic=True)  # type: ignore[attr-defined]
    return data


def renamed_outputs(proto: object, names: Sequence[str]) -> None:
    """Rename the outputs of an ``onnx.ModelProto``, in place, if no other value has these names.

    Declared shapes of intermediate values are dropped: some exporters write wrong ones.
    """
    graph = proto.graph  # type: ignore[attr-defined]
    del graph.value_info[:]
    used_names = {name for node in graph.node for name in node.output}
    used_names |= {value.name for value in [*graph.input, *graph.initializer]}
    old = [value.name for value in graph.output]
    if len(set(names)) != len(names) or len(names) != len(old) or len(set(old)) != len(old):
        return
    if (used_names - set(old)) & set(names) or {value.name for value in graph.input} & set(old):
        return
    new = dict(zip(old, names, strict=True))
    for node in graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]
        node.output[:] = [new.get(name, name) for name in node.output]
    for value in graph.output:
        value.name = new[value.name]


_distributions = functools.cache(packages_distributions)


def package_version(package: str) -> str:
    """Return the version of a package, also if a distribution of another name installs its module, as
    xgboost-cpu does.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return version(_distributions().get(package, [package])[0])


def _write(name: str, text: str) -> str:
    folder = records_folder() / FOLDER
    file = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80] + ".txt")
    try:
        private_folder(folder)
        write_atomically(file, [text.encode("utf-8", "backslashreplace")], 0o600)
        for old in sorted(folder.glob("*.txt"), key=lambda path: path.stat().st_mtime_ns)[:-FILES_LIMIT]:
            old.unlink(missing_ok=True)
    except OSError:
        return ""
    return str(file)
