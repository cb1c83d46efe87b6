"""Contract of an importer, which converts one framework's models to ONNX.

An importer is a module with ``IMPORTER = Importer(...)``, found by the entry-point group
``edgekit.importers``. All importers are imported whenever a model is not ONNX, to find the one for it. So the
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
    """User's options for importing a model.

    Attributes:
        shapes: Static shapes by input name; "" stands for the only input.
        example_inputs: Example arguments of the model, for frameworks that trace it: arrays or tensors of the
            framework, in the order of its parameters, or a mapping of its parameters by name.
        trust_pickle: Whether a file may run the code that it contains.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None
    trust_pickle: bool = False

    def need_trust(self, path: Path, description: str, remedy: str) -> None:
        """Reject a Python pickle unless the user trusts it: loading a pickle runs the code that it contains.

        Args:
            description: Description of the file, e.g. ``a Python pickle of scikit-learn``.
            remedy: Advice on alternatives that are not pickles.

        Raises:
            ModelError: the user has not set ``trust_pickle``.
        """
        if not self.trust_pickle:
            raise ModelError(
                f"{path.name} is {description}: loading it runs any code it contains. If you trust its "
                f"author, add --trust-pickle. Otherwise {remedy}"
            )


class FrameworkOutputs(NamedTuple):
    """Outputs computed by the framework itself.

    Attributes:
        engine: Name and version of the engine that ran the model, e.g. ``LiteRT 2.3.0``.
        outputs: Outputs of each sample, by the names of the ONNX model's outputs.
    """

    engine: str
    outputs: Sequence[Mapping[str, Array]]


class Converted(NamedTuple):
    """Result of an importer.

    Attributes:
        onnx: Content of the ONNX file. The weights are inside; it refers to no other file.
        notes: Notes on the conversion for the user, one sentence each, e.g. about an approximated op.
        precision: Precision of the original if the ONNX model's differs, e.g. ``int8-dynamic`` if it
            rounds at run time. It bounds how close the two can be. "" means the ONNX model's own.
        answers: ``(samples) -> Answers``; runs the same model that was converted. None means the importer's
            own.
        example: The user's example inputs, by the names of the ONNX model's inputs. None means unknown.
    """

    onnx: bytes
    notes: tuple[str, ...] = ()
    precision: str = ""
    answers: Callable[[Sequence[Mapping[str, Array]]], FrameworkOutputs] | None = None
    example: Mapping[str, Array] | None = None


def _takes_no_object(model: object) -> bool:
    return False


class Importer(NamedTuple):
    """Importer of one framework's models.

    Attributes:
        source_format: Name of the format for users: ``TFLite``.
        suffixes: File suffixes, e.g. ``(".tflite",)``, for files whose content no importer recognizes.
        recognize: ``(head, path) -> bool``: whether the file is one of the framework's. ``head`` is the first
            HEAD_BYTES of the file, or b"" of a folder. It never raises, and no two importers recognize the
            same file.
        to_onnx: ``(source, options) -> Converted``. Raises ModelError for a model that it can't convert,
            MissingDependency if its framework is not installed.
        packages: Distributions whose versions can change the result of ``to_onnx``. The bundle records those
            that are installed.
        recognize_object: ``(object) -> bool``: whether a Python object is one of the framework's, by its
            classes' modules. It imports nothing.
        answers: ``(source, samples) -> Answers``: runs the original, for the comparison with the ONNX model.
            Samples and outputs have the ONNX model's names, dtypes and shapes. Raises MissingDependency if
            its engine is not installed, EngineError if the engine rejects the model. None means that it can't
            be run.
    """

    source_format: str
    suffixes: tuple[str, ...]
    recognize: Callable[[bytes, Path], bool]
    to_onnx: Callable[[Any, ImportOptions], Converted]
    packages: tuple[str, ...] = ()
    recognize_object: Callable[[object], bool] = _takes_no_object
    answers: Callable[[Any, Sequence[Mapping[str, Array]]], FrameworkOutputs] | None = None


HEAD_BYTES = 4096
"""How much of a file ``recognize`` is given."""
