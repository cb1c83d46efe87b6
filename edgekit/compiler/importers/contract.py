"""The contract of an importer: what turns one framework's models into ONNX.

An importer is a module with ``IMPORTER = Importer(...)``, found by the entry-point group
``edgekit.importers``. All of them are imported whenever a model is not ONNX, to ask whose it is: the
module imports neither its framework nor anything large; the functions do, when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

Source = Path | object
"""A file, or from Python an object of the framework, e.g. a ``torch.nn.Module``."""


@dataclass(frozen=True)
class ImportOptions:
    """What the user says about a model besides the model.

    Attributes:
        shapes: Static shapes by input name; "" stands for the only input.
        example_inputs: What the model is called with, for frameworks that trace it: arrays or tensors of the
            framework, in the order of its parameters, or a mapping of its parameters by name.
        trust_pickle: Whether a file may run the code that is in it.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None
    trust_pickle: bool = False

    def need_trust(self, path: Path, what: str, instead: str) -> None:
        """Refuse a Python pickle that the user does not say to trust: loading it runs code that is in it.

        Args:
            path: The file.
            what: What it is, e.g. ``a Python pickle of scikit-learn``.
            instead: What can be given that is no pickle.

        Raises:
            ModelError: it is not said.
        """
        if not self.trust_pickle:
            raise ModelError(
                f"{path.name} is {what}: loading it runs whatever code is in it. If you made the file, or"
                f" trust who did, add --trust-pickle (Python: trust_pickle=True); else {instead}"
            )


class Answers(NamedTuple):
    """What the framework itself computes.

    Attributes:
        engine: Name and version of what ran the model, e.g. ``LiteRT 2.3.0``.
        outputs: For each sample, by the names of the ONNX model's outputs.
    """

    engine: str
    outputs: Sequence[Mapping[str, Array]]


class Converted(NamedTuple):
    """What an importer makes.

    Attributes:
        onnx: The file, with its weights inside: what is imported reads no other file.
        notes: What the user should know of the conversion, a sentence each, e.g. an op that was approximated.
        precision: Of the original's arithmetic where the ONNX model's is another, e.g. ``int8-dynamic`` where
            it rounds at run time: how close the two can be. "": the ONNX model's own.
        answers: ``(samples) -> Answers``: runs the very model that was converted; None: the importer's does.
        example: What the user called the model with, by the names of the ONNX model's inputs; None: unknown.
    """

    onnx: bytes
    notes: tuple[str, ...] = ()
    precision: str = ""
    answers: Callable[[Sequence[Mapping[str, Array]]], Answers] | None = None
    example: Mapping[str, Array] | None = None


def _takes_no_object(found: object) -> bool:
    return False


class Importer(NamedTuple):
    """One framework's importer.

    Attributes:
        source_format: As users call it: ``TFLite``.
        suffixes: Of its files, e.g. ``(".tflite",)``: for files whose content nobody recognizes.
        recognize: ``(head, path) -> bool``: whether the file is one of the framework's. ``head`` is the first
            HEAD_BYTES of the file, or b"" of a folder. It never raises, and no two importers recognize the
            same file.
        to_onnx: ``(source, options) -> Converted``. Raises ModelError for a model that it can't convert,
            MissingDependency where its framework is not installed.
        packages: Distributions whose versions can change what ``to_onnx`` makes; those that are installed are
            named in the bundle.
        recognize_object: ``(object) -> bool``: whether a Python object is one of the framework's, by its
            classes' modules: it imports nothing.
        answers: ``(source, samples) -> Answers``: runs the original, for the comparison with the ONNX model.
            Samples and outputs have the ONNX model's names, dtypes and shapes. Raises MissingDependency where
            what runs it is not installed, EngineError where that refuses the model. None: nothing runs it.
    """

    source_format: str
    suffixes: tuple[str, ...]
    recognize: Callable[[bytes, Path], bool]
    to_onnx: Callable[[Any, ImportOptions], Converted]
    packages: tuple[str, ...] = ()
    recognize_object: Callable[[object], bool] = _takes_no_object
    answers: Callable[[Any, Sequence[Mapping[str, Array]]], Answers] | None = None


HEAD_BYTES = 4096
"""How much of a file ``recognize`` is given."""
